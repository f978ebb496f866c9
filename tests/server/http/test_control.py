"""The control plane: what operators, owners and onlookers ask for, and what of it is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crowdml.wire.signed_task import write_arrays

JSON = {"content-type": "application/json"}
BAD = [b"", b"{", b"[]", b"null", b"1", b'"count"', b"[" * 60_000, b'{"count":' * 5_000, b'{"count": NaN}', b"\xff\xfe"]
BAD += [
    b'{"count": 1e400}',
    b'{"count": ' + b"9" * 5_000 + b"}",
    b'{"count": true}',
    b'{"count": "1"}',
    b'{"count": 1.5}',
]
BAD += [
    b'{"count": 0}',
    b'{"count": -1}',
    b'{"count": 10001}',
    b'{"count": 1, "x": 1}',
    b'{"count": null}',
    b'{"a": 1}' * 2,
]


def ids(raw: bytes) -> str:
    return raw[:20].decode("latin-1")


@pytest.mark.parametrize("body", BAD, ids=ids)
def test_a_body_that_is_not_what_it_should_be_is_refused_in_words(shared: Any, refused: Any, body: bytes) -> None:
    before = shared.stored()
    headers = JSON | {"authorization": f"Bearer {shared.token}"}
    answer = shared.send("POST", "/v1/tasks/walk/invites", headers=headers, content=body)
    assert answer.status_code in (400, 422), answer.text
    refused(answer, answer.status_code)
    assert len(answer.content) < 2_000 and shared.stored() == before


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_body_of_another_type_is_refused(shared: Any, refused: Any, kind: str) -> None:
    headers = {"content-type": kind, "authorization": f"Bearer {shared.token}"}
    answer = shared.send("POST", "/v1/tasks/walk/invites", headers=headers, content=b'{"count": 1}')
    refused(answer, 422, "bad-input")


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [("/v1/tasks/walk/invites", 65_537, 413), ("/v1/tasks/walk/devices", 1 << 20, 413), ("/v1/tasks", 97 << 20, 413)],
)
def test_a_body_that_is_too_long_is_not_read(shared: Any, refused: Any, path: str, size: int, status: int) -> None:
    headers = JSON | {"authorization": f"Bearer {shared.token}", "content-length": str(size)}
    refused(shared.send("POST", path, headers=headers), status, "too-large")


def test_a_body_that_only_an_operator_may_send_is_not_read_from_others(shared: Any, refused: Any) -> None:
    class Unread:
        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> bytes:
            raise AssertionError("it was read")

    for token, status in ((shared.device().token, 404), ("nobody", 401)):
        headers = JSON | {"authorization": f"Bearer {token}", "content-length": str(50 << 20)}
        refused(shared.send("POST", "/v1/tasks", headers=headers, content=Unread()), status)


def test_compressed_bodies_are_refused_everywhere(shared: Any, refused: Any) -> None:
    headers = JSON | {"authorization": f"Bearer {shared.token}", "content-encoding": "gzip"}
    for path in ("/v1/tasks", "/v1/tasks/walk/invites", "/v1/tasks/walk/devices"):
        refused(shared.send("POST", path, headers=headers, content=b"\x1f\x8b"), 415, "encoding")


BAD_FILES = {
    "not TOML": "name = ",
    "empty": "",
    "deep": "a = " + "[" * 5_000,
    "deeper": "a" + ".a" * 5_000 + " = 1",
    "not finite": "[algorithm]\nkind = 'crowd-sgd'\nradius = inf",
    "NaN": "[algorithm]\nkind = 'crowd-sgd'\nradius = nan",
    "a thousand digits": "[algorithm]\nkind = 'crowd-sgd'\nbatch = " + "9" * 5_000,
    "only in simulation": "[algorithm]\nkind = 'central-sgd'",
    "unknown kind": "[algorithm]\nkind = 'magic'",
    "surrogate": "objective = '\ud800'",
    "NUL": "objective = '\0'",
}


@pytest.mark.parametrize("what", list(BAD_FILES))
def test_a_task_file_that_cannot_be_used_is_refused_in_words(shared: Any, refused: Any, what: str) -> None:
    text, before = BAD_FILES[what], shared.stored()
    if text.startswith("[algorithm]"):
        head, _, rest = shared.file.partition("[algorithm]")
        text = head + text + "\n[privacy]" + rest.partition("[privacy]")[2]
    headers = JSON | {"authorization": f"Bearer {shared.token}"}
    answer = shared.send("POST", "/v1/tasks", headers=headers, content=json.dumps({"file": text}).encode())
    refused(answer, 422, "bad-input")
    assert shared.stored() == before


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        ("epsilon = 1001.0", "promises nothing"),
        ("epsilon = 2.0, owner-range = [1.0, 5000.0]", "ε = 5000 promises nothing"),
        ("epsilon = 2.0, delta = 0.01", "delta = 0.01 is above 0.0001"),
        ("epsilon = 2.0, delta = 1e-5, units = 100000", "no promise to 100000 samples"),
    ],
    ids=["ε", "owner's ε", "δ", "δ of so many"],
)
def test_a_task_whose_terms_say_nothing_is_refused_in_words(shared: Any, refused: Any, terms: str, what: str) -> None:
    before, given = shared.stored(), f"privacy={{ max-uses = 1, clip = 1.0, {terms} }}"
    answer = shared.as_operator("POST", "/v1/tasks", {"file": shared.file, "changes": [given], "draft": False})
    refused(answer, 422, "bad-input")
    assert what in answer.json()["error"]["message"] and answer.json()["error"]["hint"]
    assert shared.stored() == before


@pytest.mark.parametrize(
    "change", ["", "=", "a", "name", "data.features=1e9", "x.y=1", "name=[", "algorithm=1", "privacy.mode=paper"]
)
def test_changes_that_cannot_be_made_are_refused_in_words(shared: Any, refused: Any, change: str) -> None:
    before = shared.stored()
    answer = shared.as_operator("POST", "/v1/tasks", {"file": shared.file, "changes": [change]})
    refused(answer, 422, "bad-input")
    assert shared.stored() == before


PCA = "data.transform=[{ kind = 'pca', components = 2 }]"
GOOD = {"mean": np.zeros(3, np.float32), "directions": np.eye(3, 2, dtype=np.float32)}
ARRAYS: dict[str, Any] = {
    "none": None,
    "too few": [],
    "too many": write_arrays([GOOD, GOOD]),
    "empty": [{}],
    "another shape": write_arrays([GOOD | {"directions": np.eye(2, 2, dtype=np.float32)}]),
    "another length": write_arrays(
        [GOOD | {"mean": np.zeros(4, np.float32), "directions": np.eye(4, 2, dtype=np.float32)}]
    ),
    "not finite": write_arrays([GOOD | {"mean": np.full(3, np.nan, np.float32)}]),
    "no array": [{"mean": 1, "directions": 2}],
    "not base64": [{"mean": {"shape": [3], "values": "!"}, "directions": {"shape": [3, 2], "values": ""}}],
    "huge shape": [{"mean": {"shape": [1 << 60], "values": ""}, "directions": {"shape": [-1], "values": ""}}],
    "shape of no numbers": [{"mean": {"shape": "33", "values": ""}}],
    "shape of nothing": [{"mean": {"shape": None, "values": ""}}],
}


@pytest.mark.parametrize("what", list(ARRAYS))
def test_arrays_that_do_not_fit_are_refused_before_anything_is_stored(shared: Any, refused: Any, what: str) -> None:
    before = shared.stored()
    body = {"file": shared.file, "changes": ["name=fitted", PCA], "arrays": ARRAYS[what]}
    refused(shared.as_operator("POST", "/v1/tasks", body), 422)
    assert shared.stored() == before


def test_arrays_that_fit_travel_in_the_signed_task(make_app: Any) -> None:
    app = make_app()
    body = {"file": app.file, "changes": [PCA], "arrays": write_arrays([GOOD])}
    made = app.as_operator("POST", "/v1/tasks", body)
    assert made.status_code == 201, made.text
    assert app.live().transform(np.ones((1, 3), np.float32)).shape == (1, 2)
    app.close()
    assert make_app().show() == made.json(), "it can be taken up again"


def test_a_name_is_given_once(shared: Any, refused: Any) -> None:
    before = shared.stored()
    refused(shared.as_operator("POST", "/v1/tasks", {"file": shared.file}), 409, "name-taken")
    assert shared.stored() == before


def test_two_tasks_of_one_name_made_at_once_are_one(shared: Any) -> None:
    body = {"file": shared.file, "changes": ["name=twice"]}
    headers = {"authorization": f"Bearer {shared.token}"}
    asked = [shared.begin("POST", "/v1/tasks", headers=headers, json=body) for _ in range(8)]
    assert sorted(future.result(20).status_code for future in asked) == [201] + [409] * 7


def test_states_follow_each_other_as_they_may(shared: Any, refused: Any) -> None:
    task = shared.fresh(draft=True)
    device = shared.device(task)
    assert device.check_out().status_code == 204
    refused(device.check_in(), 503, "draft")
    refused(shared.move("paused", task), 409, "state")
    for state in ("open", "open", "paused", "open"):
        assert shared.move(state, task).json()["state"] == state
    assert device.check_in().status_code == 200
    (link,) = shared.invites(task=task)
    assert shared.move("stopped", task).json()["reason"] == "the operator stopped it"
    for state in ("open", "paused"):
        refused(shared.move(state, task), 409, "state")
    refused(device.check_out(), 410, "stopped")
    refused(shared.enrol(link, device.key), 410, "stopped")


def test_the_model_goes_to_the_operator_and_to_devices_of_the_task(shared: Any, refused: Any) -> None:
    from safetensors.numpy import load

    task = shared.fresh()
    device, other = shared.device(task), shared.device(shared.fresh())
    device.check_in()
    path = f"/v1/tasks/{task}/model"
    found = [shared.as_operator("GET", path), shared.send("GET", path, headers=device.bearer)]
    models = [{name: array.tolist() for name, array in load(answer.content).items()} for answer in found]
    assert models[0] == models[1] and any(np.any(values) for values in models[0].values())
    refused(shared.send("GET", path, headers=other.bearer), 404, "no-task")
    refused(shared.as_operator("GET", f"{path}?format=pickle"), 422, "bad-input")


def test_receipts_come_in_pages(shared: Any, refused: Any) -> None:
    device = shared.device(shared.fresh())
    for number in range(3):
        device.check_in(device.body(0), f"key-number-{number}")
    path = "/v1/devices/me/receipts"
    assert [receipt["number"] for receipt in device.receipts()] == [1, 2, 3]
    page = shared.send("GET", f"{path}?after=2", headers=device.bearer).json()
    assert [receipt["key"] for receipt in page["receipts"]] == ["key-number-2"] and page["next"] is None
    for after in ("-1", "x", "1e3", str(1 << 60), "9" * 5_000):
        refused(shared.send("GET", f"{path}?after={after}", headers=device.bearer), 422, "bad-input")


METHODS = [("DELETE", "/v1/tasks"), ("PUT", "/v1/tasks/walk"), ("POST", "/v1/tasks/walk"), ("POST", "/healthz")]
METHODS += [("POST", "/v1/tasks/walk/check-out"), ("GET", "/v1/tasks/walk/check-ins"), ("PATCH", "/v1/devices/me")]


@pytest.mark.parametrize(("method", "path"), [*METHODS, ("TRACE", "/v1/tasks"), ("PUT", "/v1/tasks/walk/check-out")])
def test_another_method_is_refused_and_the_right_ones_are_named(
    shared: Any, refused: Any, method: str, path: str
) -> None:
    answer = shared.send(method, path)
    refused(answer, 405, "method")
    assert answer.headers["allow"]


def test_what_is_not_there_is_not_found_in_the_one_shape(shared: Any, refused: Any) -> None:
    for path in (
        "/nothing",
        "/v1",
        "/v1/tasks/nothing",
        "/v2/tasks",
        "/v1/tasks/walk/nothing",
        "/tasks/nothing",
        "/static/nothing",
    ):
        refused(shared.send("GET", path), 404)
