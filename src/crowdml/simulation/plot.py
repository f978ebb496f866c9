"""Figures: the test error of one or several results against samples used."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from crowdml.core.validation import write_whole

if TYPE_CHECKING:
    from crowdml.simulation.result import Result

# Okabe and Ito's palette: distinct for colour-blind readers, with line styles as a second cue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")


def curve_figure(results: Mapping[str, Result], path: Path) -> None:
    """Draw one curve per result, with a band of one standard deviation over trials, and save the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for index, (label, result) in enumerate(results.items()):
        values = result.measured["test_error"]
        mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1 if values.shape[1] > 1 else 0)
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(result.samples, mean, STYLES[index % len(STYLES)], color=colour, label=label, linewidth=1.8)
        axes.fill_between(result.samples, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="samples used by the crowd", ylabel="test error", xlim=(0, None), ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if len(results) > 1:
        axes.legend(frameon=False)
    else:
        axes.set_title(next(iter(results)), loc="left")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())
