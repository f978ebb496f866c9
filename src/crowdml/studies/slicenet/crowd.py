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
from crowdml.studies.comparisons import spread, statement
from crowdml.studies.contract import Curve, Row, Study, Unstated, Verdict

Floats = npt.NDArray[np.float64]
Compare = Callable[[Mapping[str, Result]], tuple[Row, ...]]
TASKS = Path(__file__).parents[1] / "tasks"
ALONE, CENTRAL = "S-SGD", "C-SGD"
SIZES = (5, 10, 15, 20)
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


def level(setting: str, result: Result, paper: float | None = None, *, judged: bool = True) -> Row:
    """Set an error beside the paper's: it holds when ours is not larger; without one, or not judged, it is shown."""
    values = errors(result)
    mean = float(values.mean())
    verdict: Verdict = "trend" if paper is None or not judged else "holds" if mean <= paper else "differs"
    return Row(
        setting=setting, metric="mean group error, %", paper=paper, ours=mean, std=spread(values), verdict=verdict
    )


def is_cnn(results: Mapping[str, Result]) -> bool:
    """Tell whether photographs were learnt (`--full`), for which the paper gives other figures."""
    return next(iter(results.values())).task.data.dataset == "cifar10"


def _falls(setting: str, values: Sequence[float]) -> Row:
    """Ask whether the mean error falls from each value to the next; ours is the smallest step."""
    least = min(left - right for left, right in itertools.pairwise(values))
    return statement(setting, "smallest step down, %", None, least, least > 0)


def _table1(results: Mapping[str, Result]) -> tuple[Row, ...]:
    paper = TABLE1_CNN if is_cnn(results) else TABLE1
    # The level of the two baselines is the paper's own affair: what counts is that groups lie between them.
    levels = [level(name, results[name], own, judged=name not in (ALONE, CENTRAL)) for name, own in paper.items()]
    found = means(results)
    return (*levels, _falls("order from S-SGD over n = 5 … 20 to C-SGD", [found[name] for name in paper]))


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
    notes: tuple[str, ...] = (),
    unstated: Unstated | None = None,
) -> Study:
    """Make a study of groups: digits by default; photographs and the convolutional net with `--full`."""
    return Study(
        title=title,
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
    (
        "batch, rate, decay and passes are not in the paper; rate and decay are those with the least error of groups "
        "of ten on rows held back (--search), for all settings alike",
    ),
    UNSTATED,
)
