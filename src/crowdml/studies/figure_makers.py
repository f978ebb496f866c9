"""Figures that several studies share: grids of small panels, ways to average, bars, accuracy by one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.comparisons import Floats, spread, standard_error
from crowdml.studies.figure import BLACK, GREY, Figure, Panel, level, line, panel, series
from crowdml.studies.study import Results

Points = Mapping[str, Sequence[tuple[float, Floats]]]
"""By name, points (x, accuracies)."""
SMALL = 30
"""Points of a line in a small panel."""

_WAYS = {
    "by size": (BLACK, 0),
    "learned": (0, 0),
    "fine-tuned on public rows": (1, 1),
    "inverse variance": (2, 2),
    "learned, as in the paper": (3, 3),
    "learned, unconstrained": (5, 3),
    "public rows only": (GREY, 1),
}
"""Colour and dash of each way; equal weights are left out, which are those by size where all devices have as many
rows."""
_WITH_BANDS = ("by size", "learned")


def check_ins(result: Result) -> Floats:
    """Return the check-ins behind each point of a curve, where all use the same number of rows."""
    per_trial = result.updates / result.trials
    return np.asarray(result.samples / result.samples[-1] * per_trial, np.float64)


def grid(cells: Mapping[str, Mapping[str, Results]]) -> Figure:
    """Make one small panel per cell, with one line per result and a band of one standard deviation.

    Args:
        cells: Lines by label, in panels by column, by row.
    """
    columns = list(next(iter(cells.values())))
    panels = [
        panel(
            [
                line(label, check_ins(result), 1 - result.measured["test_error"], colour=at, dash=at, most=SMALL)
                for at, (label, result) in enumerate(cell.items())
            ],
            heading=heading if not row else "",
            xlabel="check-ins" if row == len(cells) - 1 else "",
            ylabel=name if heading == columns[0] else "",
            bottom=0.0,
            top=1.0,
        )
        for row, (name, of_row) in enumerate(cells.items())
        for heading, cell in of_row.items()
    ]
    return Figure(panels=tuple(panels), columns=len(columns))


def ways(results: Results) -> Figure:
    """Show accuracy against rows used by every way to average, and below it the loss where it was measured."""
    panels = [_ways(results, "test accuracy, %", lambda found: 100 * (1 - found["test_error"]))]
    if all("test_loss" in result.measured for result in results.values()):
        panels.append(_ways(results, "test loss", lambda found: np.asarray(found["test_loss"])))
    return Figure(panels=tuple(panels))


def _ways(results: Results, ylabel: str, values: Callable[[Mapping[str, Floats]], Floats]) -> Panel:
    """Make a line for every way to average; bands of one standard deviation over trials for the two compared."""
    shown = []
    for label, (colour, dash) in _WAYS.items():
        found, samples = values(results[label].measured), np.asarray(results[label].samples, np.float64)
        if len(samples) == 1:
            shown.append(level(label, float(found[0].mean()), colour=colour, dash=dash))
        else:
            band = label in _WITH_BANDS
            shown.append(line(label, samples, found, colour=colour, dash=dash, band=band))
    return panel(shown, xlabel="rows used by the crowd", ylabel=ylabel)


def bars(
    groups: Mapping[str, Mapping[str, Floats]],
    ylabel: str,
    levels: Sequence[tuple[float, str]] = (),
    whole: bool = False,
) -> Figure:
    """Show values side by side, one group after the other, with one standard deviation over trials.

    Args:
        groups: Values of every trial, by group and bar; bars of the same name have the same colour, and those without
            a name do not stand in the legend.
        ylabel: What the values are.
        levels: Level lines: where, and what they mean.
        whole: Whether bars begin at zero; otherwise they are per cent, and the axis begins below the lowest of them.
    """
    names = dict.fromkeys(name for of_group in groups.values() for name in of_group)
    shown = []
    for colour, name in enumerate(names):
        found = {float(at): of_group[name] for at, of_group in enumerate(groups.values()) if name in of_group}
        means, wide = (
            [float(values.mean()) for values in found.values()],
            [spread(values) for values in found.values()],
        )
        shown.append(series(name, "bars", found, means, wide, colour=colour))
    shown += [level(meaning, height, dash=1 + at) for at, (height, meaning) in enumerate(levels)]
    bottom = top = None
    if not whole:
        every = [values for of_group in groups.values() for values in of_group.values()]
        ends = [float(values.mean() + side * spread(values)) for values in every for side in (-1, 1)]
        ends = [*filter(math.isfinite, ends), *(height for height, _ in levels)]
        bottom, top = max(0.0, 5 * math.floor(min(ends) / 5) - 5.0), min(100.0, float(math.ceil(max(ends) + 2)))
    ticks = [(float(at), " ".join(words.split())) for at, words in enumerate(groups)]
    return Figure(panels=(panel(shown, ylabel=ylabel, bottom=bottom, top=top, ticks=ticks),))


def by_number(groups: Mapping[str, Points], levels: Mapping[str, Floats], xlabel: str) -> Figure:
    """Show accuracy against one number, with its standard error: groups of lines below each other.

    Args:
        groups: Lines by the heading of their panel.
        levels: What every panel has a level line for.
        xlabel: What the number is.
    """
    panels = []
    for heading, lines in groups.items():
        shown = [
            series(
                label,
                "points",
                [x for x, _ in points],
                [float(values.mean()) for _, values in points],
                [standard_error(values) for _, values in points],
                colour=at,
                dash=at,
            )
            for at, (label, points) in enumerate(lines.items())
        ]
        shown += [
            level(label, float(values.mean()), dash=3 - 2 * at) for at, (label, values) in enumerate(levels.items())
        ]
        places = sorted({x for points in lines.values() for x, _ in points})
        ticks = [(x, f"{x:g}") for x in places]
        panels.append(panel(shown, heading=heading, xlabel=xlabel, ylabel="test accuracy", log=True, ticks=ticks))
    return Figure(panels=tuple(panels))
