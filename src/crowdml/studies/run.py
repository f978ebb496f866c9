"""Running a study, and searching its hyper-parameters."""

from __future__ import annotations

import functools
import itertools

from crowdml.algorithms import Task, load
from crowdml.core import record
from crowdml.simulation import Result, simulate_cells
from crowdml.studies.contract import Curve, Report, Study, Watcher

VALIDATION_SHARE = 6
"""The search holds back one training row in so many, and never looks at the test rows."""


def reproduce(study_id: str, study: Study, trials: int | None, seed: int = 0, watch: Watcher | None = None) -> Report:
    """Run all curves of a study and compare with the paper."""
    results: dict[str, Result] = {}
    seconds = {"compile": 0.0, "run": 0.0}
    for labels, tasks in _side_by_side(study):
        told = functools.partial(watch, labels[0]) if watch else None
        found = simulate_cells(tasks, trials=trials or study.trials, seed=seed, watch=told)
        results |= dict(zip(labels, found, strict=True))
        seconds["compile"] += found[0].compile_seconds
        seconds["run"] += found[0].run_seconds
    results = {curve.label: results[curve.label] for curve in study.curves}
    notes = dict.fromkeys([*study.notes, *(note for result in results.values() for note in result.notes)])
    return Report(
        id=study_id,
        title=study.title,
        rows=study.compare(results),
        results=results,
        measure=study.measure,
        notes=tuple(notes),
        seconds={name: round(value, 2) for name, value in seconds.items()},
        draw=study.draw,
    )


def _side_by_side(study: Study) -> list[tuple[list[str], list[Task]]]:
    """Put curves together that differ in hyper-parameters only: they share one compilation and run side by side."""
    groups: dict[str, tuple[list[str], list[Task]]] = {}
    for curve in study.curves:
        task = _task(study, curve, dict(curve.chosen))
        labels, tasks = groups.setdefault(task.structure(), ([], []))
        labels.append(curve.label)
        tasks.append(task)
    return list(groups.values())


@record
class Found:
    """The outcome of a search for one curve: every cell, and the best."""

    label: str
    cells: tuple[tuple[dict[str, float], float], ...]
    best: dict[str, float]
    chosen: dict[str, float]


def search(study: Study, trials: int, seed: int = 0, watch: Watcher | None = None) -> list[Found]:
    """Try every cell of every curve's grid on rows held back from training, and return the best of each curve."""
    found = []
    for curve in study.curves:
        if not curve.grid:
            continue
        cells = [dict(zip(curve.grid, values, strict=True)) for values in itertools.product(*curve.grid.values())]
        tasks = [_task(study, curve, cell, validation=True) for cell in cells]
        results = simulate_cells(tasks, trials=trials, seed=seed + 1000)
        errors = [result.validation_error for result in results]
        if watch:
            watch(curve.label, 1.0, min(errors))
        pairs = tuple(zip(cells, errors, strict=True))
        best = min(pairs, key=lambda pair: pair[1])[0]
        found.append(Found(label=curve.label, cells=pairs, best=best, chosen=dict(curve.chosen)))
    return found


def _task(study: Study, curve: Curve, hyper: dict[str, float], validation: bool = False) -> Task:
    changes = [*curve.changes, *(f"{key}={value}" for key, value in hyper.items())]
    task = load(study.task, changes)
    if not validation:
        return task
    from crowdml.data import load as load_dataset

    rows = len(load_dataset(str(task.data.dataset)).train_labels)
    return load(study.task, [*changes, f"data.validation={rows // VALIDATION_SHARE}", "crowd.curve=1"])
