"""Drawings that several studies share: panels, grids of small figures, curves, bars, accuracy against one number."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crowdml.core.files import save_figure
from crowdml.simulation import Result
from crowdml.simulation.reporting.figures import COLOURS, STYLES
from crowdml.studies.comparisons import Floats, spread, standard_error
from crowdml.studies.study import Results

Lines = Mapping[str, Sequence[tuple[float, Floats]]]
"""By name, points (x, accuracies)."""
MARKS = "osD^vPX*h<>"
GREY = "#555555"

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


@contextlib.contextmanager
def panels(
    path: Path,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    grid: Literal["both", "x", "y"] = "both",
    share: bool = False,
) -> Iterator[tuple[Any, Any]]:
    """Hand out a figure and its panels, an array of `rows` x `columns`; what was drawn then goes into the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    for at in axes.flat:
        at.grid(alpha=0.25, axis=grid)
        at.spines[["top", "right"]].set_visible(False)
    yield figure, axes
    save_figure(figure, path)


@contextlib.contextmanager
def panel(
    path: Path, title: str, size: tuple[float, float], grid: Literal["both", "x", "y"] = "y"
) -> Iterator[tuple[Any, Any]]:
    """Hand out a figure and its only panel."""
    with panels(path, size, grid=grid) as (figure, axes):
        axes[0, 0].set_title(title, loc="left", fontsize="medium", wrap=True)
        yield figure, axes[0, 0]


def head(figure: Any, title: str, width: int) -> None:
    """Write a title above all panels, in lines of so many letters."""
    figure.suptitle("\n".join(textwrap.wrap(title, width)), x=0.01, ha="left", fontsize="medium")


def check_ins(result: Result) -> Floats:
    """Return the check-ins behind each point of a curve, where all use the same number of rows."""
    per_trial = result.updates / result.trials
    return np.asarray(result.samples / result.samples[-1] * per_trial, np.float64)


def draw_grid(cells: Mapping[str, Mapping[str, Results]], path: Path, title: str) -> None:
    """Draw one small figure per cell, with one line per result and a band of one standard deviation.

    Args:
        cells: Lines by label, in figures by column, by row.
        path: The file.
        title: Above it.
    """
    columns = list(next(iter(cells.values())))
    size = (2.1 * len(columns) + 0.8, 1.6 * len(cells) + 1.0)
    with panels(path, size, len(cells), len(columns), share=True) as (figure, axes):
        for row, (name, line) in zip(axes, cells.items(), strict=True):
            row[0].set_ylabel(name, fontsize="small")
            for at, lines in zip(row, line.values(), strict=True):
                for index, (label, result) in enumerate(lines.items()):
                    colour, style = COLOURS[index % len(COLOURS)], STYLES[index % len(STYLES)]
                    values, x = 1 - result.measured["test_error"], check_ins(result)
                    at.plot(x, values.mean(axis=1), style, color=colour, label=label, linewidth=1.6)
                    _band(at, x, values, colour, 0.15, ddof=0)
                at.set(xlim=(0, None), ylim=(0, 1))
        for top, bottom, heading in zip(axes[0], axes[-1], columns, strict=True):
            top.set_title(heading, fontsize="medium")
            bottom.set_xlabel("check-ins", fontsize="small")
        head(figure, title, 28 * len(columns))
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize="small")


def _band(at: Any, x: Floats, values: Floats, colour: str, alpha: float, ddof: int) -> None:
    """Fill one standard deviation over trials to either side of the mean."""
    mean, deviation = values.mean(axis=1), values.std(axis=1, ddof=ddof)
    at.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=alpha, linewidth=0)


