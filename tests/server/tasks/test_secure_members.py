"""Whom a barrier's sum takes: places are kept for the overdue, and no longer than anybody would wait for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from crowdml.algorithms.schedule import Barrier
from crowdml.server.refusals import Refusal
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.secure_attempt import Attempt
from crowdml.server.tasks.secure_members import Readiness, SecureMembers
from crowdml.server.tasks.secure_rounds import SecureRounds
from tests.support.own_loop import run_apart

FILE = """
crowdml = 1
name = "walk"
[data]
features = 3
labels = ["standing", "walking"]
[model]
kind = "logistic"
[algorithm]
kind = "admm"
devices = 4
barrier = 3
max-delay = 2
[privacy]
mode = "none"
[secure-aggregation]
enabled = true
honest = 1.0
drop-out = 0.0
"""


def crowd(count: int, since: int = 0) -> list[DeviceState]:
    return [
        DeviceState(
            id=str(slot),
            task="walk",
            slot=slot,
            token_hash=b"",
            revoked=False,
            invited=since,
        )
        for slot in range(count)
    ]


def overdue_after(versions: int, heard: list[int]) -> tuple[Readiness, list[DeviceState], set[int]]:
    """Make so many versions of the same devices, τ = 3 and s = 3."""
    readiness, devices = Readiness(Barrier(least=3, max_delay=3)), crowd(6)
    readiness.overdue(0, devices)
    for version in range(1, versions + 1):
        readiness.heard(heard, version)
    return readiness, devices, readiness.overdue(versions, devices)


def test_a_device_is_overdue_after_as_many_silent_versions_as_in_a_simulation() -> None:
    assert overdue_after(1, [0, 1, 2])[2] == set()
    assert overdue_after(2, [0, 1, 2])[2] == {3, 4, 5}


def test_there_are_never_more_places_kept_than_there_are() -> None:
    assert len(overdue_after(2, [0])[2]) == 3


def test_places_are_kept_for_the_overdue_until_they_are_given_up() -> None:
    readiness, devices, kept = overdue_after(2, [0, 1, 2, 3, 4])
    assert kept == {5}
    readiness.require_place(5, [0, 1], 2, devices)
    readiness.require_place(1, [0], 2, devices)
    with pytest.raises(Refusal) as caught:
        readiness.require_place(2, [0, 1], 2, devices)
    assert (caught.value.status, caught.value.code) == (409, "no-place")
    readiness.give_up([0, 1], 2, devices)
    readiness.require_place(2, [0, 1], 2, devices)
    assert readiness.overdue(9, devices) == {0, 1, 2}  # all but the one that is away, up to the number of places


def test_a_device_that_is_heard_again_is_not_away_any_more() -> None:
    readiness, devices, _ = overdue_after(2, [0, 1, 2, 3, 4])
    readiness.give_up([], 2, devices)
    readiness.heard([5], 3)
    readiness.heard([0, 1, 2, 3, 4], 5)
    assert readiness.overdue(5, devices) == {5}


def test_nobody_waits_for_a_device_that_was_never_given_a_version() -> None:
    readiness = Readiness(Barrier(least=3, max_delay=1))
    assert readiness.overdue(50, crowd(6, since=-1)) == set()


@pytest.mark.parametrize(
    ("started", "expected"), [("1", (409, "stale")), ("-1", (400, "started")), ("9" * 19, (400, "started"))]
)
def test_work_that_began_with_no_version_of_this_task_is_refused(
    make_app: Any, started: str, expected: tuple[int, str]
) -> None:
    server = make_app()
    server.create(file=FILE)
    member = server.device("walk")
    present = server.send("GET", "/v1/tasks/walk/sums", headers=member.bearer).json()
    headers = {"crowdml-sum": present["sum"], "content-type": "application/octet-stream", "crowdml-started": started}
    answer = server.send("POST", "/v1/tasks/walk/sums/hello", headers=member.bearer | headers, content=bytes(64))
    assert (answer.status_code, answer.json()["error"]["code"]) == expected


@pytest.mark.parametrize(
    ("present", "sent", "spent"),
    [
        (3, {}, False),
        (4, {0: 2, 1: 2}, True),
        (4, {0: 2}, False),
        (2, {0: 1, 1: 1, 2: 1}, False),
        (2, {0: 2, 1: 2}, True),
    ],
    ids=["nobody has sent", "two of four are left", "three of four are left", "one has left", "one left, others spent"],
)
def test_a_server_that_is_started_anew_tells_spent_attempts_from_devices_that_are_missing(
    present: int, sent: dict[int, int], spent: bool
) -> None:
    live = SimpleNamespace(
        masked=SimpleNamespace(masking=SimpleNamespace(attempts=2)),
        server=SimpleNamespace(schedule=Barrier(least=3, max_delay=3)),
        task=SimpleNamespace(stop=SimpleNamespace(max_releases=None)),
    )
    running: Any = SimpleNamespace(live=live, devices=dict(enumerate(crowd(present))), totals=None)
    members = SecureMembers(running, {(slot, 5): count for slot, count in sent.items()})
    assert members.are_spent(5, 3) == spent


def test_an_attempt_that_cannot_be_stored_is_given_up() -> None:
    async def refuse(work: object) -> None:
        raise Refusal(503, "busy", "too many check-ins are waiting", retry_after_s=1)

    async def work() -> None:
        rounds = SecureRounds.__new__(SecureRounds)
        rounds._writer = SimpleNamespace(submit=refuse)  # type: ignore[assignment]
        rounds._members = SimpleNamespace(sent_if_all=dict, note_failure=lambda machine: True)  # type: ignore[assignment]
        machine: Any = SimpleNamespace(waiting=list)
        attempt = Attempt(machine)
        await rounds._ask_for_vectors(attempt)
        assert attempt.over and attempt.failure is not None

    run_apart(work)
