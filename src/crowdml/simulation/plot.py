"""Figures: the test error of one or several results against samples used."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crowdml.core.validation import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from crowdml.simulation.result import Result

# Okabe and Ito's palette: distinct for colour-blind readers, with line styles as a second cue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")


def curve_figure(
    results: Mapping[str, Result],
    path: Path,
    measure: str = "test_error",
    title: str | None = None,
    held_back: bool = False,
) -> None:
    """Draw one curve per result, with a band of one standard deviation over trials, and save the figure.

    A result with a single point, such as that of batch training, becomes a level line. With `held_back` the curve of a
    single result has one beside it for the rows held back from training.
    """
    from matplotlib.figure import Figure

    many = len(results) > 1 or held_back
    figure = Figure(figsize=(7, 4.8 if many else 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for index, (label, result) in enumerate(results.items()):
        name = "test rows" if held_back else label
        _draw(axes, name, result, measure, COLOURS[index % len(COLOURS)], STYLES[index % len(STYLES)])
        if held_back:
            _draw(axes, "rows held back", result, "validation_error", COLOURS[1], STYLES[1])
    words = "time-averaged error, counted by devices" if measure == "estimated_error" else measure.replace("_", " ")
    words = "error" if held_back else words
    axes.set(xlabel="samples used by the crowd", ylabel=words, xlim=(0, None), ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        title or (next(iter(results)) if len(results) == 1 else ""), loc="left", fontsize="medium", wrap=True
    )
    if many:
        figure.legend(loc="outside lower center", ncols=3 if len(results) < 7 else 4, frameon=False, fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())


def _draw(axes: Axes, label: str, result: Result, measure: str, colour: str, style: str) -> None:
    values = result.measured[measure]
    mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1 if values.shape[1] > 1 else 0)
    if len(mean) == 1:
        axes.axhline(mean[0], linestyle=style, color=colour, label=label, linewidth=1.8)
        return
    axes.plot(result.samples, mean, style, color=colour, label=label, linewidth=1.8)
    low, high = np.clip(mean - spread, 0, 1), np.clip(mean + spread, 0, 1)
    axes.fill_between(result.samples, low, high, color=colour, alpha=0.15, linewidth=0)
