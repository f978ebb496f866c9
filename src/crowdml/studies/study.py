"""What a study is: a figure or table of a paper, what the paper reports, and how to get our figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from crowdml.core import BadInput, record
from crowdml.simulation import Result
from crowdml.simulation.checkpoint import Spent
from crowdml.studies.figure import Figure, curves

TASKS = Path(__file__).parent / "tasks"
"""Where the task files of all studies are."""

Results = Mapping[str, Result]
"""What was found, by the label of its curve."""

Verdict = Literal["holds", "beyond", "trend", "differs", "shown", "not run"]
"""What a row found; `crowdml.studies.comparisons` says when each of them is right."""

Tuned = Literal["held back", "given", "test rows", "not recorded"]
TUNED: Mapping[Tuned, str] = {
    "held back": "settings that the paper leaves open were chosen on rows held back from training",
    "given": "nothing was tuned",
    "test rows": "settings were chosen with the test rows in sight, so figures on them are too good",
    "not recorded": "how settings were chosen was not recorded: test rows may have been seen",
}
"""On which rows a study's settings were chosen, and what the page says of it."""

STORED = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, revalidate_instances="always")
"""How strictly a record is read that is stored in a file."""

Watcher = Callable[[str, float, float], None]
"""Told the curve's label, the share done and its mean test error."""


@record
class Curve:
    """One line of a figure.

    Attributes:
        label: Its name in the legend.
        changes: What it changes in the study's task file.
        chosen: Hyper-parameters, found by the search.
        grid: Values the search tries, by key; empty where nothing is searched.
        others: More that the search tries, by name: changes that only make sense together.
    """

    label: str
    changes: tuple[str, ...]
    chosen: Mapping[str, float]
    grid: Mapping[str, tuple[float, ...]]
    others: Mapping[str, tuple[str, ...]]


def curve(
    label: str,
    *changes: str,
    chosen: Mapping[str, float] | None = None,
    grid: Mapping[str, tuple[float, ...]] | None = None,
    others: Mapping[str, tuple[str, ...]] | None = None,
) -> Curve:
    """Make a curve; without `chosen` all its hyper-parameters stand in the task file or among its changes."""
    return Curve(label=label, changes=changes, chosen=chosen or {}, grid=grid or {}, others=others or {})


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
        shorter: Further changes while candidates are tried, where whole runs would take too long.
    """

    candidates: Mapping[str, tuple[str, ...]]
    used: str
    curves: tuple[str, ...]
    criterion: str
    score: Callable[[Results], tuple[float, str]]
    finalists: int = 4
    shorter: tuple[str, ...] = ()


def searched_rate(
    label: str, rates: tuple[float, ...], *, given: float, used: float | None = None, key: str = "algorithm.rate.c"
) -> Unstated:
    """Choose a rate for all curves by one of them: that with the least error on rows held back is used.

    Args:
        label: The curve that decides; a plain one, so that the others compete with the best of its kind.
        rates: What is tried.
        given: The task file's, one of them.
        used: The one in use; not given: the task file's.
        key: Where the rate stands.
    """
    return Unstated(
        candidates={f"rate {rate:g}": () if rate == given else (f"{key}={rate}",) for rate in rates},
        used=f"rate {given if used is None else used:g}",
        curves=(label,),
        criterion=f"error of {label} on rows held back",
        score=lambda results: (float(results[label].validation_error), ""),
    )


@record
class Row:
    """One comparison with the paper.

    Attributes:
        setting: What was run.
        metric: What was measured.
        paper: The paper's figure, None where it gives none.
        ours: Our mean over trials; None where it was never reached, or never run.
        std: Our standard deviation over trials.
        verdict: What the rule says.
        rule: When the row holds, in words; why it was not run, where it was not; empty where nothing is claimed.
    """

    __pydantic_config__ = STORED

    setting: str
    metric: str
    paper: float | None
    ours: float | None
    std: float
    verdict: Verdict
    rule: str = ""


@record
class ByCurve:
    """Comparisons that need one curve each, so that curves can be run one by one, on other days and machines.

    Attributes:
        rows: `rows(label, result)`: what is said of one curve. The setting of each row is the label.
        metric: What is published of every curve.
        published: The figure, by label; a curve that nothing is published of is not in it.
    """

    rows: Callable[[str, Result], Iterable[Row]]
    metric: str
    published: Mapping[str, float]

    def __call__(self, results: Results) -> Iterator[Row]:
        """Set all curves that were run beside what is published of them."""
        for label, result in results.items():
            yield from self.rows(label, result)

    def not_run(self, label: str, why: str) -> Row:
        """Say that nobody has run a curve."""
        paper = self.published.get(label)
        return Row(setting=label, metric=self.metric, paper=paper, ours=None, std=0.0, verdict="not run", rule=why)


@record
class Report:
    """What a study found.

    Attributes:
        id: The study's id.
        study: The study as it was run.
        seed: First seed; trial k has what follows from it and k.
        trials: Repetitions.
        rows: Comparisons with the paper.
        results: All results, by label.
        notes: Caveats.
        seconds: Compile and run time, summed over runs.
        cpu_seconds: Processor time since the study began, on all cores, with that of parts that were resumed; None:
            those had not noted it.
        apart: What each curve took, where curves were run one by one; empty: the study was run as a whole.
    """

    id: str
    study: Study
    seed: int
    trials: int
    rows: tuple[Row, ...]
    results: Results
    notes: tuple[str, ...]
    seconds: dict[str, float]
    cpu_seconds: float | None
    apart: Mapping[str, Spent] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """What the study shows, in one line."""
        return self.study.title

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

    @property
    def figure(self) -> Figure:
        """What the study's figure shows."""
        if self.study.draw:
            return self.study.draw(self.results)
        return curves(self.results, self.study.measure, [curve.label for curve in self.study.curves])

    def plot(self, path: Path | str) -> None:
        """Draw the figure and save it."""
        from crowdml.studies.drawing import save

        save(self.figure, f"{self.id}: {self.title}", Path(path))


