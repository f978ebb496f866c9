"""Accuracy against one number: means over splits with their standard errors, and lines for what has no such number."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdml.core.validation import write_whole
from crowdml.simulation.plot import COLOURS, STYLES
from crowdml.studies.admm.common import Floats, standard_error

MARKS = "osD^vPX*h<>"
Lines = Mapping[str, Sequence[tuple[float, Floats]]]
"""By name, points (x, accuracies)."""


def draw_levels(lines: Lines, levels: Mapping[str, Floats], path: Path, title: str, axis: str) -> None:
    """Draw one line per entry of `lines`, and a dotted one per entry of `levels`."""
    draw_panels({"": lines}, levels, path, title, axis)


def draw_panels(panels: Mapping[str, Lines], levels: Mapping[str, Floats], path: Path, title: str, axis: str) -> None:
    """Draw several groups of lines below each other, with the same levels in all: narrow screens show them too."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 1.0 + 5.0 * len(panels)), dpi=150, layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for at, (heading, lines) in zip(axes, panels.items(), strict=True):
        _draw_panel(at, lines, levels)
        at.set_xlabel(axis)
        if heading:
            at.set_title(heading, loc="left", fontsize="medium")
    figure.suptitle("\n".join(textwrap.wrap(title, 76)), x=0.01, ha="left", fontsize="medium")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())


def _draw_panel(at: Any, lines: Lines, levels: Mapping[str, Floats]) -> None:
    from matplotlib.ticker import FormatStrFormatter

    for index, (label, points) in enumerate(lines.items()):
        at.errorbar(
            [x for x, _ in points],
            [float(values.mean()) for _, values in points],
            yerr=[standard_error(values) for _, values in points],
            fmt=MARKS[index % len(MARKS)] + STYLES[index % len(STYLES)],
            color=COLOURS[index % len(COLOURS)],
            label=label,
            linewidth=1.5,
            markersize=5,
            capsize=2,
        )
    for index, (label, values) in enumerate(levels.items()):
        at.axhline(float(values.mean()), color="#555555", linewidth=1, linestyle=(0, (1 + 3 * index, 2)), label=label)
    at.set(xscale="log", ylabel="test accuracy")
    at.set_xticks(sorted({x for points in lines.values() for x, _ in points}))
    at.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    at.minorticks_off()
    at.grid(alpha=0.25)
    at.spines[["top", "right"]].set_visible(False)
    at.legend(loc="upper center", bbox_to_anchor=(0.45, -0.14), frameon=False, fontsize="small", ncols=1)
