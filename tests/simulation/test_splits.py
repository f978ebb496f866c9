"""Splits of a dataset by trial: every row once, the same split for the same trial of any task, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.algorithms import Task
from crowdml.core import BadInput
from crowdml.simulation.prepare import prepare
from crowdml.simulation.splits import trial_split

EXAMPLE = "examples/digits.toml"


def task(*changes: str) -> Task:
    return Task.load(EXAMPLE, ["data.split={ train = 1000, test = 300 }", *changes])


def test_no_row_is_trained_on_and_tested_on() -> None:
    found = trial_split(task("data.validation=200"), 1797, 0)
    assert found is not None
    parts = [found.train, found.measured["test_error"], found.measured["validation_error"]]
    assert [len(own) for own in parts] == [800, 300, 200]
    together = np.concatenate(parts)
    assert len(np.unique(together)) == 1300 and together.min() >= 0 and together.max() < 1797


def test_rows_held_back_come_from_the_training_rows_alone() -> None:
    plain, held = trial_split(task(), 1797, 3), trial_split(task("data.validation=200"), 1797, 3)
    assert plain is not None and held is not None
    assert np.array_equal(plain.measured["test_error"], held.measured["test_error"])
    assert np.array_equal(plain.train, np.concatenate([held.train, held.measured["validation_error"]]))


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
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (1000, 300)


def test_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        prepare(Task.load(EXAMPLE, ["data.split={ train = 1700, test = 300 }"]))
    assert caught.value.where == "data.split"
