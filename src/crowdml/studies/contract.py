"""What a study is: a figure or table of a paper, what the paper reports, and how to get our figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from crowdml.core import record
from crowdml.simulation import Result

Verdict = Literal["holds", "differs", "trend"]
"""`trend`: the paper gives no figure that can be read off; the value is shown without a verdict."""

Watcher = Callable[[str, float, float], None]
"""Told the curve's label, the share done and its mean test error."""


Drawing = Callable[[Mapping[str, Result], Path, str], None]
"""Draws results by label into a file, under a title."""


@record
class Curve:
    """One line of a figure.

    Attributes:
        label: Its name in the legend.
        changes: What it changes in the study's task file.
        chosen: Hyper-parameters, found by the search.
        grid: Values the search tries, by key; empty where nothing is searched.
    """

    label: str
    changes: tuple[str, ...] = ()
    chosen: Mapping[str, float]
    grid: Mapping[str, tuple[float, ...]]


@record
class Unstated:
    """What a paper leaves open, and how it was decided: on rows held back from training.

    Attributes:
        candidates: Changes of the task file, by name.
        used: The one in use.
        curves: Labels of the curves that the decision needs.
        criterion: How it is decided, in words; fixed before anything was run.
        score: `score(results)`: how far a candidate is from what is wanted (less is better), and a remark.
        finalists: All candidates are tried once; so many of them, the best, are tried again with all trials.
    """

    candidates: Mapping[str, tuple[str, ...]]
    used: str
    curves: tuple[str, ...]
    criterion: str
    score: Callable[[Mapping[str, Result]], tuple[float, str]]
    finalists: int = 4


@record
class Row:
    """One comparison with the paper.

    Attributes:
        setting: What was run.
        metric: What was measured.
        paper: The paper's figure, None where it gives none.
        ours: Our mean over trials.
        std: Our standard deviation over trials.
        verdict: Whether the paper's statement holds.
    """

    setting: str
    metric: str
    paper: float | None
    ours: float
    std: float
    verdict: Verdict


@record
class Report:
    """What a study found.

    Attributes:
        id: The study's id.
        title: The study's title.
        rows: Comparisons with the paper.
        results: All results, by label.
        measure: Which measurement the figure shows.
        notes: Caveats.
        seconds: Compile and run time, summed over runs.
        draw: Draws the figure; None: one curve per result.
    """

    id: str
    title: str
    rows: tuple[Row, ...]
    results: Mapping[str, Result]
    measure: str
    notes: tuple[str, ...]
    seconds: dict[str, float]
    draw: Drawing | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report in the layout that `reproduce --json` writes."""
        return {
            "id": self.id,
            "title": self.title,
            "rows": [vars(row) for row in self.rows],
            "curves": {label: result.to_json() for label, result in self.results.items()},
            "notes": list(self.notes),
            "seconds": self.seconds,
        }

    def plot(self, path: Path | str) -> None:
        """Draw the figure and save it."""
        from crowdml.simulation.plot import curve_figure

        if self.draw:
            self.draw(self.results, Path(path), f"{self.id}: {self.title}")
            return
        curve_figure(self.results, Path(path), measure=self.measure, title=f"{self.id}: {self.title}")


@record
class Study:
    """A figure that can be reproduced.

    Attributes:
        title: What it shows.
        task: Its task file.
        curves: Its lines.
        compare: Turns results into comparisons with the paper.
        trials: Repetitions, as in the paper.
        measure: Which measurement the figure shows.
        notes: Caveats: what differs from the paper's setting, and why.
        draw: Draws the figure; None: one curve per result.
        full: Task file of the paper's own setting, where that takes hours and `task` is a small one; None elsewhere.
        unstated: What the paper leaves open; None where the task file and the curves' own grids say everything.
    """

    title: str
    task: Path
    curves: tuple[Curve, ...]
    compare: Callable[[Mapping[str, Result]], tuple[Row, ...]]
    trials: int = 10
    measure: str = "test_error"
    notes: tuple[str, ...] = ()
    draw: Drawing | None = None
    unstated: Unstated | None = None
    full: Path | None = None

    @property
    def settled(self) -> tuple[str, ...]:
        """Changes for what the paper leaves open, before those of a curve."""
        return self.unstated.candidates[self.unstated.used] if self.unstated else ()
