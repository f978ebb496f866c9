"""The crowd of a trial: splits (every row once, the same for the same trial of any task), copies, and rows held out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.simulation import simulate
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import trial_split
from crowdml.task import Task
from tests.support.simulated import course

EXAMPLE = "examples/digits.toml"


def task(*changes: str) -> Task:
    return Task.load(EXAMPLE, ["data.split={ train = 1000, test = 300 }", *changes])


def test_no_row_is_trained_on_and_tested_on() -> None:
    found = trial_split(task("data.validation=200"), 1797, 0)
    assert found is not None
    parts = [found.train, found.measured["test"], found.measured["validation"]]
    assert [len(part) for part in parts] == [800, 300, 200]
    together = np.concatenate(parts)
    assert len(np.unique(together)) == 1300 and together.min() >= 0 and together.max() < 1797


def test_rows_held_back_come_from_the_training_rows_alone() -> None:
    plain, held = trial_split(task(), 1797, 3), trial_split(task("data.validation=200"), 1797, 3)
    assert plain is not None and held is not None
    assert np.array_equal(plain.measured["test"], held.measured["test"])
    assert np.array_equal(plain.train, np.concatenate([held.train, held.measured["validation"]]))


def test_trials_differ_and_tasks_do_not() -> None:
    first, second = trial_split(task(), 1797, 0), trial_split(task(), 1797, 1)
    other = trial_split(task("model.regularisation=0.1"), 1797, 0)
    assert first is not None and second is not None and other is not None
    assert not np.array_equal(first.train, second.train)
    assert np.array_equal(first.train, other.train)


def test_with_a_seed_all_trials_have_one_split() -> None:
    fixed = Task.load(EXAMPLE, ["data.split={ train = 1000, test = 300, seed = 0 }"])
    assert trial_split(fixed, 1797, 0) is None
    dataset = prepare(fixed)[1]
    assert (len(dataset.train_targets), len(dataset.test_targets)) == (1000, 300)


def test_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        prepare(Task.load(EXAMPLE, ["data.split={ train = 1700, test = 300 }"]))
    assert caught.value.where == "data.split"


def test_held_out_rows_are_nobodys_training_rows(digits: Callable[..., Task]) -> None:
    found = digits(
        "algorithm={ kind = 'fedavg', per-round = 6, local-batch = 20 }",
        "crowd.devices=8",
        "crowd.rows=800",
        "crowd.personal={ steps = 5, held-out = 0.25 }",
    )
    timeline = course(found)
    held, owned = np.flatnonzero(timeline.held >= 0), np.flatnonzero(timeline.owner >= 0)
    assert len(held) == 200 and len(owned) == 600
    used = np.unique(np.concatenate([line[:count] for line, count in zip(timeline.rows, timeline.counts, strict=True)]))
    np.testing.assert_array_equal(used, owned)
    assert not set(held) & set(owned)
    for device, line, count in zip(timeline.device, timeline.rows, timeline.counts, strict=True):
        assert (timeline.owner[line[:count]] == device).all()


@pytest.mark.parametrize(("changes", "count"), [(["crowd.devices=3000"], 3000), (["crowd.rows=2900"], 2900)])
def test_more_rows_than_there_are_are_copies(digits: Callable[..., Task], changes: list[str], count: int) -> None:
    found = digits("algorithm.batch=1", *changes)
    timeline = course(found)
    assert len(timeline) == 2 * count and len(np.unique(timeline.device)) == found.crowd.devices
    times = np.bincount(timeline.rows.reshape(-1), minlength=1400) // 2
    assert set(times.tolist()) == {2, 3} and (times == 3).sum() == count - 2800, "as evenly as possible"
    # A copy is a sample of its own: in one pass each device uses each of its rows once.
    sizes = np.bincount(timeline.device)
    assert sizes.max() - sizes.min() <= 2


def test_copies_are_said_and_counted(digits: Callable[..., Task]) -> None:
    result = simulate(digits("algorithm.batch=1", "crowd.devices=3000", "crowd.passes=1"))
    assert result.updates == 3000
    assert "3000 rows are handed out of 1400: every copy counts as a sample of its own" in result.notes


def test_nothing_is_promised_to_samples_on_several_devices(digits: Callable[..., Task]) -> None:
    terms = "privacy={ mode = 'sound', mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-6, max-uses = 1 }"
    once = ("algorithm.batch=1", "crowd.passes=1", terms)
    for change, where in (("crowd.devices=3000", "crowd.devices"), ("crowd.rows=1401", "crowd.rows")):
        with pytest.raises(BadInput, match="some samples would be on several devices") as caught:
            prepare(digits(*once, change))
        assert caught.value.where is not None and caught.value.where.endswith(where)
    prepare(digits(*once, "crowd.rows=1400"))
    device = terms.replace("max-uses = 1", "unit = 'device'")
    prepare(digits("algorithm.batch=1", "crowd.passes=1", device, "stop.max-releases=1", "crowd.devices=3000"))
