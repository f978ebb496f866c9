"""The routes of masked sums, spoken by hand: what is refused, and what is answered again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from crowdml.secure_aggregation.sum_messages import Consents, Survivors, write_items
from crowdml.server.tasks.coordinator import Options
from tests.support.sum_takers import FILE, Taker, bodies, exchange, greet, masked

LOW_ORDER = bytes(32)


@pytest.fixture
def server(make_app: Any) -> Any:
    made = make_app(options=Options(stage_s=600.0))
    answer = made.as_operator("POST", "/v1/tasks", {"file": FILE})
    assert answer.status_code == 201, answer.text
    return made


@pytest.fixture
def crowd(server: Any) -> list[Taker]:
    takers = [Taker(server) for _ in range(4)]
    for taker in takers:
        taker.begin()
    return takers


def test_a_whole_sum_by_hand(server: Any, crowd: list[Taker]) -> None:
    uploads = masked(crowd)
    flags = bodies([taker.post("masked", raw) for taker, raw in zip(crowd, uploads, strict=True)])
    shown = [Survivors.of(raw, 4, 3) for raw in flags]
    tags = [taker.machine.consent(survivors) for taker, survivors in zip(crowd, shown, strict=True)]
    told = bodies([taker.post("consent", raw) for taker, raw in zip(crowd, tags, strict=True)])
    shares = [write_items(taker.machine.reveal(Consents.of(raw, 4))) for taker, raw in zip(crowd, told, strict=True)]
    receipts = [
        future.result(20).json()
        for future in [taker.post("reveal", raw) for taker, raw in zip(crowd, shares, strict=True)]
    ]
    assert {receipt["status"] for receipt in receipts} == {"applied"}
    assert (server.show("walk")["version"], server.show("walk")["check_ins"]) == (1, 4)
    # Asked again by the bytes that were sent, the server has the same receipt; by other bytes it has none.
    again = crowd[0].post("masked", uploads[0]).result(20).json()
    assert again == receipts[0] | {"again": True}
    assert crowd[0].refusal("masked", uploads[1]) == (409, "sum-over")
    assert crowd[0].refusal("reveal", shares[0]) == (409, "sum-over")
    assert crowd[0].look()["version"] == 1


def test_a_device_revoked_in_the_midst_of_a_sum_ends_the_sum_and_not_the_server(
    server: Any, crowd: list[Taker]
) -> None:
    uploads = masked(crowd)
    flags = bodies([taker.post("masked", raw) for taker, raw in zip(crowd, uploads, strict=True)])
    tags = [taker.machine.consent(Survivors.of(raw, 4, 3)) for taker, raw in zip(crowd, flags, strict=True)]
    consents = bodies([taker.post("consent", raw) for taker, raw in zip(crowd, tags, strict=True)])
    shares = [
        write_items(taker.machine.reveal(Consents.of(raw, 4))) for taker, raw in zip(crowd, consents, strict=True)
    ]
    waiting = [taker.post("reveal", raw) for taker, raw in zip(crowd[:3], shares[:3], strict=True)]
    gone = server.as_operator("DELETE", f"/v1/tasks/walk/devices/{crowd[0].member.id}")
    assert gone.status_code == 204, gone.text
    waiting.append(crowd[3].post("reveal", shares[3]))
    answers = [future.result(20) for future in waiting]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(409, "sum-aborted")}
    shown = server.show("walk")
    assert (shown["version"], shown["check_ins"], shown["devices"]) == (0, 0, 3)
    assert server.failures == [] and server.send("GET", "/healthz").json() == {"status": "ok"}


# Row 23


def test_a_masked_vector_of_wrong_length_is_refused(crowd: list[Taker]) -> None:
    taker = crowd[0]
    raw = masked(crowd)[0]
    assert taker.refusal("masked", raw + bytes(4)) == (413, "too-large")
    assert taker.refusal("masked", raw[:-4]) == (422, "malformed")


def test_shares_of_wrong_number_or_by_strangers_are_refused(server: Any, crowd: list[Taker]) -> None:
    exchange(crowd)
    stranger = Taker(server)
    stranger.name = crowd[0].name
    for stage, size in (
        ("order-1", 32),
        ("shares", 120),
        ("blame", 1),
        ("masked", crowd[0].form.terms.body_bytes),
        ("consent", 4),
        ("reveal", 4),
    ):
        assert stranger.refusal(stage, bytes(size))[0] in (409, 422), stage
    assert crowd[0].refusal("consent", bytes(7))[0] in (409, 422)


def test_messages_out_of_turn_are_refused(crowd: list[Taker]) -> None:
    taker = crowd[0]
    assert taker.refusal("shares", bytes(32 + 3 * 88))[0] in (409, 422)
    assert taker.refusal("reveal", bytes(4))[0] in (409, 422)
    exchange(crowd)
    assert taker.refusal("hello", taker.fresh(0, 0).hello().to_bytes()) == (422, "malformed")


# Row 24


def test_a_key_of_low_order_is_refused(crowd: list[Taker]) -> None:
    hello = crowd[0].machine.hello()
    assert crowd[0].refusal("hello", replace(hello, fresh=LOW_ORDER).to_bytes()) == (422, "malformed")
    card = replace(hello.card, lasting=LOW_ORDER)
    assert crowd[0].refusal("hello", replace(hello, card=card).to_bytes())[0] == 422


def test_a_device_that_worked_on_another_model_is_refused(crowd: list[Taker]) -> None:
    hello = crowd[0].machine.hello()
    assert crowd[0].refusal("hello", replace(hello, broadcast=bytes(32)).to_bytes()) == (422, "malformed")


def test_a_link_that_nobody_committed_to_is_refused(crowd: list[Taker]) -> None:
    greet(crowd)
    assert crowd[0].refusal("order-1", bytes(32)) == (422, "malformed")
    assert crowd[0].refusal("order-2", bytes(32))[0] in (409, 422)


def test_one_key_for_two_devices_is_refused(crowd: list[Taker]) -> None:
    first, second = crowd[0].machine.hello(), crowd[1].machine.hello()
    waiting = crowd[0].post("hello", first.to_bytes())
    while crowd[0].look()["members"] == 0:
        pass
    assert crowd[1].refusal("hello", replace(second, fresh=first.fresh).to_bytes()) == (422, "malformed")
    assert crowd[1].refusal("hello", replace(second, card=first.card).to_bytes())[0] == 422
    waiting.cancel()


def test_a_key_that_changes_in_a_round_excludes_the_device(crowd: list[Taker]) -> None:
    taker = crowd[0]
    hello = taker.machine.hello()
    waiting = taker.post("hello", hello.to_bytes())
    while taker.look()["members"] == 0:
        pass
    other = crowd[1].machine.hello()
    assert taker.refusal("hello", replace(hello, fresh=other.fresh).to_bytes()) == (422, "not-a-member")
    assert taker.look()["members"] == 0
    assert taker.refusal("hello", hello.to_bytes())[0] == 422
    waiting.cancel()


# What else may come


def test_check_ins_that_are_not_masked_are_refused(crowd: list[Taker]) -> None:
    member = crowd[0].member
    answer = member.server.send("POST", "/v1/tasks/walk/check-ins", headers=member.headers(), content=member.body(0))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "masked")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"crowdml-sum": "x"}, (400, "sum")),
        ({"idempotency-key": "?"}, (400, "key")),
        ({"content-type": "text/html"}, (415, "type")),
        ({"content-encoding": "gzip"}, (415, "encoding")),
        ({"crowdml-sum": "0-1"}, (409, "sum-over")),
        ({"authorization": "Bearer nobody"}, (401, "not-authorised")),
    ],
)
def test_wrong_headers_are_refused(crowd: list[Taker], change: dict[str, str], expected: tuple[int, str]) -> None:
    assert crowd[0].refusal("masked", bytes(4), **change) == expected


def test_methods_and_tasks_without_sums(server: Any, crowd: list[Taker]) -> None:
    member = crowd[0].member
    assert server.send("DELETE", "/v1/tasks/walk/sums/hello", headers=member.bearer).status_code == 405
    assert server.send("POST", "/v1/tasks/walk/sums", headers=member.bearer, content=b"").status_code == 405
    assert server.send("GET", "/v1/tasks/walk/sums").status_code == 401
    plain = server.device(server.fresh())
    answer = server.send("GET", f"/v1/tasks/{plain.task}/sums", headers=plain.bearer)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no-sums")
    assert server.send("GET", "/v1/tasks/walk/sums", headers=plain.bearer).status_code == 404


# Whoever spoils a sum


def reveals(crowd: list[Taker]) -> list[tuple[bytes | None, ...]]:
    """Go through a sum up to what members reveal."""
    uploads = masked(crowd)
    flags = bodies([taker.post("masked", raw) for taker, raw in zip(crowd, uploads, strict=True)])
    tags = [taker.machine.consent(Survivors.of(raw, 4, 3)) for taker, raw in zip(crowd, flags, strict=True)]
    told = bodies([taker.post("consent", raw) for taker, raw in zip(crowd, tags, strict=True)])
    return [taker.machine.reveal(Consents.of(raw, 4)) for taker, raw in zip(crowd, told, strict=True)]


def spoilt(shares: tuple[bytes | None, ...]) -> bytes:
    return write_items([None if share is None else bytes(36) for share in shares])


def test_a_device_that_reveals_wrong_shares_is_left_out_from_then_on(server: Any, crowd: list[Taker]) -> None:
    found = reveals(crowd)
    sent = [write_items(found[0]), write_items(found[1]), write_items(found[2]), spoilt(found[3])]
    futures = [taker.post("reveal", raw) for taker, raw in zip(crowd, sent, strict=True)]
    assert {future.result(20).status_code for future in futures} == {200}  # by the others' shares the sum came out
    assert server.show("walk")["version"] == 1
    crowd[3].begin()
    assert crowd[3].refusal("hello", crowd[3].machine.hello().to_bytes()) == (409, "left-out")
    for taker in crowd[:3]:
        taker.begin()
    greet(crowd[:3])  # the others begin at once, without waiting for it


def test_a_task_whose_sum_cannot_be_made_is_paused_and_says_why(server: Any, crowd: list[Taker]) -> None:
    futures = [taker.post("reveal", spoilt(shares)) for taker, shares in zip(crowd, reveals(crowd), strict=True)]
    assert {future.result(20).json()["error"]["code"] for future in futures} == {"sum-aborted"}
    while server.show("walk")["state"] == "open":
        pass
    assert server.show("walk")["state"] == "paused"
    assert "the sum of version 0 was given up" in server.show("walk")["reason"]


def test_a_device_sends_to_as_many_attempts_as_the_terms_name(make_app: Any) -> None:
    server = make_app(options=Options(stage_s=3.0))
    server.as_operator("POST", "/v1/tasks", {"file": FILE + "attempts = 1\n"})
    crowd = [Taker(server) for _ in range(4)]
    for taker in crowd:
        taker.begin()
    uploads = masked(crowd)
    bodies([taker.post("masked", raw) for taker, raw in zip(crowd, uploads, strict=True)])  # and nobody says more
    while server.show("walk")["state"] == "open":
        pass
    assert server.as_operator("PATCH", "/v1/tasks/walk", {"state": "open"}).status_code == 200
    crowd[0].begin()
    assert crowd[0].refusal("hello", crowd[0].machine.hello().to_bytes()) == (409, "attempts-spent")


@pytest.mark.parametrize("state", ["paused", "stopped"])
def test_nobody_waits_for_others_in_a_task_that_is_not_open_any_more(make_app: Any, state: str) -> None:
    """Two have said hello where three are needed: they are told, and do not ask again for ever."""
    server = make_app(options=Options(stage_s=0.3))
    server.as_operator("POST", "/v1/tasks", {"file": FILE})
    crowd = [Taker(server) for _ in range(2)]
    for each in crowd:
        each.begin()
    futures = [each.post("hello", each.machine.hello().to_bytes()) for each in crowd]
    while crowd[0].look()["members"] < 2:
        pass
    assert server.as_operator("PATCH", "/v1/tasks/walk", {"state": state}).status_code == 200
    answers = [future.result(20) for future in futures]
    assert [answer.status_code for answer in answers] == [409, 409]
    assert {answer.json()["error"]["code"] for answer in answers} == {"sum-aborted"}
