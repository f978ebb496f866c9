"""Check-ins that no honest device sends: refused in words, and nothing is stored of them.

Rows 1 to 13 of the list of inputs that a coordinator must survive.
"""

from __future__ import annotations

import gzip
import io
import itertools
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdml.core import trees
from crowdml.server.store.backups import backup, restore
from crowdml.wire import message

SOUND = (
    "privacy={ mode = 'sound', epsilon = 6.0, max-uses = 3, statistics-epsilon = 0.6, clip = 1.0 }",
    "stop={ max-releases = 50 }",
    "crowd={ passes = 3 }",
)


@pytest.fixture
def app(shared: Any) -> Any:
    """One for all: whoever changes a task makes one of its own."""
    return shared


@pytest.fixture
def untouched(app: Any, refused: Any) -> Callable[..., Any]:
    """Check that a request is refused and that afterwards every row of the database is what it was."""

    def check(ask: Callable[[], Any], status: int, code: str | None = None) -> dict[str, Any]:
        before, shown = app.stored(), app.show()
        error: dict[str, Any] = refused(ask(), status, code)
        assert app.stored() == before, "something was stored"
        assert app.show() == shown, "something was changed"
        return error

    return check


def changed(device: Any, path: str, value: Any) -> bytes:
    """Make an honest check-in with one part replaced."""
    layout, version = device.live.messages.check_in, device.server.show(device.task)["version"]
    content = layout.decode(device.body(version))["content"]
    made = trees.map_paths(lambda at, leaf: np.full_like(leaf, value) if at.startswith(path) else leaf, content)
    encoded: bytes = layout.encode(message(version, made))
    return encoded


