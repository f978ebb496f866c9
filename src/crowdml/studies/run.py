"""Running a study, and searching its hyper-parameters."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from crowdml.algorithms.recipe import SlicedRecipe
from crowdml.core import BadInput, record
from crowdml.simulation import Result, checkpoint, simulate_cells
from crowdml.simulation.checkpoint import Spent
from crowdml.simulation.workers import pool
from crowdml.simulation.workers.crew import HERE, Crew
from crowdml.studies.comparisons import constant_rows
from crowdml.studies.study import Curve, Report, Study, Unstated, Watcher
from crowdml.task import Task, load
from crowdml.version import commit

VALIDATION_SHARE = 6
"""The search holds back one training row in so many, and never looks at the test rows."""


def reproduce(
    study_id: str,
    study: Study,
    trials: int | None,
    seed: int = 0,
    watch: Watcher | None = None,
    resume: bool = False,
    curves: Sequence[str] = (),
    crew: Crew = HERE,
    engine: str | None = None,
) -> Report:
    """Run all curves of a study, or some of them, and compare with the paper.

    Args:
        study_id: Its id.
        study: What to run.
        trials: Repetitions; None: as in the paper.
        seed: First seed.
        watch: Told how far each curve is.
        resume: Go on from where an interrupted run of the same study, trials and seed was; what it had finished is not
            run again.
        curves: Labels of those to run, each by itself, so that others can follow on another day or machine. Their
            checkpoints stay. Not given: all are run, side by side where they can be.
        crew: Whose workers run them.
        engine: As in `simulate`.
    """
    begun, number = pool.cpu_seconds_of_all(), trials or study.trials
    results: dict[str, Result] = {}
    runs: list[tuple[Path, Spent]] = []
    apart: dict[str, Spent] = {}
    seconds = {"compile": 0.0, "run": 0.0}
    for labels, tasks in _one_by_one(study, curves) if curves else _side_by_side(study, study.curves, study.settled):
        told = functools.partial(watch, labels[0]) if watch else None
        path = checkpoint.run_path(tasks, number, seed)
        runs.append((path, checkpoint.spent_at(path) if resume else Spent()))
        cpu_begun = pool.cpu_seconds_of_all()
        # Kept until all curves are done: whoever is interrupted loses none that was finished.
        found = simulate_cells(
            tasks, trials=number, seed=seed, watch=told, resume=resume, keep=True, engine=engine, on=crew
        )
        results |= dict(zip(labels, found, strict=True))
        seconds["compile"] += found[0].compile_seconds
        seconds["run"] += found[0].run_seconds
        if curves:
            apart[labels[0]] = _spent(found[0], path, pool.cpu_seconds_of_all() - cpu_begun)
    if not curves:
        for path, _ in runs:
            path.unlink(missing_ok=True)
    results = {curve.label: results[curve.label] for curve in study.curves if curve.label in results}
    before = [spent for _, spent in runs]
    notes = [*study.notes, *(note for result in results.values() for note in result.notes), *_other_code(before)]
    rows = (*study.compare(results), *constant_rows(tuple(results.values()), study.measure), *study.missing)
    return Report(
        id=study_id,
        study=study,
        seed=seed,
        trials=number,
        rows=rows,
        results=results,
        notes=tuple(dict.fromkeys(notes)),
        seconds={name: round(value, 2) for name, value in seconds.items()},
        cpu_seconds=_total([*before, Spent(cpu_seconds=pool.cpu_seconds_of_all() - begun)]),
        apart=apart,
    )


def groups_of(study: Study) -> list[list[Task]]:
    """Return the tasks of all curves, those together that share one compilation."""
    return [tasks for _, tasks in _side_by_side(study, study.curves, study.settled)]


def _spent(result: Result, path: Path, cpu_seconds: float) -> Spent:
    """Return what a curve took, with the parts that were resumed: the checkpoint of its end knows, if there is one."""
    leaves_one = result.engine == "compiled" or isinstance(result.task.recipe, SlicedRecipe)
    kept = leaves_one and path.exists()
    return checkpoint.spent_at(path) if kept else Spent().plus(cpu_seconds)


def _total(parts: Sequence[Spent]) -> float | None:
    """Add processor times; None where one is unknown."""
    known = [part.cpu_seconds for part in parts if part.cpu_seconds is not None]
    return round(sum(known), 1) if len(known) == len(parts) else None


def _other_code(parts: Sequence[Spent]) -> list[str]:
    """Say so where a part was resumed that other code had run."""
    others = {each for part in parts for each in part.commits} - {commit()}
    names = ", ".join(sorted("nobody knows which" if each is None else each[:10] for each in others))
    return [f"parts that were resumed had been run by other code: {names}"] if others else []


def _one_by_one(study: Study, labels: Sequence[str]) -> list[tuple[list[str], list[Task]]]:
    """Return curves, each by itself."""
    by_label = {curve.label: curve for curve in study.curves}
    for label in labels:
        if label not in by_label:
            known = ", ".join(f'"{each}"' for each in by_label)
            raise BadInput(f'no curve is called "{label}"', where="--curve", hint=f"there are: {known}")
    _ = study.by_curve  # refused where comparisons need several
    return [
        group for label in dict.fromkeys(labels) for group in _side_by_side(study, [by_label[label]], study.settled)
    ]


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
        edges: Keys whose best value is the smallest or the largest that was tried: what lies beyond is not known.
    """

    label: str
    measure: str
    cells: tuple[Cell, ...]
    chosen: str
    edges: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """Name of the best cell."""
        return min(self.cells, key=lambda cell: cell.value).name


