"""Comparing tasks: several files, or one whose keys take several values, run as one and seen side by side.

    crowdml.compare("crowd.toml", "averaging.toml", trials=10)
    crowdml.sweep("crowd.toml", {"algorithm.kind": ["crowd-sgd", "fedavg"], "privacy.epsilon": [1.0, 8.0]})

Cells that differ in numbers alone are compiled once and run side by side; all of them share the worker processes and
the programs kept on disk. Each gets the same seed, so trials of different cells have the same partitions and orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdml.core import BadInput, record, trees
from crowdml.models.adapters import adapt
from crowdml.simulation.checkpoint import run_path
from crowdml.simulation.cluster.hiring import hire
from crowdml.simulation.reporting.device_errors import spread_of
from crowdml.simulation.reporting.figures import COLOURS, curve_figure
from crowdml.simulation.reporting.html import figure_html, table_html
from crowdml.simulation.result import Result
from crowdml.simulation.run import simulate_cells
from crowdml.simulation.workers.crew import HERE, Crew
from crowdml.studies.variations import Cell, Variation, make_cells, make_variation, read_base
from crowdml.task import Task
from crowdml.task.task_checks import with_model

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TITLES = {
    "std": "s.d.",
    "worst_tenth": "error of the worst tenth",
    "bytes_up": "MB up",
    "bytes_down": "MB down",
    "epsilon": "ε",
}
"""What columns of a table are called where that is not their name."""

Watcher = Callable[[str, float, float], None]
"""Told which cells are running, the share of everything that is done, and the error there."""


@record
class Comparison:
    """Results side by side.

    Attributes:
        cells: What was run.
        results: The result of every cell, by its label.
        varied: Keys that differ, and the values they take.
    """

    cells: tuple[Cell, ...]
    results: dict[str, Result]
    varied: tuple[Variation, ...]

    def __getitem__(self, label: str) -> Result:
        """Return the result of a cell."""
        if label not in self.results:
            raise KeyError(f"no cell is called {label!r}; there are: {', '.join(self.results)}")
        return self.results[label]

    def __iter__(self) -> Iterator[str]:
        """Go through the labels."""
        return iter(self.results)

    def __len__(self) -> int:
        """Count the cells."""
        return len(self.results)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the cells beside their figures, each once."""
        found = [note for cell in self.cells for note in cell.notes]
        found += [note for result in self.results.values() for note in result.notes]
        seen: dict[bytes, str] = {}
        for label, result in self.results.items():
            first = seen.setdefault(
                b"".join(np.asarray(leaf).tobytes() for leaf in trees.leaves(result.parameters)), label
            )
            if first != label:
                found.append(f"{label} has learnt the same as {first}, to the last bit: what differs had no effect")
        return tuple(dict.fromkeys(found))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What casts doubt on figures, with the cell that it is said of."""
        return tuple(f"{label}: {each}" for label, result in self.results.items() for each in result.warnings)

    def summary(self) -> list[dict[str, Any]]:
        """Return one line per cell: its settings, and means over trials at the end."""
        return [self._line(cell, self.results[cell.label]) for cell in self.cells]

    def _line(self, cell: Cell, result: Result) -> dict[str, Any]:
        errors = result.measured["test_error"][-1]
        line: dict[str, Any] = {"cell": cell.label, **cell.settings, "test_error": float(errors.mean())}
        line["std"] = float(errors.std(ddof=1)) if len(errors) > 1 else 0.0
        if "test_loss" in result.measured:
            line["test_loss"] = float(result.measured["test_loss"][-1].mean())
        if result.device_errors is not None:
            line["worst_tenth"] = float(spread_of(result.device_errors)["worst_tenth"].mean())
        for name in ("versions", "bytes_up", "bytes_down", "epsilon"):
            line[name] = float(result.along(name)[-1])
        return line

    def to_pandas(self) -> pd.DataFrame:
        """Return a tidy frame: a row per cell, point of the curve and trial, as `Result.to_pandas` has them.

        In front stand the label, `cell`, and a column for every key that was varied.
        """
        import pandas as pd

        frames = []
        for cell in self.cells:
            frame = self.results[cell.label].to_pandas()
            settings = {key: _told(value) for key, value in cell.settings.items()}
            for at, (name, value) in enumerate({"cell": cell.label, **settings}.items()):
                frame.insert(at, name, [value] * len(frame))
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values, in the layout that `crowdml compare --json` writes."""
        return {
            "varied": {each.key: list(each.values) for each in self.varied},
            "cells": [
                {"label": cell.label, "settings": cell.settings, "notes": list(cell.notes)}
                | {"result": self.results[cell.label].to_json()}
                for cell in self.cells
            ],
        }

    def plot(self, path: Path | str | None = None, *, measure: str = "test_error", against: str = "samples") -> Figure:
        """Draw all curves in one figure, with a legend; return it.

        Args:
            path: Save it here, too: a name that ends in `.png`, `.svg` or `.pdf`.
            measure: What is drawn: a name of `Result.measured` that all results have.
            against: The horizontal axis: `samples`, `versions`, `time`, `seconds`, `bytes_up`, `bytes_down` or
                `epsilon`.
        """
        path = None if path is None else Path(path)
        return curve_figure(self.results, path, measure=measure, against=against, looks=self._looks())

    def _looks(self) -> dict[str, tuple[int, int]]:
        """Choose colours by the first thing that differs, and line styles by the others: a legend is read faster so.

        Where there are more values than colours, or nothing else differs, each curve has the next of both.
        """
        places = np.array([cell.at for cell in self.cells])
        differ = [places[:, column] for column in range(places.shape[1]) if len(np.unique(places[:, column])) > 1]
        if len(differ) < 2 or differ[0].max() >= len(COLOURS):
            return {cell.label: (number, number) for number, cell in enumerate(self.cells)}
        rest = [tuple(column[row] for column in differ[1:]) for row in range(len(self.cells))]
        styles = {choice: number for number, choice in enumerate(dict.fromkeys(rest))}
        return {cell.label: (int(differ[0][row]), styles[rest[row]]) for row, cell in enumerate(self.cells)}

    def _repr_html_(self) -> str:
        """Show a table of all cells and their curves in a notebook."""
        columns, rows = self.table()
        return table_html(columns, rows) + figure_html(self.plot())

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the names of columns and the cells of a table for people; what is known of no cell is left out."""
        accuracy = all(result.task.target.has_accuracy for result in self.results.values())
        lines = self.summary()
        known = [name for name in lines[0] if name not in self.cells[0].settings]
        known = [name for name in known if any(name in line and line[name] == line[name] for line in lines)]
        columns = [TITLES.get(name, name.replace("_", " ")) for name in known]
        if accuracy:
            columns = ["test accuracy" if name == "test error" else name for name in columns]
            lines = [line | {"test_error": 1 - line["test_error"]} for line in lines]
        return columns, [[_shown(name, line.get(name, float("nan"))) for name in known] for line in lines]


def compare(
    *tasks: Task | Path | str,
    vary: Mapping[str, Sequence[Any]] | None = None,
    changes: Sequence[str] = (),
    trials: int = 1,
    seed: int = 0,
    resume: bool = False,
    engine: str | None = None,
    watch: Watcher | None = None,
    data: Any = None,
    model: Any = None,
    on: str | Crew | None = None,
) -> Comparison:
    """Run several tasks, or one whose keys take several values, and return their results side by side.

    Args:
        *tasks: Task files, or tasks.
        vary: Keys and their values, such as `{"privacy.epsilon": [1.0, 8.0]}`: every combination is run, for every
            task. `"algorithm"` is short for `"algorithm.kind"`.
        changes: Changes to all of them, such as `"crowd.passes=2"`.
        trials: Repetitions of each.
        seed: First seed; all cells have the same.
        resume: Go on where an interrupted comparison of the same tasks, trials and seed was; what it had finished is
            not run again.
        engine: As for `crowdml.simulate`.
        watch: Told how far everything is.
        data: Rows of your own for all of them, as for `crowdml.simulate`.
        model: A model of your own for all of them, as for `crowdml.simulate`.
        on: Where they run, as for `crowdml.simulate`; a cluster is started once for all.
    """
    if not isinstance(vary, Mapping | None):
        raise BadInput(f"{vary!r} is no table", where="vary", hint='keys and values: {"privacy.epsilon": [1.0, 8.0]}')
    varied = [make_variation(key, values) for key, values in (vary or {}).items()]
    for section, given in (("model", model), ("data", data)):
        require_unvaried(section, given, varied, "vary")
    cells = make_cells([read_base(task, changes, "changes:") for task in tasks], varied)
    if model is not None:
        adapted = adapt(model)  # once: cells whose models are the same are compiled once
        cells = [replace(cell, task=with_model(cell.task, adapted)) for cell in cells]
    with hire(on) as crew:
        return run_cells(
            cells,
            varied,
            trials=trials,
            seed=seed,
            resume=resume,
            engine=engine,
            watch=watch,
            data=data,
            crew=crew,
        )


def require_unvaried(section: str, given: Any, varied: Sequence[Variation], option: str) -> None:
    """Refuse keys of a section that something of the user's own takes the place of."""
    for each in varied:
        if given is not None and each.key.split(".")[0] == section:
            what = f"{section} was handed over for all cells, so nothing of [{section}] can differ between them"
            raise BadInput(what, where=f"{option} {each.key}", hint="leave one of the two out")