CONTRADICTIONS = {
    "more errors than rows that were counted": ("counts/errors", 5),
    "more rows counted than there are": ("counts/counted", 5),
    "fewer rows than were counted": ("counts/rows", 3),
    "more rows than labels": ("counts/rows", 5),
    "more labels than rows": ("counts/spread", 3),
    "fewer labels than rows": ("counts/spread", 1),
    "negative errors": ("counts/errors", -1),
    "negative labels": ("counts/spread", -1),
    "errors beyond any batch": ("counts/errors", 2**31 - 1),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_6_exact_counts_that_contradict_each_other_are_refused(app: Any, untouched: Any, case: str) -> None:
    path, value = CONTRADICTIONS[case]
    device = app.device(app.fresh())
    untouched(lambda: device.check_in(changed(device, path, value)), 422, "malformed")
    assert device.check_in().status_code == 200
    assert 0.0 <= app.show(device.task)["estimated_error"] <= 1.0


def test_1_a_body_longer_than_expected_is_refused_by_its_headers(app: Any, untouched: Any) -> None:
    device = app.device()
    body = device.body() + b"\0"
    assert str(len(body) - 1) in untouched(lambda: device.check_in(body), 413, "too-large")["message"]


def test_1_a_length_that_is_a_number_of_a_thousand_digits_is_only_too_large(app: Any, untouched: Any) -> None:
    device = app.device()
    untouched(lambda: device.check_in(content_length="9" * 5000), 413, "too-large")


@pytest.mark.parametrize("cut", [1, 8, 100, None])
def test_2_a_shorter_body_is_malformed(app: Any, untouched: Any, cut: int | None) -> None:
    device = app.device()
    body = device.body()[:-cut] if cut else b""
    untouched(lambda: device.check_in(body), 422, "malformed")


def test_2_a_body_without_a_length_is_not_read(app: Any, untouched: Any) -> None:
    device = app.device()
    body = device.body()

    async def parts() -> Any:
        for part in (body[:10], body[10:]):
            yield part

    untouched(lambda: device.check_in(parts()), 411, "length")


HEADERS: dict[str, Callable[[bytes], bytes]] = {
    "another name": lambda header: header.replace(b"content/weight", b"content/height"),
    "another type": lambda header: header.replace(b'"I32"', b'"F32"', 1),
    "another shape": lambda header: header.replace(b"[2,3]", b"[3,2]"),
    "other offsets": lambda header: header.replace(b"[0,", b"[4,", 1),
    "another order": lambda header: header.replace(b"content/", b"c0ntent/"),
    "capital letters": lambda header: header.replace(b"dtype", b"Dtype", 1),
    "another length of the header": lambda header: struct.pack("<Q", len(header) - 16) + header[8:],
    "a header longer than memory": lambda header: struct.pack("<Q", 1 << 63) + header[8:],
    "metadata in place of padding": lambda header: (
        header[:-8] + b'"__met":' if header.endswith(b" " * 8) else header[::-1]
    ),
    "the deepest JSON that fits": lambda header: header[:8] + b"[" * (len(header) - 8),
    "duplicate keys": lambda header: header[:8] + (b'{"a":1,"a":1,' * 99)[: len(header) - 8],
    "empty tensors": lambda header: header[:8] + (b'{"":{"dtype":"F32","shape":[0]},' * 99)[: len(header) - 8],
}


@pytest.mark.parametrize("change", list(HEADERS))
def test_3_another_header_than_the_one_legal_header_is_refused_unparsed(
    app: Any, untouched: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    device = app.device()
    body, size = device.body(), len(device.live.messages.check_in.header)
    made = HEADERS[change](body[:size])
    assert made != body[:size] and len(made) == size, "the test changes nothing"

    def parser(*_: object, **__: object) -> None:
        raise AssertionError("the generic parser was called on a device's body")

    for name in ("load", "deserialize"):
        monkeypatch.setattr(f"safetensors.numpy.{name}", parser)
    assert "header" in untouched(lambda: device.check_in(made + body[size:]), 422, "malformed")["message"]


@pytest.mark.parametrize(("count", "status"), [(9, 422), (100_000, 413)])
def test_4_a_hundred_thousand_empty_tensors_are_too_large(app: Any, untouched: Any, count: int, status: int) -> None:
    device = app.device()
    text = "{" + ",".join(f'"{n}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for n in range(count)) + "}"
    untouched(lambda: device.check_in(struct.pack("<Q", len(text)) + text.encode()), status)


def test_4_twenty_megabytes_of_metadata_are_too_large(app: Any, untouched: Any) -> None:
    device = app.device()
    text = b'{"__metadata__":{"a":"' + b"a" * (20 << 20) + b'"}}'
    untouched(lambda: device.check_in(struct.pack("<Q", len(text)) + text), 413, "too-large")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -2e15])
def test_5_numbers_that_are_not_finite_or_beyond_reason_are_refused_and_counted(
    app: Any, untouched: Any, value: float
) -> None:
    device = app.device()
    untouched(lambda: device.check_in(changed(device, "update", value)), 422, "malformed")
    listed = app.as_operator("GET", "/v1/tasks/walk/devices").json()["devices"]
    assert [entry["refused"] for entry in listed if entry["device"] == device.id] == [1]


@pytest.mark.parametrize("value", [-0.0, 1e-45, -1e-40, 1e15])
def test_5_negative_zero_subnormals_and_large_numbers_are_numbers(app: Any, value: float) -> None:
    device = app.device()
    assert device.check_in(changed(device, "update", value)).status_code == 200


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31), 10_000_000])
def test_5_integers_beyond_the_bound_of_a_sound_task_are_refused(app: Any, refused: Any, value: int) -> None:
    task = app.fresh(*SOUND)
    device = app.device(task)
    body, before = changed(device, "update", value), app.stored()
    refused(device.check_in(body), 422, "malformed")
    assert app.stored() == before and app.show(task)["version"] == 0
    assert device.check_in().status_code == 200, "an honest one still passes"


