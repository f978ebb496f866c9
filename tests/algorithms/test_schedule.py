"""Schedules at and around their limits: what is used, when a version is made, and what drivers need to know."""

from __future__ import annotations

import pytest

from crowdml.algorithms import RECIPES, Barrier, Counts, OnArrival, Rounds
from crowdml.core import NUMPY
from crowdml.task import parse

TASK = """
crowdml = 1
name = "when"
[data]
features = 2
labels = ["a", "b"]
[model]
kind = "logistic"
[algorithm]
kind = "{kind}"
{settings}
[privacy]
mode = "none"
[crowd]
devices = 10
"""


def received(number: int, longest: int = -1) -> Counts:
    return Counts(received=number, version=5, longest=longest)


@pytest.mark.parametrize(
    ("kind", "rule", "limit", "used", "not_used"),
    [
        (kind, *case)
        for kind in ("crowd-sgd", "local-sgd")
        for case in (
            ("accept", 3, [0, 1, 2, 3], [4, 1000]),
            ("weight", 3, [0, 1, 2, 3], [4, 1000]),
            ("accept", 0, [0], [1]),
            ("drop", 3, [0], [1, 2, 3, 4]),
            ("drop", 0, [0], [1]),
        )
    ],
)
def test_which_old_check_ins_a_task_uses(
    kind: str, rule: str, limit: int, used: list[int], not_used: list[int]
) -> None:
    settings = f'stale = "{rule}"\nmax-staleness = {limit}'
    accepts = parse(TASK.format(kind=kind, settings=settings)).build(NUMPY).schedule.accepts
    assert all(accepts(staleness) for staleness in used)
    assert not any(accepts(staleness) for staleness in not_used)


def test_on_arrival_a_version_is_made_of_so_many_check_ins() -> None:
    each, every_third = OnArrival(batch=5, buffer=9), OnArrival(batch=5, buffer=5, buffered=3)
    assert each.alone and each.ready(received(1)) and not each.ready(received(0))
    assert not every_third.alone and every_third.ready(received(3)) and not every_third.ready(received(2))
    assert (each.cohort, every_third.cohort) == (1, 3)
    assert (each.batch, each.buffer, each.most_rows) == (5, 9, 9)
    assert not (each.whole or each.invites or each.waits)


def test_on_arrival_old_check_ins_are_used_up_to_a_limit() -> None:
    limited = OnArrival(batch=1, buffer=1, max_staleness=2)
    assert [limited.accepts(staleness) for staleness in (0, 2, 3)] == [True, True, False]
    assert OnArrival(batch=1, buffer=1).accepts(1000)


def test_a_round_is_complete_when_its_cohort_has_checked_in() -> None:
    schedule = Rounds(cohort=4, epochs=2, multiple=10, max_rows=60)
    assert schedule.ready(received(4)) and not schedule.ready(received(3))
    assert schedule.accepts(0) and not schedule.accepts(1)
    assert schedule.invites and schedule.whole and not schedule.waits
    assert (schedule.cohort, schedule.batch, schedule.buffer, schedule.most_rows) == (4, 10, 10, 60)
    assert not schedule.alone and Rounds(cohort=1).alone
    assert Rounds(cohort=1).most_rows is None


def test_a_barrier_asks_for_enough_and_for_the_silent() -> None:
    schedule = Barrier(least=2, max_delay=3)
    assert schedule.ready(received(2, longest=1))
    assert not schedule.ready(received(1, longest=0))
    assert not schedule.ready(received(3, longest=2))
    assert schedule.ready(received(2)), "nobody is silent"
    assert [schedule.accepts(staleness) for staleness in (0, 2, 3)] == [True, True, False]
    assert schedule.waits and schedule.whole and not schedule.invites and not schedule.alone
    assert (schedule.cohort, schedule.delays, schedule.most_rows) == (2, 3, None)


MET = {
    "crowd-sgd": OnArrival(batch=20, buffer=20),
    "local-sgd": OnArrival(batch=50, buffer=50, max_staleness=0),
    "central-sgd": OnArrival(batch=1, buffer=1),
    "decentral": OnArrival(batch=1, buffer=1),
    **dict.fromkeys(
        ("fedavg", "fedprox", "fedavgm", "fedadam", "fedyogi", "scaffold", "ditto", "dp-fedavg"),
        Rounds(cohort=10, multiple=10),
    ),
    "fedbuff": OnArrival(batch=50, buffer=50, buffered=10, max_staleness=1_000_000),
    "fedsgd": Rounds(cohort=10, max_rows=10_000),
    "consensus-newton": Rounds(cohort=10),
    "ridge": Rounds(cohort=10),
    "admm": Barrier(least=10, max_delay=10),
    "admm-sums": Barrier(least=10, max_delay=10),
    "local-fit": Barrier(least=1, max_delay=1_000_000),
}


@pytest.mark.parametrize("kind", RECIPES)
def test_when_the_devices_of_a_recipe_meet_the_server(kind: str) -> None:
    assert parse(TASK.format(kind=kind, settings="")).build(NUMPY).schedule == MET[kind]