@record
class Study:
    """A figure that can be reproduced.

    Attributes:
        title: What it shows.
        claim: What the paper claims, or what was wanted where the study is not the paper's; empty: figures only.
        refuted_by: What would refute it, in words.
        tuned: On which rows settings were chosen that the paper leaves open.
        task: Its task file.
        curves: Its lines.
        rows: Turns results into comparisons with the paper; `ByCurve` where each of them needs one curve alone.
        trials: Repetitions, as in the paper.
        measure: Which measurement the figure shows.
        notes: Caveats: what differs from the paper's setting, and why.
        draw: `draw(results)` says what its figure shows; None: one curve per result.
        full: Task file of the paper's own setting, where that takes hours and `task` is a small one; None elsewhere.
        full_curves: Its lines in that setting, where they are others.
        unstated: What the paper leaves open; None where the task file and the curves' own grids say everything.
        missing: Rows for settings of the paper's that were never run.
        stands_in: What was run in place of the paper's own setting, of which nothing was: "reduced setting", "other
            rows". It stands beside the study's word. Empty where rows are of the paper's setting, or it has none.
        hours: Whether a single curve takes so long that nobody runs this study along with all others.
        searched_in: Id of the study whose search chose its settings, where that is another.
    """

    title: str
    claim: str
    refuted_by: str
    tuned: Tuned
    task: Path
    curves: tuple[Curve, ...]
    rows: Callable[[Results], Iterable[Row]]
    trials: int = 10
    measure: str = "test_error"
    notes: tuple[str, ...] = ()
    draw: Callable[[Results], Figure] | None = None
    unstated: Unstated | None = None
    full: Path | None = None
    full_curves: tuple[Curve, ...] = ()
    missing: tuple[Row, ...] = ()
    stands_in: str = ""
    hours: bool = False
    searched_in: str = ""

    @property
    def is_searched(self) -> bool:
        """Whether a search has something to try here."""
        return bool(self.unstated or any(curve.grid or curve.others for curve in self.curves))

    @property
    def by_curve(self) -> ByCurve:
        """Its comparisons, where each needs one curve alone."""
        if isinstance(self.rows, ByCurve):
            return self.rows
        what = "the comparisons of this study need several curves each"
        raise BadInput(what, where="--curve", hint="leave it out: all curves are run")

    @property
    def in_full(self) -> Study:
        """The same in the paper's own setting, where that is another; else itself."""
        if self.full is None:
            return self
        # What was chosen for the small setting says nothing about this one: its task file has everything.
        curves = self.full_curves or self.curves
        return dataclasses.replace(self, task=self.full, curves=curves, missing=(), unstated=None, stands_in="")

    @property
    def shares_its_record(self) -> bool:
        """Whether the full setting has just more of the same curves, each compared by itself: one record holds all.

        Ask the study as it stands: in full, every study has all of its curves.
        """
        same = self.full == self.task and isinstance(self.rows, ByCurve)
        return same and all(curve in self.full_curves for curve in self.curves)

    def compare(self, results: Results) -> tuple[Row, ...]:
        """Set results beside the paper's figures."""
        return tuple(self.rows(results))

    @property
    def settled(self) -> tuple[str, ...]:
        """Changes for what the paper leaves open, before those of a curve."""
        return self.unstated.candidates[self.unstated.used] if self.unstated else ()