@pytest.mark.parametrize("kind", ["none", "sound"])
def test_5_of_many_that_are_looked_at_together_only_the_dishonest_are_refused(
    make_app: Any, make_gate: Any, kind: str
) -> None:
    app = make_app(f"home-{kind}")
    app.create(*(SOUND if kind == "sound" else ()))
    devices = [app.device() for _ in range(10)]
    bodies = [
        changed(device, "update", 2e15 if kind == "none" else 2_000_000_000) if number % 3 == 1 else device.body(0)
        for number, device in enumerate(devices)
    ]
    gate = make_gate(app)
    first = app.begin_check_in(devices[0], bodies[0])
    assert gate.reached.wait(20)
    others = [app.begin_check_in(device, body) for device, body in zip(devices[1:], bodies[1:], strict=True)]
    app.await_waiting(9)
    gate.open.set()
    answers = [future.result(20) for future in (first, *others)]
    assert [answer.status_code for answer in answers] == [422 if number % 3 == 1 else 200 for number in range(10)]
    assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 422} == {"malformed"}
    listed = {entry["device"]: entry for entry in app.as_operator("GET", "/v1/tasks/walk/devices").json()["devices"]}
    assert [listed[device.id]["refused"] for device in devices] == [number % 3 == 1 for number in range(10)]
    assert app.show()["check_ins"] == 7 and app.show()["version"] == 7


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("weight", -1),
        ("weight", 7),
        ("weight", 2**31 - 1),
        ("counts/rows", -1),
        ("counts/rows", 7),
        ("counts/counted", 2**31 - 1),
        ("counts/errors", -1),
        ("counts/errors", 7),
        ("counts/spread", -(2**31)),
        ("counts/spread", 7),
    ],
)
def test_6_counts_are_neither_negative_nor_more_than_a_device_keeps(
    app: Any, untouched: Any, path: str, value: int
) -> None:
    device = app.device()
    untouched(lambda: device.check_in(changed(device, path, value)), 422, "malformed")


@pytest.mark.parametrize("version", [None, 2**31, 2**62, 2**63 - 1, -1, -(2**63)])
def test_7_versions_that_never_were_are_refused_with_the_present_one(
    app: Any, untouched: Any, version: int | None
) -> None:
    device, present = app.device(), app.show()["version"]
    body = device.body(present + 1 if version is None else version)
    assert untouched(lambda: device.check_in(body), 409, "future-version")["version"] == present


def test_7_versions_that_are_too_old_are_refused_with_the_present_one(app: Any, refused: Any) -> None:
    task = app.fresh("algorithm.stale=drop")
    first, second = app.device(task), app.device(task)
    old = second.body(0)
    assert first.check_in().json()["version"] == 1
    before = app.stored()
    for _ in range(2):
        assert refused(second.check_in(old, "key-number-1"), 409, "stale")["version"] == 1
    assert app.stored() | {"refused_releases": []} == before | {"refused_releases": []}, "nothing but that it was spent"
    assert (second.me()["check_ins"], second.me()["refused"], first.me()["refused"]) == (0, 1, 0), "spent, once"


def test_7_a_check_in_of_another_task_is_malformed_or_unknown(app: Any, refused: Any) -> None:
    device, other = app.device(), app.device(app.fresh("data.features=2"))
    before = app.stored()
    refused(device.check_in(other.body()), 422, "malformed")
    refused(other.check_in(device.body()), 413, "too-large")
    other.task = "walk"
    refused(other.check_in(device.body()), 404, "no-task")
    assert app.stored() == before


def bomb(kind: str) -> bytes:
    plain = bytes(10 << 20)
    return gzip.compress(plain) if kind == "gzip" else zlib.compress(plain)


@pytest.mark.parametrize("kind", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "x-gzip", "GZIP"])
def test_8_nothing_is_decompressed(app: Any, untouched: Any, kind: str) -> None:
    device = app.device()
    untouched(lambda: device.check_in(bomb(kind), content_encoding=kind), 415, "encoding")
    untouched(lambda: device.check_in(device.body(), content_encoding=kind), 415, "encoding")


class Trap:
    """Loading it would end the test process."""

    def __reduce__(self) -> Any:
        return exit, (66,)


