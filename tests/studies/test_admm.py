"""Studies of ADMM: every curve is a valid task, and verdicts can fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crowdml.simulation import Result
from crowdml.studies import STUDIES
from crowdml.studies.admm import paper_figures, total, waiting
from crowdml.studies.admm.common import CENTRALISED, SECURE, gap
from crowdml.studies.comparisons import standard_error
from crowdml.studies.run import _side_by_side
from crowdml.task import Task, load
from crowdml.task.task_checks import check

TASK = paper_figures.FIG3.task
NAMES = [name for name in STUDIES if name.startswith("admm/")]


def result(task: Task, accuracy: float, times: list[float] | None = None) -> Result:
    """Two trials whose accuracies differ by 0.01, the second half of the curve better than the first by 0.1."""
    end = np.array([accuracy - 0.005, accuracy + 0.005])
    return Result(
        task=task,
        seed=0,
        trials=2,
        samples=np.array([1.0, 2.0]),
        measured={"test_error": np.stack([1.1 - end, 1 - end])},
        parameters=(),
        privacy={},
        updates=2,
        compile_seconds=0.0,
        run_seconds=0.0,
        times=None if times is None else np.array([[0.0, 0.0], times]),
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_curve_is_a_valid_task(name: str) -> None:
    groups = _side_by_side(STUDIES[name], STUDIES[name].curves)
    assert sum(len(labels) for labels, _ in groups) == len(STUDIES[name].curves)
    for _, tasks in groups:
        check(tasks[0])


def test_every_sound_curve_promises_the_total_that_its_name_says() -> None:
    for line in total.LINES:
        for curve, epsilon in zip(line.curves(), line.cells, strict=True):
            task = load(TASK, [*curve.changes, *(f"{key}={value}" for key, value in curve.chosen.items())])
            plan = task.calibrated
            assert plan.terms.limit.delta == 1e-5
            releases = task.most_uses or task.stop.max_releases or 0
            rows = None if plan.terms.unit == "sample" else 30
            added = plan.figure(releases, rows)
            assert added is not None and 0.98 * epsilon < added.epsilon <= epsilon


def test_the_papers_line_stands_where_its_iterations_add_up() -> None:
    for epsilon in total.PAPER_RHO:
        assert paper_figures.composed(total.claim_for(epsilon), 1e-5) == pytest.approx(epsilon, rel=1e-3)
    assert paper_figures.composed(0.1, 1e-5) == pytest.approx(0.410, abs=1e-3)


def test_gaps_are_taken_split_by_split() -> None:
    task = load(TASK)
    results = {CENTRALISED: result(task, 0.85), "admm": result(task, 0.845)}
    row = gap(results, "admm", 0.006)
    assert row.ours == pytest.approx(0.005) and row.std == pytest.approx(0.0, abs=1e-9) and row.verdict == "holds"
    assert gap(results, "admm", 0.004).verdict == "differs"
    assert standard_error(np.array([1.0, 2.0])) == pytest.approx(0.5)


def test_figure_3_has_all_numbers_of_devices_that_the_paper_has() -> None:
    """From 1, which is the centralised fit, to 1000; as many rows for each."""
    tasks = {curve.label: load(TASK, curve.changes) for curve in paper_figures.FIG3.curves}
    assert tasks[CENTRALISED].algorithm.kind == "central-batch"
    for devices in (10, 50, 100, 150, 200, 300, 1000):
        alone = tasks[paper_figures.local_label(devices)]
        assert (alone.algorithm.kind, alone.crowd.devices) == ("local-fit", devices)


def test_verdicts_of_figure_3_can_fail() -> None:
    task = load(TASK)
    good = {curve.label: result(task, 0.85 - 0.01 * at) for at, curve in enumerate(paper_figures.FIG3.curves)}
    good[paper_figures.ADMM] = result(task, 0.846)
    verdicts = [row.verdict for row in paper_figures.FIG3.compare(good)]
    assert "differs" not in verdicts and verdicts.count("holds") == 2
    bad = good | {paper_figures.ADMM: result(task, 0.84), "local, 50 devices": result(task, 0.85)}
    assert [row.verdict for row in paper_figures.FIG3.compare(bad)].count("differs") == 2
    low = good | {CENTRALISED: result(task, 0.835)}
    assert [row.verdict for row in paper_figures.FIG3.compare(low)].count("differs") == 1, "local, 10 devices is above"


def test_time_is_when_every_trial_gets_there() -> None:
    task = load(TASK)
    found = waiting.reached(result(task, 0.85, [3.0, 5.0]), np.array([0.8, 0.8]))
    np.testing.assert_array_equal(found, [3.0, 5.0])
    assert np.isinf(waiting.reached(result(task, 0.85, [3.0, 5.0]), np.array([0.9, 0.8]))[0])


def test_a_slow_barrier_is_found_out() -> None:
    task = load(TASK)
    results = {curve.label: result(task, 0.85, [10.0, 10.0]) for curve in waiting.ASYNC.curves}
    rows = {row.setting: row for row in waiting.ASYNC.compare(results)}
    uneven = rows[f"{waiting.GOES} against {waiting.WAITS}, {waiting.UNEVEN}"]
    assert uneven.ours == pytest.approx(1.0) and uneven.verdict == "differs"
    label = f"{waiting.GOES}, {waiting.UNEVEN}"
    quick = results | {label: replace(results[label], times=np.array([[0.0, 0.0], [2.0, 2.0]]))}
    rows = {row.setting: row for row in waiting.ASYNC.compare(quick)}
    assert rows[f"{waiting.GOES} against {waiting.WAITS}, {waiting.UNEVEN}"].verdict == "holds"


def test_a_sum_of_n_needs_a_root_of_n_times_less_noise_than_local_privacy() -> None:
    """The same ε for each sample: a device alone adds all the noise, one of n under secure aggregation 1/√n of it."""
    line = next(line for line in total.LINES if line.name == "fedsgd, each device by itself")
    alone = load(total.TOTAL.task, [*line.changes, "privacy.epsilon=1.0"]).calibrated.noise
    shared = load(total.TOTAL.task, [*line.changes, SECURE, "privacy.epsilon=1.0"]).calibrated.noise
    assert alone / shared == pytest.approx(100**0.5, rel=0.1), "100 devices; sums of discrete noise cost a little more"
