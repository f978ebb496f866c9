"""Results: their layout as JSON, their figures, and errors on rows held back at every point of the curve."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crowdml.cli.simulate import print_result
from crowdml.core import NUMPY
from crowdml.simulation import simulate
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.task import Task

Make = Callable[..., Task]
HELD_BACK = "data.validation=300"


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
        learnt = tuple({name: leaf[trial] for name, leaf in layer.items()} for layer in result.parameters)
        wrong = model.predict(learnt, dataset.validation_rows) != dataset.validation_targets
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


def test_json_has_the_promised_layout(digits: Make) -> None:
    result = simulate(digits("privacy.mode=paper", "privacy.epsilon=10.0", "privacy.statistics-epsilon=1.0"), trials=3)
    content = json.loads(json.dumps(result.to_json()))
    keys = {"task", "seed", "trials", "final", "curve", "estimated_labels", "privacy", "seconds", "updates", "notes"}
    assert set(content) == keys | {"warnings", "engine", "processes", "course"} and content["warnings"] == []
    assert set(content["final"]["test_error"]) == {"mean", "std"}
    assert [point["samples"] for point in content["curve"]] == sorted(point["samples"] for point in content["curve"])
    assert content["curve"][-1]["samples"] == 2800
    # Two passes: each release costs ε_g = 9, ε_e/2 = 0.25 and ε_y = 0.05; a device is in 14 releases of 10 rows.
    assert content["privacy"]["paper_claim"] == {"epsilon": 10.0, "delta": 0.0}
    assert content["privacy"]["sample"] == {"epsilon": 18.6, "delta": 0.0, "by": "Σε"}
    assert content["privacy"]["device"] == {"epsilon": 1302.0, "delta": 0.0, "by": "Σε"}
    frame = result.to_pandas()
    assert len(frame) == 15 and frame["test_error"].between(0, 1).all()
