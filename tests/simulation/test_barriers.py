"""Barriers and speeds: who checks in when, and what the server waits for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crowdml.algorithms import Task
from crowdml.core import NUMPY, BadInput
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import Timeline, make_timeline

Make = Callable[..., Task]
UNEVEN = "crowd.speeds={ sigma = 1.0 }"


def course(task: Task) -> Timeline:
    _, dataset = prepare(task)
    return make_timeline(task, dataset, task.build(NUMPY), np.random.default_rng([0, 0]))


def admm(digits: Make, own: str = "", *changes: str) -> Task:
    return digits(f"algorithm={{ kind = 'admm' {own} }}", *changes)


def windows(found: Timeline) -> list[list[int]]:
    ends = np.flatnonzero(found.commits) + 1
    return [part.tolist() for part in np.split(found.device, ends)[:-1]]


def test_without_a_barrier_every_version_is_made_of_all_devices(digits: Make) -> None:
    found = course(admm(digits, "", UNEVEN, "crowd.passes=3"))
    assert [sorted(part) for part in windows(found)] == [list(range(20))] * 3
    assert not found.staleness.any() and found.releases == 3


def test_a_synchronous_server_waits_for_the_slowest_and_alike_devices_take_one_unit(digits: Make) -> None:
    even, uneven = course(admm(digits)), course(admm(digits, "", UNEVEN))
    np.testing.assert_allclose(even.times[even.commits], [1.0, 2.0])
    lasting = np.diff(uneven.times[uneven.commits], prepend=0.0)
    assert lasting[0] > 2.0 and lasting[0] == pytest.approx(lasting[1])  # each keeps its own speed


def test_a_barrier_waits_for_enough_and_for_those_who_were_silent_for_long(digits: Make) -> None:
    found = course(admm(digits, ", barrier = 5, max-delay = 4", UNEVEN, "crowd.passes=10"))
    heard = windows(found)
    assert all(len(part) >= 5 and len(set(part)) == len(part) for part in heard)
    assert any(len(part) > 5 for part in heard)
    last = dict.fromkeys(range(20), -1)
    for version, part in enumerate(heard):
        last |= dict.fromkeys(part, version)
        assert min(last.values()) > version - 4
    assert 0 < found.staleness.max() < 4


def test_staleness_counts_the_versions_since_the_device_was_heard(digits: Make) -> None:
    found = course(admm(digits, ", barrier = 5, max-delay = 50", UNEVEN, "crowd.passes=4"))
    began = dict.fromkeys(range(20), 0)
    version = 0
    waiting: list[int] = []
    for device, stale, ends in zip(
        found.device.tolist(), found.staleness.tolist(), found.commits.tolist(), strict=True
    ):
        assert stale == version - began[device]
        waiting.append(device)
        if ends:
            version += 1
            began |= dict.fromkeys(waiting, version)
            waiting = []


def test_a_device_that_may_not_check_in_any_more_is_not_waited_for(digits: Make) -> None:
    found = course(admm(digits, ", barrier = 5, max-delay = 3", UNEVEN, "stop.max-releases=3", "crowd.passes=10"))
    assert found.releases == 3
    assert np.bincount(found.device).min() >= 1


def test_rounds_last_as_long_as_their_slowest_device(digits: Make) -> None:
    found = course(digits("algorithm={ kind = 'fedsgd', per-round = 20 }", UNEVEN))
    lasting = np.diff(found.times[found.commits], prepend=0.0)
    assert lasting[0] > 2.0 and lasting[0] == pytest.approx(lasting[1])


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (["crowd.drop-out=0.1"], "crowd.drop-out"),
        (["crowd.delays={ request = 3.0 }"], "crowd.delays"),
        (["algorithm.barrier=21"], "algorithm.barrier"),
        (["model={ kind = 'mlp' }"], "model.kind"),
    ],
)
def test_what_would_change_nothing_or_never_end_is_refused(digits: Make, changes: list[str], where: str) -> None:
    with pytest.raises(BadInput) as caught:
        admm(digits, "", *changes).check()
    assert str(caught.value.where).endswith(where)


def test_speeds_are_refused_where_rows_set_the_pace(digits: Make) -> None:
    with pytest.raises(BadInput, match="speeds change nothing"):
        digits(UNEVEN).check()
