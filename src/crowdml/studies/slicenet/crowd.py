"""SliceNet, table I: how well groups of n devices learn.

A group of n devices trains one net in turns: one of them is the dominator, the others hold n - 1 pieces. The paper
forms as many groups (24, 12, 8, 6 of 120 devices) and speaks of n pieces. Slicing is exact, so errors do not depend on
the cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdml.core.figures import save_figure
from crowdml.simulation import Result
from crowdml.studies.comparisons import Better, level, not_run, shown, spread, statement
from crowdml.studies.contract import Curve, Row, Study, Tuned, Unstated

Floats = npt.NDArray[np.float64]
Compare = Callable[[Mapping[str, Result]], tuple[Row, ...]]
TASKS = Path(__file__).parents[1] / "tasks"
ALONE, CENTRAL = "S-SGD", "C-SGD"
SIZES = (5, 10, 15, 20)
METRIC, POINTS = "mean group error, %", 0.5
"""What is measured, and how far from the paper's it may be: half a point."""
TABLE1 = {ALONE: 5.15, "n = 5": 5.29, "n = 10": 3.63, "n = 15": 3.10, "n = 20": 2.62, CENTRAL: 1.73}
TABLE1_CNN = {ALONE: 46.88, "n = 5": 46.11, "n = 10": 37.65, "n = 15": 34.40, "n = 20": 32.40, CENTRAL: 29.54}
NOTES = (
    "a group of n devices has a dominator and n - 1 followers; errors are those of the groups' models, on average",
    "an upload holds the share θ of each device's weights with the largest Σ|gradient|, all biases, all normalisations",
    "the sliding window holds the last ω values of each weight; the paper can be read as the last ω uploads, too",
    "no formal guarantee",
)


def errors(result: Result) -> Floats:
    """Mean error of the groups in per cent, trial by trial."""
    found: Floats = 100 * result.measured["test_error"][-1]
    return found


def means(results: Mapping[str, Result]) -> dict[str, float]:
    """Mean over trials of every result, in per cent."""
    return {name: float(errors(own).mean()) for name, own in results.items()}


def beside(setting: str, result: Result, paper: float | None, claim: bool, better: Better | None = "less") -> Row:
    """Set an error beside the paper's, in points; without one it is shown."""
    return level(setting, METRIC, errors(result), paper, tolerance=POINTS, claim=claim, better=better)


def shown_error(setting: str, result: Result) -> Row:
    """Show an error that nothing is claimed of by itself."""
    return shown(setting, METRIC, float(errors(result).mean()), spread(errors(result)))


def unfinished(paper: Mapping[str, float]) -> tuple[Row, ...]:
    """Name what the paper reports for its convolutional net on CIFAR-10, which was never trained here."""
    return tuple(
        not_run(f"cnn on CIFAR-10, {name}", METRIC, own, "hours on a processor: --full") for name, own in paper.items()
    )


def is_cnn(results: Mapping[str, Result]) -> bool:
    """Tell whether photographs were learnt (`--full`), for which the paper gives other figures."""
    return next(iter(results.values())).task.data.dataset == "cifar10"


def _table1(results: Mapping[str, Result]) -> tuple[Row, ...]:
    paper = TABLE1_CNN if is_cnn(results) else TABLE1
    found = means(results)
    least = min(found[left] - found[right] for left, right in itertools.pairwise(paper))
    falls = least > 0
    # A baseline that is better than the paper's says nothing for groups.
    rows = [
        beside(name, results[name], own, falls, None if name in (ALONE, CENTRAL) else "less")
        for name, own in paper.items()
    ]
    order = "order from S-SGD over n = 5 … 20 to C-SGD"
    return (*rows, statement(order, "smallest step down, %", least, falls, "above 0: the error falls with every step"))


def draw_errors(compare: Compare, results: Mapping[str, Result], path: Path, title: str) -> None:
    """Draw the error of each setting with its spread, and the paper's beside it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    values = [errors(own) for own in results.values()]
    axes.errorbar(
        list(results),
        [float(own.mean()) for own in values],
        [spread(own) for own in values],
        fmt="o",
        capsize=4,
        color="#0072B2",
        label="ours",
    )
    known = {row.setting: row.paper for row in compare(results) if row.paper is not None}
    if known:
        axes.plot(list(known), list(known.values()), "s", color="#D55E00", fillstyle="none", label="paper")
        axes.legend(frameon=False)
    axes.set(ylabel="mean group error, %", ylim=(0, None))
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize="medium", wrap=True)
    save_figure(figure, path)


def curve(label: str, *changes: str) -> Curve:
    """Name a setting; nothing is searched for it alone."""
    return Curve(label=label, changes=changes, chosen={}, grid={})


def crowd_study(
    title: str,
    curves: Sequence[Curve],
    compare: Compare,
    *,
    claim: str,
    refuted_by: str,
    tuned: Tuned,
    missing: tuple[Row, ...] = (),
    notes: tuple[str, ...] = (),
    unstated: Unstated | None = None,
) -> Study:
    """Make a study of groups: digits by default; photographs and the convolutional net with `--full`."""
    return Study(
        title=title,
        claim=claim,
        refuted_by=refuted_by,
        tuned=tuned,
        missing=missing,
        task=TASKS / "slicenet-mlp.toml",
        curves=tuple(curves),
        compare=compare,
        draw=lambda results, path, heading: draw_errors(compare, results, path, heading),
        trials=3,
        full=TASKS / "slicenet-cnn.toml",
        unstated=unstated,
        notes=(*NOTES, *notes),
    )


def _groups() -> tuple[Curve, ...]:
    groups = (curve(f"n = {size}", f"algorithm.pieces={size - 1}") for size in SIZES)
    alone, central = ("algorithm.pieces=0",), ("algorithm.pieces=0", "crowd.devices=1")
    return (curve(ALONE, *alone), *groups, curve(CENTRAL, *central))


def _held_back(results: Mapping[str, Result]) -> tuple[float, str]:
    return float(np.mean([own.validation_error for own in results.values()])), ""


UNSTATED = Unstated(
    candidates={
        "rate 1, decay 0.85": (),
        "rate 1, decay 0.75": ("algorithm.decay=0.75",),
        "rate 1, decay 0.6": ("algorithm.decay=0.6",),
        "rate 0.3, decay 0.75": ("algorithm.rate=0.3", "algorithm.decay=0.75"),
        "rate 3, decay 0.75": ("algorithm.rate=3.0", "algorithm.decay=0.75"),
    },
    used="rate 1, decay 0.85",
    curves=("n = 10",),
    criterion="mean group error of groups of ten on rows held back",
    score=_held_back,
)
TABLE_1 = crowd_study(
    "error for groups of n devices",
    _groups(),
    _table1,
    claim="the larger the group the smaller the error, between devices alone (S-SGD) and all rows in one place (C-SGD)",
    refuted_by=f"an error that does not fall with every step; more than {POINTS:g} points above the paper's is a trend",
    tuned="held back",
    missing=unfinished(TABLE1_CNN),
    notes=(
        "batch, rate, decay and passes are not in the paper; rate and decay are those with the least error of groups "
        "of ten on rows held back (--search), for all settings alike",
        "that search was made with the window of the last ω uploads",
    ),
    unstated=UNSTATED,
)
