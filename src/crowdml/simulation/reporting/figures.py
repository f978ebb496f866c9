"""Figures of a learning curve: one line per result, in colours that colour-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, Target
from crowdml.core.files import save_figure
from crowdml.core.registry import nearest
from crowdml.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

# Okabe and Ito's palette: distinct for colour-blind readers, with line styles as a second cue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")

AGAINST = {
    "samples": "samples used by the crowd",
    "versions": "versions",
    "time": "simulated time",
    "seconds": "seconds of computing",
    "bytes_up": "bytes sent by devices",
    "bytes_down": "bytes sent to devices",
    "epsilon": "ε so far",
}
"""What a curve can be drawn against, and what the axis is called."""

MEASURES = {"estimated_error": "time-averaged error, counted by devices"}
"""What measurements are called whose names do not say it."""

LEGEND_CHARACTERS = 96
"""So many characters of the legend's size fit side by side."""
LEGEND_LINE = 0.18
"""Inches from line to line of a legend."""
MANY = 100_000
"""From here on numbers of an axis are written as 100k or 2.5M."""


class Curve(Protocol):
    """What is drawn: a result."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def measured(self) -> dict[str, Floats]:
        """Measurements by name, each of shape (points, trials)."""

    def along(self, name: str) -> Floats:
        """Return an axis of `AGAINST` at every point of the curve, averaged over trials."""


def curve_figure(
    results: Mapping[str, Curve],
    path: Path | None = None,
    measure: str = "test_error",
    title: str | None = None,
    held_back: bool = False,
    against: str = "samples",
    looks: Mapping[str, tuple[int, int]] | None = None,
) -> Figure:
    """Draw one curve per result, with a band of one standard deviation over trials.

    A result with a single point, such as that of batch training, becomes a level line. With `held_back` the curve of a
    single result has one beside it for the rows held back from training.

    Args:
        results: What is drawn, by label.
        path: Save the figure here, too.
        measure: Which measurement.
        title: Above the figure; not given: the label of a single result.
        held_back: Whether errors on rows held back are drawn beside.
        against: The horizontal axis, one of `AGAINST`.
        looks: By label, the numbers of colour and line style; not given: each curve has the next.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    require_drawable(results, measure, against)
    shown = ["test rows", "rows held back"] if held_back else list(results)
    columns = _legend_columns(shown)
    lines = -(-len(shown) // columns) if len(shown) > 1 else 0
    # A long legend makes the figure higher, not the curves smaller.
    height = 4.2 + (0.6 if lines else 0.0) + LEGEND_LINE * max(0, lines - 3)
    figure = Figure(figsize=(7, height), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for index, (label, result) in enumerate(results.items()):
        name = "test rows" if held_back else label
        colour, style = looks[label] if looks else (index, index)
        _draw(axes, name, result, measure, against, COLOURS[colour % len(COLOURS)], STYLES[style % len(STYLES)])
        if held_back:
            _draw(axes, "rows held back", result, "validation_error", against, COLOURS[1], STYLES[1])
    words = "error" if held_back else MEASURES.get(measure, measure.replace("_", " "))
    axes.set(xlabel=AGAINST[against], ylabel=words, xlim=(0, None), ylim=(0, None))
    if measure.endswith("error"):
        _show_unit(axes, [result.task.target for result in results.values()])
    if against.startswith("bytes"):
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
    elif axes.get_xlim()[1] >= MANY:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        title or (next(iter(results)) if len(results) == 1 else ""), loc="left", fontsize="medium", wrap=True
    )
    if lines:
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    if path is not None:
        save_figure(figure, path)
    return figure


def _legend_columns(shown: Sequence[str]) -> int:
    """Return how many labels stand side by side: as many in every line, as far as possible."""
    most = max(1, min(4, LEGEND_CHARACTERS // (max(map(len, shown)) + 8)))
    return -(-len(shown) // -(-len(shown) // most))


def require_drawable(results: Mapping[str, Curve], measure: str, against: str) -> None:
    """Refuse what is no measurement of every result, and what is no axis."""
    if against not in AGAINST:
        raise BadInput(f'a curve cannot be drawn against "{against}"', where="against", hint=nearest(against, AGAINST))
    for label, result in results.items():
        if measure not in result.measured:
            hint = nearest(measure, result.measured)
            if measure.endswith("loss"):
                hint = 'crowd.measure = ["loss"] in the task file measures it'
            raise BadInput(f'"{measure}" was not measured of {label}', where="measure", hint=hint)
    if not any(np.isfinite(result.along(against)).any() for result in results.values()):
        raise BadInput(
            f"nothing can be drawn against {against}: it is known of none of the results",
            where="against",
            hint="draw against samples; an ε is known where the task adds noise",
        )


def _show_unit(axes: Axes, targets: Sequence[Target]) -> None:
    """Say what errors of numbers are shares of; where all are of one number, what they are in its own unit, right."""
    first = targets[0]
    if first.has_accuracy:
        return
    axes.set_ylabel(f"{axes.get_ylabel()}, share of the range")
    if any(target != first for target in targets):
        return
    width: Any = 2 * getattr(first, "half_range", 0.5)
    unit = getattr(first, "unit", "")
    right = axes.secondary_yaxis("right", functions=(lambda share: share * width, lambda error: error / width))
    right.set_ylabel("mean absolute error" + (f" in {unit}" if unit else ""))


def _draw(axes: Axes, label: str, result: Curve, measure: str, against: str, colour: str, style: str) -> None:
    values = result.measured[measure]
    mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1 if values.shape[1] > 1 else 0)
    if len(mean) == 1:
        axes.axhline(mean[0], linestyle=style, color=colour, label=label, linewidth=1.8)
        return
    x = result.along(against)
    if not np.isfinite(x).any():
        label += " (not known)"  # no line, and the legend says why
    axes.plot(x, mean, style, color=colour, label=label, linewidth=1.8)
    low, high = np.maximum(mean - spread, 0), mean + spread
    if measure.endswith("error"):
        high = np.minimum(high, 1)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
