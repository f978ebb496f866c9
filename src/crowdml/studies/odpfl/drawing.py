"""Drawings of studies that compare ways to average: accuracy over time, and bars side by side."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crowdml.core.validation import write_whole
from crowdml.simulation import Result
from crowdml.simulation.plot import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = npt.NDArray[np.float64]

_LINES = {
    "by size": ("#000000", "-", 2.2),
    "learned": (COLOURS[0], "-", 2.6),
    "fine-tuned on public rows": (COLOURS[1], "--", 1.8),
    "inverse variance": (COLOURS[2], "-.", 1.5),
    "learned, as in the paper": (COLOURS[3], ":", 1.8),
    "learned, unconstrained": (COLOURS[5], ":", 1.5),
    "public rows only": ("#777777", "--", 1.2),
}
"""How each way is drawn; equal weights are left out, which are those by size where all devices have as many rows."""
_WITH_BANDS = ("by size", "learned")


def draw_curves(results: Mapping[str, Result], path: Path, title: str) -> None:
    """Draw accuracy against rows used; bands of one standard deviation over trials for the two that are compared."""
    figure, axes = _begin(title, (7.0, 5.0))
    for label, (colour, style, width) in _LINES.items():
        result = results[label]
        found = 100 * (1 - result.measured["test_error"])
        mean, spread = found.mean(axis=1), found.std(axis=1, ddof=1 if found.shape[1] > 1 else 0)
        samples = np.asarray(result.samples) / 1000
        axes.plot(samples, mean, style, color=colour, linewidth=width, label=label)
        if label in _WITH_BANDS:
            axes.fill_between(samples, mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
    axes.set(xlabel="rows used by the crowd, thousands", ylabel="test accuracy, %", xlim=(0, None))
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="medium")
    _save(figure, path)


def draw_bars(
    groups: Mapping[str, Mapping[str, Values]],
    path: Path,
    title: str,
    ylabel: str,
    lines: Sequence[tuple[float, str]] = (),
    whole: bool = False,
) -> None:
    """Draw bars side by side, one group after the other, with one standard deviation over trials.

    Args:
        groups: Values of every trial, by group and bar; bars of the same name have the same colour, and those without
            a name do not stand in the legend.
        path: The file.
        title: Above it.
        ylabel: What the values are.
        lines: Level lines: where, and what they mean.
        whole: Whether bars begin at zero; otherwise they are per cent, and the axis begins below the lowest of them.
    """
    figure, axes = _begin(title, (7.0, 4.6))
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    width = 0.84 / max(len(bars) for bars in groups.values())
    for at, bars in enumerate(groups.values()):
        for place, (name, values) in enumerate(bars.items()):
            left = at + (place - (len(bars) - 1) / 2) * width
            spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
            mean = float(values.mean())
            axes.bar(left, mean, width * 0.92, color=COLOURS[names.index(name) % len(COLOURS)])
            axes.errorbar(left, mean, spread, color="#333333", linewidth=1.0, capsize=2)
    for name in filter(None, names):
        axes.bar(0, 0, color=COLOURS[names.index(name) % len(COLOURS)], label=name)
    for (height, meaning), style in zip(lines, ("--", "-.", ":"), strict=False):
        axes.axhline(height, color="#777777", linewidth=1.2, linestyle=style, label=meaning)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel(ylabel)
    if not whole:
        ends = [float(v.mean() + side * v.std()) for bars in groups.values() for v in bars.values() for side in (-1, 1)]
        axes.set_ylim(max(0.0, 5 * np.floor(min(ends) / 5) - 5), min(100.0, max(ends) + 2))
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="medium")
    _save(figure, path)


def _begin(title: str, size: tuple[float, float]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize="medium", wrap=True)
    axes.grid(alpha=0.25, axis="y")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())