def archives() -> dict[str, bytes]:
    npz, packed = io.BytesIO(), io.BytesIO()
    np.savez(npz, gradient=np.array([Trap()], dtype=object))
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Trap()))
    return {
        "application/x-pickle": pickle.dumps(Trap()),
        "application/x-npz": npz.getvalue(),
        "application/zip": packed.getvalue(),
        "application/onnx": b"\x08\x07\x12\x07pytorch",
        "text/html": b"<script>alert(1)</script>",
        "application/json": b'{"gradient": [1]}',
    }


@pytest.mark.parametrize("kind", list(archives()))
def test_9_other_types_of_body_are_refused_and_never_opened(app: Any, untouched: Any, kind: str) -> None:
    device, raw = app.device(), archives()[kind]
    size = device.live.messages.check_in.size_bytes
    untouched(lambda: device.check_in(raw, content_type=kind), 415, "type")
    # Under the right type it is only a body of the wrong length or with the wrong header.
    untouched(lambda: device.check_in(raw), 413 if len(raw) > size else 422)
    untouched(lambda: device.check_in(raw[:size].ljust(size, b" ")), 422, "malformed")


@pytest.mark.parametrize("kind", ["", "application/octet-stream; charset=utf-8", "multipart/form-data"])
def test_9_a_type_that_is_almost_right_is_wrong(app: Any, untouched: Any, kind: str) -> None:
    device = app.device()
    untouched(lambda: device.check_in(content_type=kind), 415, "type")


@pytest.mark.parametrize(
    "key", ["", "short", "a" * 65, "with space", "a/b/c/d/e", "naïve-key", "semi;colon", "a" * 5000]
)
def test_9_a_key_of_another_form_is_refused(app: Any, untouched: Any, key: str) -> None:
    device = app.device()
    untouched(lambda: device.check_in(idempotency_key=key.encode("latin-1")), 400, "key")


def test_10_the_same_key_and_bytes_get_the_first_receipt_and_count_once(app: Any) -> None:
    task = app.fresh()
    device = app.device(task)
    body = device.body()
    first = device.check_in(body, "key-number-1").json()
    device.check_in(device.body(seed=1))
    before = app.stored()
    assert [device.check_in(body, "key-number-1").json() for _ in range(3)] == [first | {"again": True}] * 3
    assert app.stored() == before and device.me()["check_ins"] == 2 and app.show(task)["version"] == 2


def test_10_two_resends_at_once_are_counted_once(app: Any) -> None:
    task = app.fresh()
    device = app.device(task)
    body, headers = device.body(), device.headers("key-number-1")
    asked = [app.begin("POST", f"/v1/tasks/{task}/check-ins", headers=headers, content=body) for _ in range(20)]
    answers = [future.result(20).json() for future in asked]
    assert sum("again" not in answer for answer in answers) == 1
    assert {answer["number"] for answer in answers} == {1} and app.show(task)["check_ins"] == 1


def test_10_a_key_is_a_devices_own(app: Any) -> None:
    task = app.fresh()
    devices = [app.device(task), app.device(task)]
    assert all("again" not in device.check_in(key="key-number-1").json() for device in devices)
    assert app.show(task)["check_ins"] == 2


def test_11_other_bytes_under_the_same_key_are_refused(app: Any, untouched: Any) -> None:
    device = app.device()
    device.check_in(key="key-number-1")
    untouched(lambda: device.check_in(device.body(seed=1), "key-number-1"), 422, "other-bytes")


@pytest.mark.parametrize("state", ["paused", "stopped"])
def test_12_a_resend_gets_its_receipt_whatever_became_of_the_task(app: Any, refused: Any, state: str) -> None:
    task = app.fresh()
    device = app.device(task)
    body = device.body()
    first = device.check_in(body, "key-number-1").json()
    app.move(state, task)
    assert device.check_in(body, "key-number-1").json() == first | {"again": True}
    answer = device.check_in()
    refused(answer, 503 if state == "paused" else 410, state)
    assert ("retry-after" in answer.headers) == (state == "paused")


