"""Studies of Crowd-ML library 2016: the cells are those of the paper, and verdicts can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crowdml.algorithms import Task, load
from crowdml.simulation import Result
from crowdml.studies import STUDIES
from crowdml.studies.comparisons import accuracy
from crowdml.studies.crowdml_2016 import noise, trade_off
from crowdml.studies.run import _side_by_side

STUDIES_2016 = [name for name in STUDIES if name.startswith("crowdml-2016/")]


def result(task: Task, accuracies: list[float], updates: int = 1000) -> Result:
    points = np.array([[1 - value, 1 - value] for value in accuracies])
    return Result(
        task=task,
        seed=0,
        trials=2,
        samples=np.linspace(100.0, 100.0 * len(points), len(points)),
        measured={"test_error": points},
        parameters=(),
        privacy={},
        updates=2 * updates,
        compile_seconds=0.0,
        run_seconds=0.0,
    )


def cells(of: Callable[[float, float], float]) -> dict[str, Result]:
    """Results of figure 2 with a final accuracy given by noise and rate."""
    task = load(noise.TASK)
    return {
        noise.label(law, reading, deviation, rate): result(task, [0.1, of(deviation, rate)])
        for law in noise.LAWS
        for reading in noise.READINGS
        for deviation in noise.DEVIATIONS
        for rate in noise.RATES
    }


@pytest.mark.parametrize("name", STUDIES_2016)
def test_every_curve_is_a_valid_task(name: str) -> None:
    groups = _side_by_side(STUDIES[name])
    assert sum(len(labels) for labels, _ in groups) == len(STUDIES[name].curves)


def test_figure_2_has_thirty_cells_in_each_reading_and_two_compilations() -> None:
    assert len(noise.FIG2.curves) == 2 * 30
    assert [len(tasks) for _, tasks in _side_by_side(noise.FIG2)] == [30, 30]
    task = load(noise.TASK)
    own = task.algorithm
    assert (own.local_steps, own.local_batch, own.server_batch, task.stop.max_versions) == (10, 100, 1, 1000)


def test_figure_2_holds_when_the_best_rate_moves() -> None:
    def moving(deviation: float, rate: float) -> float:
        wanted = {1e-3: 10.0, 10.0: 0.1}.get(deviation, 1.0)
        return (0.96 if deviation < 1 else 0.65) - 0.1 * (rate != wanted)

    rows = noise.FIG2.compare(cells(moving))
    assert all(row.verdict in ("holds", "trend") for row in rows)
    assert sum(row.verdict == "holds" for row in rows) == 7


def test_figure_2_differs_when_it_does_not() -> None:
    rows = noise.FIG2.compare(cells(lambda deviation, rate: 0.5 + rate / 100))
    assert [row.verdict for row in rows if row.setting.endswith("best c0 at s.d. 10")] == ["differs", "differs"]
    assert [row.verdict for row in rows if row.paper == 0.95] == ["differs"]


def test_a_figure_is_drawn(tmp_path: Path) -> None:
    assert noise.FIG2.draw is not None
    noise.FIG2.draw(cells(lambda deviation, rate: 0.5), tmp_path / "figure.png", "title")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_check_ins_needed_are_read_off_the_curve() -> None:
    found = result(load(noise.TASK), [0.5, 0.91, 0.95, 0.96], updates=400)
    assert trade_off.needed(found) == 200.0
    assert trade_off.needed(result(load(noise.TASK), [0.5])) == float("inf")


def test_accuracy_above_the_papers_holds_and_far_below_differs() -> None:
    task = load(noise.TASK)
    verdicts = [accuracy("s", result(task, [value]), 0.87, tolerance=0.01).verdict for value in (0.99, 0.861, 0.85)]
    assert verdicts == ["holds", "holds", "differs"]
