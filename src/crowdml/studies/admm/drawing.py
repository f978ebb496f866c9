"""Accuracy against one number: means over splits with their standard errors, and lines for what has no such number."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from crowdml.core.validation import write_whole
from crowdml.simulation.plot import COLOURS, STYLES
from crowdml.studies.admm.common import Floats, standard_error

MARKS = "osD^vPX*h<>"


def draw_levels(
    lines: Mapping[str, Sequence[tuple[float, Floats]]],
    levels: Mapping[str, Floats],
    path: Path,
    title: str,
    axis: str,
) -> None:
    """Draw one line per entry of `lines`, through (x, accuracies), and a dotted one per entry of `levels`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FormatStrFormatter

    figure = Figure(figsize=(7.6, 4.8), dpi=150, layout="constrained")
    at = figure.subplots()
    for index, (label, points) in enumerate(lines.items()):
        at.errorbar(
            [x for x, _ in points],
            [float(values.mean()) for _, values in points],
            yerr=[standard_error(values) for _, values in points],
            fmt=MARKS[index % len(MARKS)] + STYLES[index % len(STYLES)],
            color=COLOURS[index % len(COLOURS)],
            label=label,
            linewidth=1.5,
            markersize=4,
            capsize=2,
        )
    for index, (label, values) in enumerate(levels.items()):
        at.axhline(float(values.mean()), color="#555555", linewidth=1, linestyle=(0, (1 + 3 * index, 2)), label=label)
    at.set(xscale="log", xlabel=axis, ylabel="test accuracy")
    ticks = sorted({x for points in lines.values() for x, _ in points})
    at.set_xticks(ticks)
    at.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    at.minorticks_off()
    at.grid(alpha=0.25)
    at.spines[["top", "right"]].set_visible(False)
    at.set_title("\n".join(textwrap.wrap(title, 90)), loc="left", fontsize="medium")
    figure.legend(loc="outside right center", frameon=False, fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())
