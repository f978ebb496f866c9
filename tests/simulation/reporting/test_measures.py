"""What is measured only where it is asked for: the loss along the curve, and errors of devices at the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crowdml.core import NUMPY, trees
from crowdml.simulation import simulate
from crowdml.simulation.prepare import prepare
from crowdml.simulation.reporting.device_errors import spread_of
from crowdml.simulation.run import make_timelines
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.task import Task
from tests.support.simulated import same_bits

Make = Callable[..., Task]
BOTH = "crowd.measure=['loss', 'devices']"


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_measuring_more_changes_no_bit(digits: Make, engine: str) -> None:
    task, more = (digits("crowd.passes=1", *changes) for changes in ((), (BOTH,)))
    plain, measured = (simulate(each, trials=2, engine=engine) for each in (task, more))
    assert same_bits(plain, measured)
    assert np.array_equal(plain.measured["test_error"], measured.measured["test_error"])
    assert "test_loss" not in plain.measured and plain.device_errors is None
    assert measured.measured["test_loss"].shape == (5, 2)


def test_loss_and_errors_are_those_of_the_model(digits: Make) -> None:
    task = digits(BOTH, "data.validation=100", "crowd.partition={ kind = 'shards' }")
    result = simulate(task, trials=2, engine="numpy")
    dataset, model = prepare(task)[1], task.model_for(NUMPY)
    timelines = make_timelines(task, dataset, 2, 0)
    assert result.device_errors is not None and set(result.measured) >= {"test_loss", "validation_loss"}
    for trial in range(2):
        learnt = trees.map(lambda leaf, at=trial: leaf[at], result.parameters)
        outputs = np.asarray(model.outputs(learnt, dataset.test_rows), np.float64)
        chosen = outputs[dataset.test_targets, np.arange(outputs.shape[1])]
        loss = np.mean(np.log(np.exp(outputs).sum(axis=0)) - chosen)
        assert result.measured["test_loss"][-1, trial] == pytest.approx(loss, rel=1e-4)
        for device in range(20):
            mine = timelines[trial].owner == device
            wrong = model.predict(learnt, dataset.train_rows[mine]) != dataset.train_targets[mine]
            assert result.device_errors[trial, device] == pytest.approx(np.mean(wrong))
    frame = result.to_pandas()
    assert frame["device_error_worst_tenth"].notna().sum() == 2
    worst = [np.sort(errors)[-2:].mean() for errors in result.device_errors]
    assert frame["device_error_worst_tenth"].dropna().tolist() == pytest.approx(worst)
    assert result.to_json()["devices"]["worst_tenth"]["mean"] == pytest.approx(np.mean(worst), abs=1e-6)


def test_all_ways_to_run_measure_them(digits: Make) -> None:
    task = digits(BOTH, "crowd.passes=1", "crowd.curve=1")
    compiled, stepwise = simulate(task), simulate_stepwise(task)
    assert stepwise.measured["test_loss"] == pytest.approx(compiled.measured["test_loss"], rel=1e-3)
    assert stepwise.device_errors == pytest.approx(compiled.device_errors, abs=0.03)
    pooled = simulate(digits(BOTH, "algorithm={ kind = 'central-batch' }"))
    assert pooled.measured["test_loss"].shape == (1, 1) and pooled.device_errors is None


def test_a_device_with_its_own_model_is_measured_by_it(digits: Make) -> None:
    task = digits(BOTH, "algorithm={ kind = 'decentral' }", "crowd.partition={ kind = 'shards' }", "crowd.passes=1")
    result = simulate(task, engine="numpy")
    assert result.device_errors is not None
    # Each has two labels or so: its own model knows them, and nobody's knows the others.
    assert result.device_errors.mean() < 0.3 < result.test_error


def test_held_out_rows_come_first_and_nobody_without_rows_counts(digits: Make) -> None:
    task = digits(BOTH, "crowd.personal={ held-out = 0.5 }", "algorithm.batch=5")
    result = simulate(task, engine="numpy")
    timeline, dataset = make_timelines(task, prepare(task)[1], 1, 0)[0], prepare(task)[1]
    learnt = trees.map(lambda leaf: leaf[0], result.parameters)
    mine = timeline.held == 3
    wrong = task.model_for(NUMPY).predict(learnt, dataset.train_rows[mine]) != dataset.train_targets[mine]
    assert result.device_errors is not None and result.device_errors[0, 3] == pytest.approx(np.mean(wrong))
    summary = spread_of(np.array([[0.5, np.nan, 0.1]]))
    assert summary["mean"].tolist() == pytest.approx([0.3]) and summary["worst_tenth"].tolist() == [0.5]