def sweep(task: Task | Path | str, vary: Mapping[str, Sequence[Any]], **options: Any) -> Comparison:
    """Run a task with every combination of values of some of its keys; takes the options of `compare`."""
    if not vary:
        raise BadInput("nothing is varied", where="vary", hint='such as {"privacy.epsilon": [1.0, 8.0]}')
    return compare(task, vary=vary, **options)


def run_cells(
    cells: Sequence[Cell],
    varied: Sequence[Variation],
    *,
    trials: int,
    seed: int,
    resume: bool = False,
    engine: str | None = None,
    watch: Watcher | None = None,
    data: Any = None,
    refused: Callable[[BadInput], None] | None = None,
    crew: Crew = HERE,
) -> Comparison:
    """Run all cells; those of one structure side by side.

    Args:
        cells: What to run.
        varied: Keys that differ.
        trials: Repetitions of each.
        seed: First seed; all cells have the same.
        resume: Go on where an interrupted comparison was. What is finished is kept until all cells are.
        engine: As for `crowdml.simulate`.
        watch: Told how far everything is.
        data: Rows of the user's own for all cells.
        refused: Told of cells that cannot run, which only their rows show; the others are run all the same. Not given,
            or where no cell can run: it is raised.
        crew: Whose workers run them.
    """
    results: dict[str, Result] = {}
    kept: list[Path] = []
    groups, done = side_by_side(cells), 0
    for group in groups:
        begun, share = done / len(cells), len(group) / len(cells)
        done += len(group)
        name = group[0].label if len(group) == 1 else f"{group[0].label} and {len(group) - 1} more"

        def told(part: float, error: float, name: str = name, begun: float = begun, share: float = share) -> None:
            if watch:
                watch(name, begun + part * share, error)

        try:
            found = simulate_cells(
                [cell.task for cell in group],
                trials=trials,
                seed=seed,
                resume=resume,
                keep=True,
                engine=engine,
                watch=told,
                data=data,
                on=crew,
            )
        except BadInput as error:  # it knows the key, and not which of the cells
            where = f"{error.where} (for {name})".strip()
            problem = BadInput(error.what, where=where, hint=error.hint)
            if refused is None or (not results and group is groups[-1]):
                raise problem from None
            refused(problem)
            continue
        except KeyboardInterrupt as interrupt:
            if any(path.exists() for path in kept) and not getattr(interrupt, "__notes__", ()):
                interrupt.add_note("the same command with --resume keeps what is finished")
            raise
        kept.append(run_path([result.task for result in found], trials, seed))
        results |= {cell.label: result for cell, result in zip(group, found, strict=True)}
    for path in kept:
        path.unlink(missing_ok=True)
    ran = tuple(cell for cell in cells if cell.label in results)
    return Comparison(cells=ran, results={cell.label: results[cell.label] for cell in ran}, varied=tuple(varied))


def side_by_side(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Put cells together that differ in hyper-parameters only; groups with the same rows follow each other.

    The rows that were prepared last are kept, so each dataset is prepared once.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.task.structure(), []).append(cell)
    rows = [group[0].task.data.model_dump_json() for group in groups.values()]
    order = sorted(range(len(rows)), key=lambda at: rows.index(rows[at]))
    made = list(groups.values())
    return [made[at] for at in order]


def _told(value: Any) -> Any:
    """Return a value as a column of a frame can hold it."""
    return value if isinstance(value, str | int | float | bool) else str(value)


def _shown(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if not np.isfinite(value):
        return "–"
    if name in ("bytes_up", "bytes_down"):
        return f"{value / 1e6:.3g}"
    return f"{value:.4g}" if name == "epsilon" else f"{value:,.0f}" if name == "versions" else f"{value:.4f}"
