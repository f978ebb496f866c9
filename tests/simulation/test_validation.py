"""Rows held back from training: measured at every point of the curve, and learnt from by nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crowdml.algorithms import Task
from crowdml.cli.output import print_result
from crowdml.core import NUMPY, BadInput
from crowdml.data import load as load_dataset
from crowdml.simulation import simulate
from crowdml.simulation.debug import simulate_stepwise
from crowdml.simulation.prepare import measured_on, prepare

Make = Callable[..., Task]
HELD_BACK = "data.validation=300"


def test_the_rows_come_out_of_training_and_the_test_rows_stay(digits: Make) -> None:
    whole, _ = load_dataset("digits"), prepare(digits(HELD_BACK))
    _, split = prepare(digits(HELD_BACK, "data.transform=[]"))
    assert split.validation_rows is not None and split.validation_labels is not None
    np.testing.assert_array_equal(split.test_rows, whole.test_rows)
    together = np.concatenate([split.train_rows, split.validation_rows])
    assert len(split.validation_rows) == 300 and len(together) == len(whole.train_rows)
    np.testing.assert_array_equal(
        np.sort(together @ np.arange(1, 65)), np.sort(whole.train_rows.astype(np.float32) @ np.arange(1, 65))
    )
    assert list(measured_on(split)) == ["test_error", "validation_error"]
    assert list(measured_on(prepare(digits())[1])) == ["test_error"]


def test_transforms_are_fitted_without_them_and_applied_to_them(digits: Make) -> None:
    changes = (HELD_BACK, "data.transform=[{ kind = 'standardise' }]", "privacy.mode=none")
    _, ready = prepare(digits(*changes))
    assert ready.validation_rows is not None
    np.testing.assert_allclose(ready.train_rows.mean(axis=0), 0.0, atol=1e-4)
    assert np.abs(ready.validation_rows.mean(axis=0)).max() > 0.02
    assert ready.validation_rows.shape == (300, 64) and ready.validation_rows.dtype == np.float32


def test_every_point_of_the_curve_has_both_errors(digits: Make, capsys: pytest.CaptureFixture[str]) -> None:
    task = digits(HELD_BACK)
    seen: list[float] = []
    result = simulate(task, trials=2, watch=lambda share, error: seen.append(error))
    found = result.measured["validation_error"]
    assert found.shape == result.measured["test_error"].shape
    assert not np.array_equal(found, result.measured["test_error"])
    assert seen == pytest.approx(found.mean(axis=1).tolist())  # progress does not look at the test rows
    # Measured anew from the parameters, on the rows themselves.
    _, dataset = prepare(task)
    model = task.model_for(NUMPY)
    for trial in range(2):
        own = tuple({name: leaf[trial] for name, leaf in layer.items()} for layer in result.parameters)
        wrong = model.predict(own, dataset.validation_rows) != dataset.validation_labels
        assert found[-1, trial] == pytest.approx(np.mean(wrong), abs=1e-6)
    content = result.to_json()
    assert all("validation_error" in point for point in content["curve"]) and "validation_error" in content["final"]
    assert content["final"]["validation_error"]["mean"] == pytest.approx(result.validation_error, abs=1e-6)
    assert any("300 rows are held back" in note for note in result.notes)
    print_result(result)
    assert "validation accuracy" in capsys.readouterr().out


def test_all_ways_to_run_measure_them(digits: Make) -> None:
    task = digits(HELD_BACK, "crowd.passes=1")
    assert simulate_stepwise(task).validation_error == pytest.approx(simulate(task).validation_error, abs=0.01)
    pooled = simulate(digits(HELD_BACK, "algorithm={ kind = 'central-batch' }"))
    alone = simulate(digits(HELD_BACK, "algorithm={ kind = 'decentral' }", "privacy={ mode = 'none' }"))
    for result in (pooled, alone):
        assert 0.0 < result.validation_error < 0.7 and "validation_error" in result.to_json()["final"]


def test_the_figure_shows_both(digits: Make, tmp_path: Path) -> None:
    simulate(digits(HELD_BACK)).plot(tmp_path / "both.svg")
    simulate(digits()).plot(tmp_path / "one.svg")
    assert "rows held back" in (tmp_path / "both.svg").read_text()
    assert "rows held back" not in (tmp_path / "one.svg").read_text()


def test_some_rows_must_be_left(digits: Make) -> None:
    with pytest.raises(BadInput, match="leave none to train on"):
        prepare(digits("data.validation=1400"))
