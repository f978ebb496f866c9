"""Rounds: who is invited, which rows, and where a round ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Task
from crowdml.core import NUMPY, BadInput
from crowdml.simulation import simulate
from crowdml.simulation.chunks import cut_chunks, fixed_count
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import Timeline, make_timeline

Make = Callable[..., Task]


def course(task: Task) -> Timeline:
    _, dataset = prepare(task)
    return make_timeline(task, dataset, task.build(NUMPY), np.random.default_rng([0, 0]))


def fedavg(digits: Make, own: str = "", *changes: str) -> Task:
    return digits(f"algorithm={{ kind = 'fedavg', per-round = 4, local-batch = 10 {own} }}", *changes)


def test_a_round_invites_different_devices_and_ends_with_the_last(digits: Make) -> None:
    found = course(fedavg(digits))
    assert len(found) == 2 * 20  # two passes of twenty devices, four at a time
    rounds = found.device.reshape(-1, 4)
    assert all(len(set(line)) == 4 for line in rounds.tolist())
    assert len({tuple(sorted(line)) for line in rounds.tolist()}) > 1
    assert fixed_count(found) == 4 and not found.staleness.any()


def test_a_device_goes_through_all_its_rows_once_per_epoch(digits: Make) -> None:
    found = course(fedavg(digits, ", epochs = 2", "crowd.partition={ kind = 'unbalanced', sigma = 0.7 }"))
    assert found.rows.shape[1] % 10 == 0 and len(set(found.counts.tolist())) > 1
    shards: dict[int, Any] = {}
    for device, line, count in zip(found.device.tolist(), found.rows, found.counts.tolist(), strict=True):
        first, second = line[: count // 2], line[count // 2 : count]
        assert len(set(first.tolist())) == count // 2
        assert set(first.tolist()) == set(second.tolist()) and first.tolist() != second.tolist()
        assert shards.setdefault(device, set(first.tolist())) == set(first.tolist())
    owners = [row for rows in shards.values() for row in rows]
    assert len(owners) == len(set(owners))


def test_an_invited_device_uses_all_its_rows_in_every_release(digits: Make) -> None:
    """So a sample is in as many releases as its device makes, which may be more than the passes on average."""
    paper = ("privacy.mode=paper", "privacy.epsilon=3.0")
    task = digits("algorithm={ kind = 'fedsgd', per-round = 4 }", *paper)
    most = course(task).releases
    assert most > task.passes
    assert simulate(task).privacy["sample"]["epsilon"] == pytest.approx(3.0 * most)


def test_a_round_takes_no_more_rows_of_a_device_than_the_task_says(digits: Make) -> None:
    task = digits("algorithm={ kind = 'fedsgd', per-round = 4, max-rows = 6 }", "privacy={ mode = 'none' }")
    found = course(task)
    assert found.rows.shape[1] == 6 and set(found.counts.tolist()) == {6}
    assert all(len(set(line)) == 6 for line in found.rows.tolist())
    of_one = {
        row for device, line in zip(found.device, found.rows.tolist(), strict=True) if device == 0 for row in line
    }
    assert len(of_one) > 6


def test_lost_check_ins_make_a_round_smaller(digits: Make) -> None:
    found = course(fedavg(digits, "", "crowd.drop-out=0.4"))
    assert len(found) < 40 and fixed_count(found) == 0 and found.commits[-1]


def test_limits_on_versions_and_releases(digits: Make) -> None:
    assert course(fedavg(digits, "", "stop.max-versions=3")).commits.sum() == 3
    found = course(fedavg(digits, "", "stop.max-releases=1"))
    assert np.bincount(found.device).max() == 1 and found.commits.sum() == 5


def test_more_devices_than_there_are_cannot_be_invited(digits: Make) -> None:
    with pytest.raises(BadInput, match="4 devices cannot be invited: 3 hold rows"):
        course(fedavg(digits, "", "crowd.devices=3"))


@pytest.mark.parametrize("change", ["crowd.delays={ request = 1.0 }", "crowd.joining=0.5", "crowd.leaving=0.5"])
def test_what_changes_nothing_is_refused(digits: Make, change: str) -> None:
    with pytest.raises(BadInput, match="invites devices to rounds"):
        fedavg(digits, "", change)


def test_chunks_end_at_commits_and_the_unfinished_window_is_left_out(digits: Make) -> None:
    task = digits("algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 5, server-batch = 7 }")
    found = course(task)
    assert len(found) % 7 == 0 and fixed_count(found) == 7
    chunks = cut_chunks([found, found], 5)
    assert chunks.per_commit == 7 and not (chunks.ends % 7).any() and chunks.ends[-1, 0] == len(found)
    assert chunks.events(0)[0].commits == ()


def test_too_few_check_ins_for_a_commit(digits: Make) -> None:
    task = digits("algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 5, server-batch = 100000 }")
    with pytest.raises(BadInput, match="too few for a single commit"):
        course(task)
