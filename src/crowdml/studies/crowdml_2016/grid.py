"""A grid of small figures that share their axes: test accuracy against check-ins."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from crowdml.core.validation import write_whole
from crowdml.simulation import Result
from crowdml.simulation.plot import COLOURS, STYLES

Cells = Mapping[str, Mapping[str, Mapping[str, Result]]]
"""Lines by label, in figures by column, by row."""


def check_ins(result: Result) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the check-ins behind each point of a curve, where all use the same number of rows."""
    per_trial = result.updates / result.trials
    return np.asarray(result.samples / result.samples[-1] * per_trial, np.float64)


def draw_grid(cells: Cells, path: Path, title: str) -> None:
    """Draw one small figure per cell, with one line per result and a band of one standard deviation."""
    from matplotlib.figure import Figure

    columns = list(next(iter(cells.values())))
    figure = Figure(figsize=(2.1 * len(columns) + 0.8, 1.6 * len(cells) + 1.0), dpi=150, layout="constrained")
    axes = figure.subplots(len(cells), len(columns), sharex=True, sharey=True, squeeze=False)
    for row, (name, line) in enumerate(cells.items()):
        for column, (heading, lines) in enumerate(line.items()):
            at = axes[row, column]
            for index, (label, result) in enumerate(lines.items()):
                values = 1 - result.measured["test_error"]
                mean, spread = values.mean(axis=1), values.std(axis=1)
                x, colour = check_ins(result), COLOURS[index % len(COLOURS)]
                at.plot(x, mean, STYLES[index % len(STYLES)], color=colour, label=label, linewidth=1.6)
                at.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
            at.set(xlim=(0, None), ylim=(0, 1))
            at.grid(alpha=0.25)
            at.spines[["top", "right"]].set_visible(False)
            if row == 0:
                at.set_title(heading, fontsize="medium")
            if row == len(cells) - 1:
                at.set_xlabel("check-ins", fontsize="small")
            if column == 0:
                at.set_ylabel(name, fontsize="small")
    figure.suptitle("\n".join(textwrap.wrap(title, 28 * len(columns))), x=0.01, ha="left", fontsize="medium")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())