def draw_curves(results: Results, path: Path, title: str) -> None:
    """Draw accuracy against rows used, and beside it the loss where it was measured."""
    with_loss = all("test_loss" in result.measured for result in results.values())
    with panels(path, (11.0, 5.0) if with_loss else (7.0, 5.0), columns=1 + with_loss, grid="y") as (figure, axes):
        _draw_ways(axes[0, 0], results, "test accuracy, %", lambda found: 100 * (1 - found["test_error"]))
        if with_loss:
            _draw_ways(axes[0, 1], results, "test loss", lambda found: np.asarray(found["test_loss"]))
        head(figure, title, 150 if with_loss else 90)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize="medium")


def _draw_ways(at: Any, results: Results, ylabel: str, values: Callable[[Mapping[str, Floats]], Floats]) -> None:
    """Draw a line for every way to average; bands of one standard deviation over trials for the two compared."""
    at.set_axisbelow(True)
    for label, (colour, style, width) in _LINES.items():
        found, samples = values(results[label].measured), np.asarray(results[label].samples) / 1000
        alone = "o" if len(samples) == 1 else ""  # a line of one point would not be seen
        at.plot(samples, found.mean(axis=1), style, marker=alone, color=colour, linewidth=width, label=label)
        if label in _WITH_BANDS:
            _band(at, samples, found, colour, 0.12, ddof=1 if found.shape[1] > 1 else 0)
    at.set(xlabel="rows used by the crowd, thousands", ylabel=ylabel, xlim=(0, None))


def draw_bars(
    groups: Mapping[str, Mapping[str, Floats]],
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
    names = dict.fromkeys(name for bars in groups.values() for name in bars)
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    width = 0.84 / max(len(bars) for bars in groups.values())
    with panel(path, title, (7.0, 4.6)) as (figure, axes):
        axes.set_axisbelow(True)
        for at, bars in enumerate(groups.values()):
            for place, (name, values) in enumerate(bars.items()):
                left, mean = at + (place - (len(bars) - 1) / 2) * width, float(values.mean())
                axes.bar(left, mean, width * 0.92, color=colours[name])
                axes.errorbar(left, mean, spread(values), color="#333333", linewidth=1.0, capsize=2)
        for name in filter(None, names):
            axes.bar(0, 0, color=colours[name], label=name)
        for (height, meaning), style in zip(lines, ("--", "-.", ":"), strict=False):
            axes.axhline(height, color="#777777", linewidth=1.2, linestyle=style, label=meaning)
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set_ylabel(ylabel)
        if not whole:
            every = [values for bars in groups.values() for values in bars.values()]
            ends = [float(values.mean() + side * values.std()) for values in every for side in (-1, 1)]
            axes.set_ylim(max(0.0, 5 * np.floor(min(ends) / 5) - 5), min(100.0, max(ends) + 2))
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="medium")


def draw_levels(groups: Mapping[str, Lines], levels: Mapping[str, Floats], path: Path, title: str, xlabel: str) -> None:
    """Draw accuracy against one number: groups of lines below each other, since narrow screens show them too.

    Args:
        groups: Lines by the heading of their panel.
        levels: What every panel has a dotted line for.
        path: The file.
        title: Above it.
        xlabel: What the number is.
    """
    from matplotlib.ticker import FormatStrFormatter

    with panels(path, (6.4, 1.0 + 5.0 * len(groups)), len(groups)) as (figure, axes):
        for at, (heading, lines) in zip(axes.flat, groups.items(), strict=True):
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
                dashes = (0, (1 + 3 * index, 2))
                at.axhline(float(values.mean()), color=GREY, linewidth=1, linestyle=dashes, label=label)
            at.set(xscale="log", xlabel=xlabel, ylabel="test accuracy")
            at.set_xticks(sorted({x for points in lines.values() for x, _ in points}))
            at.xaxis.set_major_formatter(FormatStrFormatter("%g"))
            at.minorticks_off()
            at.legend(loc="upper center", bbox_to_anchor=(0.45, -0.14), frameon=False, fontsize="small", ncols=1)
            at.set_title(heading, loc="left", fontsize="medium")
        head(figure, title, 76)