def search(
    study: Study,
    trials: int,
    seed: int = 0,
    watch: Watcher | None = None,
    crew: Crew = HERE,
    curves: Sequence[str] = (),
) -> list[Found]:
    """Try what the paper leaves open and every cell of every curve's grid, on rows held back from training.

    Args:
        study: Whose settings are searched.
        trials: Repetitions of every cell.
        seed: First seed; those of a search begin 1000 later than those of the study itself.
        watch: Told of every curve that is done.
        crew: Whose workers run them.
        curves: Labels of those to search; not given: all, and what the paper leaves open.
    """
    if curves:
        searched = [_searchable(study, label) for label in curves]
        return [_search_curve(study, curve, trials, seed, watch, crew) for curve in searched]
    found = _search_unstated(study, study.unstated, trials, seed, watch, crew) if study.unstated else []
    return found + [_search_curve(study, each, trials, seed, watch, crew) for each in study.curves if each.grid]


def _searchable(study: Study, label: str) -> Curve:
    """Return the curve of that name; refuse one for which nothing is searched."""
    by_label = {curve.label: curve for curve in study.curves if curve.grid}
    if label not in by_label:
        known = ", ".join(f'"{each}"' for each in by_label) or "none"
        raise BadInput(f'nothing is searched for "{label}"', where="--curve", hint=f"there are: {known}")
    return by_label[label]


def _search_curve(study: Study, curve: Curve, trials: int, seed: int, watch: Watcher | None, crew: Crew) -> Found:
    """Try every cell of one curve's grid, and its others; what they do not name stays as chosen."""
    varied = (dict(zip(curve.grid, values, strict=True)) for values in itertools.product(*curve.grid.values()))
    grid = [{**curve.chosen, **cell} for cell in varied]
    tried = {_words(cell): tuple(_changes(cell)) for cell in grid}
    tried |= {name: (*_changes(curve.chosen), *changes) for name, changes in curve.others.items()}
    tasks = [_task(study, [*study.settled, *curve.changes, *changes], validation=True) for changes in tried.values()]
    errors: dict[int, float] = {}
    for places in _alike(tasks):
        results = simulate_cells([tasks[at] for at in places], trials=trials, seed=seed + 1000, on=crew)
        errors |= {at: result.validation_error for at, result in zip(places, results, strict=True)}
    cells = tuple(Cell(name=name, value=errors[at]) for at, name in enumerate(tried))
    if watch:
        watch(curve.label, 1.0, min(errors.values()))
    found = Found(label=curve.label, measure="validation error", cells=cells, chosen=_words(dict(curve.chosen)))
    best = next((cell for cell in grid if _words(cell) == found.best), {})
    return replace(found, edges=tuple(key for key, values in curve.grid.items() if _at_an_edge(best.get(key), values)))


def _at_an_edge(best: float | None, values: Sequence[float]) -> bool:
    """Tell whether nothing was tried beyond a value; below zero there is nothing."""
    return len(set(values)) > 1 and bool(best) and best in (min(values), max(values))


def _alike(tasks: Sequence[Task]) -> list[list[int]]:
    """Put the places of tasks together that share one compilation."""
    groups: dict[str, list[int]] = {}
    for at, task in enumerate(tasks):
        groups.setdefault(task.structure(), []).append(at)
    return list(groups.values())


def _search_unstated(
    study: Study, unstated: Unstated, trials: int, seed: int, watch: Watcher | None, crew: Crew
) -> list[Found]:
    """Score every candidate with one trial, and the best of them with all trials."""
    first = _scored(study, unstated, unstated.candidates, 1, seed, watch, crew)
    if trials == 1:
        return [first]
    best = sorted(first.cells, key=lambda cell: cell.value)[: unstated.finalists]
    return [first, _scored(study, unstated, [cell.name for cell in best], trials, seed, watch, crew)]


def _scored(
    study: Study,
    unstated: Unstated,
    names: Collection[str],
    trials: int,
    seed: int,
    watch: Watcher | None,
    crew: Crew,
) -> Found:
    """Score candidates by what their curves reach on rows held back."""
    chosen = [curve for curve in study.curves if curve.label in unstated.curves]
    curves = [replace(curve, changes=(*curve.changes, *unstated.shorter)) for curve in chosen]
    cells = []
    for number, name in enumerate(names, start=1):
        results: dict[str, Result] = {}
        for labels, tasks in _side_by_side(study, curves, unstated.candidates[name], validation=True):
            made = simulate_cells(tasks, trials=trials, seed=seed + 1000, on=crew)
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
