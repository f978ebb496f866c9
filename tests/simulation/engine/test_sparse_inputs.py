"""Rows split by columns: the same models as with whole rows, and only where that saves work."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np
import pytest

from crowdml.simulation import lanes, simulate
from crowdml.simulation.engine import data_tables
from crowdml.simulation.engine.data_tables import make_tables
from crowdml.simulation.engine.sparse_inputs import DenseInputs, Inputs, SparseInputs, SplitWeights, inputs_of
from crowdml.simulation.prepare import prepare
from crowdml.task import Task

Make = Callable[..., Task]
NET = ("model={ kind = 'mlp', layers = [12] }", "crowd.passes=1")
FEDAVG = "algorithm={ kind = 'fedavg', per-round = 3, local-batch = 8, rate = { kind = 'constant', c = 0.3 } }"
STEPS = "algorithm={ kind = 'local-sgd', local-steps = 3, local-batch = 5, rate = { kind = 'inverse', c = 1.0 } }"
NO_DECAY = np.zeros(1, np.float32)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split whatever can be split, however little it saves."""
    monkeypatch.setattr(data_tables, "LEAST", -100.0)
    monkeypatch.setattr(data_tables, "ENTRY", 30)


def split(task: Task, rows: np.ndarray[tuple[int, int], np.dtype[np.float32]] | None = None) -> Inputs:
    dataset = prepare(task)[1]
    if rows is not None:
        some = dataset.train_targets[: len(rows)]
        dataset = dataclasses.replace(dataset, train_rows=rows, train_targets=some, test_rows=rows, test_targets=some)
    return inputs_of(make_tables(task, dataset, NO_DECAY), task)


def wide(digits: Make) -> Task:
    return digits("model={ kind = 'mlp', layers = [200] }", FEDAVG, "algorithm.local-batch=32")


@pytest.mark.parametrize(
    ("changes", "trials"),
    [
        ((*NET, FEDAVG, "crowd.partition={ kind = 'unbalanced', sigma = 0.7 }"), 1),
        ((*NET, STEPS, "algorithm.server-batch=2", "algorithm.stale=accept", "crowd.delays={ check-in = 300.0 }"), 3),
        ((FEDAVG, "crowd.passes=1", "privacy={ mode = 'paper', noise-scale = 0.1 }"), 1),
    ],
    ids=["uneven devices", "told counters, delays, several trials", "one layer, noise"],
)
def test_models_are_those_of_whole_rows(
    digits: Make, monkeypatch: pytest.MonkeyPatch, eager: None, changes: tuple[str, ...], trials: int
) -> None:
    """Tolerance 1e-5 relative, as for all compiled arithmetic: it is ordered differently."""
    task = digits(*changes)
    found = split(task)
    assert isinstance(found, SparseInputs)
    assert len(found.common)
    assert len(found.rare) > 10
    ours = simulate(task, trials=trials)
    monkeypatch.setattr(lanes, "make_tables", functools.partial(make_tables, sparse=False))
    plain = simulate(task, trials=trials)
    for split_leaf, whole in zip(jax.tree.leaves(ours.parameters), jax.tree.leaves(plain.parameters), strict=True):
        np.testing.assert_allclose(split_leaf, whole, rtol=1e-5, atol=1e-5 * np.abs(whole).max())
    assert np.abs(plain.parameters[0]["w"]).max() > 0.05


def test_every_number_is_kept(digits: Make, eager: None) -> None:
    task = digits(*NET, FEDAVG)
    rows = prepare(task)[1].train_rows
    found = split(task)
    assert isinstance(found, SparseInputs)
    whole = np.zeros_like(rows)
    whole[:, found.common] = found.common_rows[: len(rows)]
    of_row = np.repeat(np.arange(len(rows)), np.diff(found.ends[: len(rows) + 1]))
    whole[of_row, found.rare[found.columns[: len(of_row)]]] = found.values[: len(of_row)]
    np.testing.assert_array_equal(whole, rows)


def test_dense_rows_stay_whole(digits: Make) -> None:
    """Even for a wide net."""
    dense = np.random.default_rng(0).normal(size=(400, 784)).astype(np.float32)
    assert isinstance(split(wide(digits), dense), DenseInputs)


def test_nothing_is_split_that_saves_little(digits: Make) -> None:
    """Sparse rows, but a small net: what one number costs exceeds a whole column. A wide net gains."""
    rows = np.random.default_rng(0).normal(size=(400, 784)).astype(np.float32)
    rows[:, 300:][np.random.default_rng(1).random((400, 484)) > 0.01] = 0
    found = split(wide(digits), rows)
    assert isinstance(found, SparseInputs)
    assert len(found.common) == 300
    assert isinstance(split(digits(FEDAVG), rows[:, :64]), DenseInputs)
    assert isinstance(split(digits(*NET, FEDAVG)), DenseInputs)


@pytest.mark.parametrize(
    "changes",
    [
        ("algorithm.rate={ kind = 'adagrad', c = 0.1, floor = 0.001, counter = 'local-steps' }",),
        ("algorithm={ kind = 'crowd-sgd' }",),
        ("algorithm={ kind = 'local-sgd', local-steps = 0, rate = { kind = 'constant', c = 1.0 } }",),
    ],
    ids=["a rate with memory", "no local steps", "gradients"],
)
def test_what_moves_by_itself_stays_whole(digits: Make, eager: None, changes: tuple[str, ...]) -> None:
    assert isinstance(split(digits(*NET, FEDAVG, *changes)), DenseInputs)


def test_weights_that_decay_stay_whole(digits: Make, eager: None) -> None:
    task = digits(*NET, FEDAVG)
    decay = np.array([0.0, 0.01], np.float32)
    assert isinstance(inputs_of(make_tables(task, prepare(task)[1], decay), task), DenseInputs)
    with pytest.raises(ValueError, match="decay"):
        SplitWeights(np.ones((1, 1)), np.ones((1, 1))) * 0.1
