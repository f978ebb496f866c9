"""Running a study, and searching its hyper-parameters."""

from __future__ import annotations

import functools
import itertools
import resource
from collections.abc import Collection, Mapping, Sequence

from crowdml.core import record
from crowdml.simulation import Result, checkpoint, simulate_cells
from crowdml.simulation.workers import pool
from crowdml.studies.comparisons import constant_rows
from crowdml.studies.study import Curve, Report, Study, Unstated, Watcher
from crowdml.task import Task, load

VALIDATION_SHARE = 6
"""The search holds back one training row in so many, and never looks at the test rows."""


def reproduce(
    study_id: str,
    study: Study,
    trials: int | None,
    seed: int = 0,
    watch: Watcher | None = None,
    resume: bool = False,
) -> Report:
    """Run all curves of a study and compare with the paper.

    Args:
        study_id: Its id.
        study: What to run.
        trials: Repetitions; None: as in the paper.
        seed: First seed.
        watch: Told how far each curve is.
        resume: Go on from where an interrupted run of the same study, trials and seed was; what it had finished is not
            run again.
    """
    begun = _cpu_seconds()
    results: dict[str, Result] = {}
    runs: list[list[Task]] = []
    seconds = {"compile": 0.0, "run": 0.0}
    for labels, tasks in _side_by_side(study, study.curves, study.settled):
        told = functools.partial(watch, labels[0]) if watch else None
        # Kept until all curves are done: whoever is interrupted loses none that was finished.
        found = simulate_cells(tasks, trials=trials or study.trials, seed=seed, watch=told, resume=resume, keep=True)
        runs.append(tasks)
        results |= dict(zip(labels, found, strict=True))
        seconds["compile"] += found[0].compile_seconds
        seconds["run"] += found[0].run_seconds
    for tasks in runs:
        checkpoint.run_path(tasks, trials or study.trials, seed).unlink(missing_ok=True)
    results = {curve.label: results[curve.label] for curve in study.curves}
    notes = dict.fromkeys([*study.notes, *(note for result in results.values() for note in result.notes)])
    rows = (*study.compare(results), *constant_rows(tuple(results.values()), study.measure), *study.missing)
    return Report(
        id=study_id,
        study=study,
        seed=seed,
        trials=trials or study.trials,
        rows=rows,
        results=results,
        notes=tuple(notes),
        seconds={name: round(value, 2) for name, value in seconds.items()},
        cpu_seconds=round(_cpu_seconds() - begun, 1),
    )


def _cpu_seconds() -> float:
    """Return the processor time of this process, of its workers, and of children that have ended."""
    used = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return pool.cpu_seconds() + sum(usage.ru_utime + usage.ru_stime for usage in used)


def _side_by_side(
    study: Study, curves: Sequence[Curve], setting: Sequence[str] = (), validation: bool = False
) -> list[tuple[list[str], list[Task]]]:
    """Put curves together that differ in hyper-parameters only: they share one compilation and run side by side."""
    groups: dict[str, tuple[list[str], list[Task]]] = {}
    for curve in curves:
        task = _task(study, [*setting, *curve.changes, *_changes(curve.chosen)], validation)
        labels, tasks = groups.setdefault(task.structure(), ([], []))
        labels.append(curve.label)
        tasks.append(task)
    return list(groups.values())


@record
class Cell:
    """One thing that was tried: its name, the error or score (less is better), and a remark."""

    name: str
    value: float
    remark: str = ""


@record
class Found:
    """The outcome of one search.

    Attributes:
        label: What was searched for: a curve, or what the paper leaves open.
        measure: What the values are.
        cells: Everything that was tried.
        chosen: Name of the cell in use.
    """

    label: str
    measure: str
    cells: tuple[Cell, ...]
    chosen: str

    @property
    def best(self) -> str:
        """Name of the best cell."""
        return min(self.cells, key=lambda cell: cell.value).name


def search(study: Study, trials: int, seed: int = 0, watch: Watcher | None = None) -> list[Found]:
    """Try what the paper leaves open and every cell of every curve's grid, on rows held back from training."""
    found = _search_unstated(study, study.unstated, trials, seed, watch) if study.unstated else []
    for curve in (curve for curve in study.curves if curve.grid):
        grid = [dict(zip(curve.grid, values, strict=True)) for values in itertools.product(*curve.grid.values())]
        setting = study.settled
        tasks = [_task(study, [*setting, *curve.changes, *_changes(cell)], validation=True) for cell in grid]
        results = simulate_cells(tasks, trials=trials, seed=seed + 1000)
        cells = tuple(
            Cell(name=_words(cell), value=result.validation_error) for cell, result in zip(grid, results, strict=True)
        )
        if watch:
            watch(curve.label, 1.0, min(cell.value for cell in cells))
        found.append(
            Found(label=curve.label, measure="validation error", cells=cells, chosen=_words(dict(curve.chosen)))
        )
    return found


def _search_unstated(study: Study, unstated: Unstated, trials: int, seed: int, watch: Watcher | None) -> list[Found]:
    """Score every candidate with one trial, and the best of them with all trials."""
    first = _scored(study, unstated, unstated.candidates, 1, seed, watch)
    if trials == 1:
        return [first]
    best = sorted(first.cells, key=lambda cell: cell.value)[: unstated.finalists]
    return [first, _scored(study, unstated, [cell.name for cell in best], trials, seed, watch)]


def _scored(
    study: Study, unstated: Unstated, names: Collection[str], trials: int, seed: int, watch: Watcher | None
) -> Found:
    """Score candidates by what their curves reach on rows held back."""
    curves, cells = [curve for curve in study.curves if curve.label in unstated.curves], []
    for number, name in enumerate(names, start=1):
        results: dict[str, Result] = {}
        for labels, tasks in _side_by_side(study, curves, unstated.candidates[name], validation=True):
            made = simulate_cells(tasks, trials=trials, seed=seed + 1000)
            results |= dict(zip(labels, made, strict=True))
        value, remark = unstated.score(results)
        cells.append(Cell(name=name, value=value, remark=remark))
        if watch:
            watch(name, number / len(names), min(result.validation_error for result in results.values()))
    label = f"what the paper leaves open, {trials} trial{'s' * (trials > 1)} each"
    return Found(label=label, measure=unstated.criterion, cells=tuple(cells), chosen=unstated.used)


def _changes(hyper: Mapping[str, float]) -> list[str]:
    return [f"{key}={value}" for key, value in hyper.items()]


def _words(hyper: Mapping[str, float]) -> str:
    return ", ".join(f"{key} = {value:g}" for key, value in hyper.items())


def _task(study: Study, changes: Sequence[str], validation: bool = False) -> Task:
    task = load(study.task, changes)
    if not validation:
        return task
    from crowdml.data import load as load_dataset

    rows = len(load_dataset(str(task.data.dataset)).train_targets)
    return load(study.task, [*changes, f"data.validation={rows // VALIDATION_SHARE}", "crowd.curve=1"])
