"""Studies of Crowd-ML library 2016: the cells are those of the paper, and verdicts can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crowdml.simulation import Result
from crowdml.studies import STUDIES
from crowdml.studies.crowdml_2016 import devices, local_steps
from crowdml.studies.crowdml_2016 import noise_and_rates as noise
from crowdml.studies.crowdml_2016.noise_and_rates import CANDIDATES, Ends
from crowdml.studies.drawing import save
from crowdml.studies.run import _side_by_side, search
from crowdml.studies.study import Unstated
from crowdml.task import Task, load

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
    task = load(noise.FIG2.task)
    return {
        noise.label(law, reading, deviation, rate): result(task, [0.1, of(deviation, rate)])
        for law in noise.LAWS
        for reading in noise.READINGS
        for deviation in noise.DEVIATIONS
        for rate in noise.RATES
    }


@pytest.mark.parametrize("name", STUDIES_2016)
def test_every_curve_is_a_valid_task(name: str) -> None:
    groups = _side_by_side(STUDIES[name], STUDIES[name].curves, STUDIES[name].settled)
    assert sum(len(labels) for labels, _ in groups) == len(STUDIES[name].curves)


def test_figure_2_has_thirty_cells_in_each_reading_and_two_compilations() -> None:
    assert len(noise.FIG2.curves) == 2 * 30
    assert [len(tasks) for _, tasks in _side_by_side(noise.FIG2, noise.FIG2.curves, noise.FIG2.settled)] == [30, 30]
    task = load(noise.FIG2.task)
    algorithm = task.algorithm
    assert (algorithm.local_steps, algorithm.local_batch, algorithm.server_batch) == (10, 100, 1)
    assert task.stop.max_versions == 1000


def test_figure_2_holds_when_the_best_rate_moves() -> None:
    def moving(deviation: float, rate: float) -> float:
        wanted = {1e-3: 10.0, 10.0: 0.1}.get(deviation, 1.0)
        return (0.96 if deviation < 1 else 0.65) - 0.1 * (rate != wanted)

    rows = noise.FIG2.compare(cells(moving))
    assert all(row.verdict in ("holds", "shown") for row in rows)
    assert sum(row.verdict == "holds" for row in rows) == 7


def test_figure_2_differs_when_it_does_not() -> None:
    rows = noise.FIG2.compare(cells(lambda deviation, rate: 0.5 + rate / 100))
    assert [row.verdict for row in rows if row.setting.endswith("best c0 at s.d. 10")] == ["differs", "differs"]
    assert [row.verdict for row in rows if row.paper == 0.95] == ["differs"]


def test_what_the_paper_leaves_open_is_searched_in_valid_tasks_and_decided_by_the_criterion() -> None:
    unstated = noise.UNSTATED
    assert unstated.used in unstated.candidates and len(unstated.candidates) == 36
    assert set(unstated.curves) <= {curve.label for curve in noise.FIG2.curves}
    structures = {
        load(noise.FIG2.task, [*changes, "data.validation=10000"]).structure() for changes in CANDIDATES.values()
    }
    assert len(structures) == 36, "two names for one setting"


def test_the_criterion_counts_wrong_rates_then_distances() -> None:
    right = Ends(low_rate=10.0, low=0.97, high_rate=0.1, high=0.6)
    assert right.distance == pytest.approx(0.05)
    assert Ends(low_rate=10.0, low=0.9, high_rate=0.1, high=0.7).distance == pytest.approx(0.1)
    assert Ends(low_rate=1.0, low=0.97, high_rate=10.0, high=0.65).distance == pytest.approx(2.0)


def test_a_setting_is_scored_by_medians_on_rows_held_back() -> None:
    """One dead net in three trials does not decide, and test rows do not count."""
    task = load(noise.FIG2.task)

    def cell(errors: list[float]) -> Result:
        found = result(task, [0.0])
        return replace(found, measured=found.measured | {"validation_error": np.array([errors])})

    errors = {(1e-3, 10.0): [0.03, 0.04, 0.9], (10.0, 0.1): [0.9, 0.38, 0.36]}
    cells = {
        noise.label("Gaussian", noise.USED, deviation, rate): cell(errors.get((deviation, rate), [0.8, 0.8, 0.8]))
        for deviation in (1e-3, 10.0)
        for rate in noise.RATES
    }
    value, remark = noise.UNSTATED.score(cells)
    assert value == pytest.approx(0.03) and remark == "0.960 at c0 = 10 → 0.620 at c0 = 0.1"


def test_all_settings_are_tried_once_and_the_best_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is best by several trials wins, among those that were good in one."""
    values = {"a": (0.3, 0.1), "b": (0.2, 0.5), "c": (0.4, 0.0), "d": (0.5, 0.0)}
    asked: list[tuple[str, int]] = []

    def simulate(names: list[str], *, trials: int, seed: int, on: object) -> list[Any]:
        asked.append((names[0], trials))
        return [SimpleNamespace(value=values[names[0]][trials > 1], validation_error=0.1)]

    monkeypatch.setattr("crowdml.studies.run.simulate_cells", simulate)
    monkeypatch.setattr(
        "crowdml.studies.run._side_by_side", lambda study, curves, changes, validation: [(["x"], list(changes))]
    )
    unstated = Unstated(
        candidates={name: (name,) for name in values},
        used="b",
        curves=(),
        criterion="",
        score=lambda results: (results["x"].value, ""),  # type: ignore[attr-defined]
        finalists=2,
    )
    first, last = search(replace(noise.FIG2, unstated=unstated, curves=()), trials=3)
    assert asked == [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("b", 3), ("a", 3)]
    assert (first.best, last.best, last.chosen) == ("b", "a", "b")


def devices_rows(crowd: float, alone: float, only: float) -> dict[str, str]:
    task = load(devices.DEVICES.task)
    levels = {devices.CROWD: crowd, devices.ALONE: alone, devices.SAME_RATE: alone - 0.01, devices.ONLY: only}
    found = devices.DEVICES.compare({name: result(task, [level]) for name, level in levels.items()})
    return {row.setting: row.verdict for row in found}


def test_the_crowd_must_be_clearly_ahead_and_a_single_device_near_the_papers() -> None:
    good = devices_rows(0.9, 0.85, 0.75)
    assert good["80 devices together, after 100 versions"] == "beyond"
    assert devices_rows(0.875, 0.76, 0.75)["80 devices together, after 100 versions"] == "holds"
    assert good["each device alone, after 25 contacts"] == "trend"
    assert good["one device in the crowd's place, after 25 contacts"] == "holds"
    assert good["together minus each device alone"] == "holds"
    bad = devices_rows(0.85, 0.835, 0.6)
    assert set(bad.values()) == {"differs", "holds"}
    assert [setting for setting, verdict in bad.items() if verdict == "holds"] == [
        "together minus one device in the crowd's place"
    ]


def test_rates_of_the_devices_were_among_those_searched() -> None:
    assert set(devices.CHOSEN.values()) <= set(devices.RATES)
    assert max(devices.CHOSEN.values()) < max(devices.RATES), "at the edge of the search"


def test_a_figure_is_drawn(tmp_path: Path) -> None:
    assert noise.FIG2.draw is not None
    save(noise.FIG2.draw(cells(lambda deviation, rate: 0.5)), "title", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_check_ins_needed_are_read_off_the_curve() -> None:
    found = result(load(noise.FIG2.task), [0.5, 0.91, 0.95, 0.96], updates=400)
    assert local_steps.needed(found) == 200.0
    assert local_steps.needed(result(load(noise.FIG2.task), [0.5])) == float("inf")