def test_12_a_replay_after_a_restart_gets_the_first_receipt(make_app: Any) -> None:
    app = make_app()
    app.create()
    device = app.device()
    sent = [(device.body(seed=number), f"key-number-{number}") for number in range(5)]
    receipts = [device.check_in(*sending).json() for sending in sent]
    app.close()
    device.server = again = make_app()
    before = again.stored()
    assert [device.check_in(*sending).json() for sending in sent] == [receipt | {"again": True} for receipt in receipts]
    assert again.stored() == before


def test_12_a_replay_after_a_backup_was_restored_is_counted_once_or_refused(make_app: Any, refused: Any) -> None:
    app = make_app()
    app.create()
    device = app.device()
    sent = [(device.body(number, seed=number), f"key-number-{number}") for number in range(4)]
    kept = [device.check_in(*sending).json() for sending in sent[:2]]
    backup(f"sqlite:///{app.home / 'crowdml.sqlite'}", app.home / "copy")
    for sending in sent[2:]:
        assert device.check_in(*sending).status_code == 200
    app.close()
    restored = app.home.with_name("restored")
    restored.mkdir()
    restore(app.home / "copy", f"sqlite:///{restored / 'crowdml.sqlite'}")
    (restored / "operator.token").write_text(app.token)
    device.server = again = make_app("restored")
    shown = again.show()
    assert (shown["version"], shown["check_ins"], shown["incarnation"]) == (2, 2, 2)
    replayed = [device.check_in(*sending).json() for sending in sent[:2]]
    assert replayed == [receipt | {"again": True, "task_hash": shown["task_hash"]} for receipt in kept]
    refused(device.check_in(*sent[3]), 409, "future-version")
    assert device.check_in(*sent[2]).json()["number"] == 3, "what the backup does not know is counted"
    assert device.check_in(*sent[2]).json()["again"], "and that once"
    assert again.show()["check_ins"] == device.me()["check_ins"] == 3


def test_13_tokens_open_their_own_door_only(app: Any, refused: Any) -> None:
    elsewhere = app.fresh()
    device, other = app.device(), app.device(elsewhere)
    doors = [
        ("POST", "/v1/tasks", {"file": "", "changes": []}),
        ("PATCH", "/v1/tasks/walk", {"state": "stopped"}),
        ("POST", "/v1/tasks/walk/invites", {"count": 1}),
        ("GET", "/v1/tasks/walk/devices", None),
        ("DELETE", f"/v1/tasks/walk/devices/{device.id}", None),
        ("GET", f"/v1/tasks/{elsewhere}/model", None),
        ("GET", f"/v1/tasks/{elsewhere}/check-out", None),
    ]
    before = app.stored()
    for method, path, body in doors:
        refused(app.send(method, path, headers=device.bearer, **({"json": body} if body else {})), 404)
    operator = {"authorization": f"Bearer {app.token}"}
    for method, path in itertools.product(("GET", "DELETE"), ("/v1/devices/me",)):
        refused(app.send(method, path, headers=operator), 404)
    refused(app.send("GET", "/v1/devices/me/receipts", headers=operator), 404)
    refused(app.send("GET", "/v1/tasks/walk/check-out", headers=operator), 404)
    refused(device.check_in(authorization=f"Bearer {app.token}"), 404)
    refused(device.check_in(authorization=f"Bearer {other.token}"), 404, "no-task")
    assert app.stored() == before
    assert device.check_in().status_code == other.check_in().status_code == 200


def test_13_a_device_sees_its_own_receipts_and_nobody_elses(app: Any) -> None:
    devices = [app.device(), app.device()]
    for number, device in enumerate(devices):
        device.check_in(key=f"key-of-device-{number}")
    assert [[receipt["key"] for receipt in device.receipts()] for device in devices] == [
        ["key-of-device-0"],
        ["key-of-device-1"],
    ]
