"""What a figure shows, as plain numbers: small enough for a record, and all that is needed to draw it.

A study turns its results into a `Figure`; `crowdml.studies.drawing` draws it. So `crowdml reproduce ID --plot` and the
page of papers, which has only the records, show the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from crowdml.simulation import Result

Floats = npt.NDArray[np.float64]

PLAIN = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, revalidate_instances="always")
Kind = Literal["line", "points", "marks", "bars", "level"]
MOST = 60
"""Points of a line: more would not be seen."""
FINE = 1000
"""Numbers are kept to such a part of their axis."""
MOST_DECIMALS = 6
BLACK, GREY = 6, 7
"""The last colour of the palette, and the one after it."""


class Series(BaseModel):
    """One line, one row of marks, all bars of one colour, or a level.

    Attributes:
        label: Its name in the legend; empty: it has no line there.
        kind: `line`: joined, with a band of the spread; `points`: marks, joined; `marks`: marks alone; `bars`: side by
            side with those of other series at the same place; `level`: one number, from edge to edge.
        colour: Which colour of the palette.
        dash: Which line style, and which mark.
        x: Where; empty for a level.
        y: Means over trials; None where one is no number.
        spread: To either side of them; empty: not shown.
    """

    model_config = PLAIN

    label: str
    kind: Kind
    colour: int
    dash: int
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    spread: tuple[float | None, ...]


class Panel(BaseModel):
    """One pair of axes.

    Attributes:
        series: What is on it.
        heading: Above it.
        xlabel: What x is.
        ylabel: What y is.
        log: Whether x is logarithmic.
        bottom: Where y begins; None: wherever the series do.
        top: Where y ends; None: wherever the series do.
        ticks: Places on the x axis that have words; empty: numbers as usual.
        turned: Whether x goes downwards and y to the right, so that there is room for long words.
    """

    model_config = PLAIN

    series: tuple[Series, ...]
    heading: str = ""
    xlabel: str = ""
    ylabel: str = ""
    log: bool = False
    bottom: float | None = None
    top: float | None = None
    ticks: tuple[tuple[float, str], ...] = ()
    turned: bool = False


class Figure(BaseModel):
    """Panels, row by row.

    Attributes:
        panels: All of them; those of a grid have the same axes.
        columns: How many are side by side.
    """

    model_config = PLAIN

    panels: tuple[Panel, ...]
    columns: int = 1

    @property
    def labels(self) -> list[str]:
        """Names of all series, each once."""
        return list(dict.fromkeys(one.label for panel in self.panels for one in panel.series if one.label))


def deviation(values: Floats) -> Floats:
    """Return the standard deviation over trials at every point; 0 for a single trial."""
    return np.asarray(values.std(axis=-1, ddof=1 if values.shape[-1] > 1 else 0), np.float64)


def line(
    label: str, x: Floats, values: Floats, *, colour: int, dash: int, band: bool = True, log: bool = False,
    most: int = MOST,
) -> Series:  # fmt: skip
    """Make a line of values of shape (points, trials), of which at most so many points are kept.

    >>> line("a", np.arange(4.0), np.ones((4, 2)), colour=0, dash=0, most=2).x
    (0.0, 3.0)
    """
    at = _spaced(x, most, log)
    with np.errstate(invalid="ignore"):  # where some trial is no number, the mean is none
        mean, spread = values.mean(axis=1)[at], deviation(values)[at]
    return series(label, "line", x[at], mean, spread if band else (), colour=colour, dash=dash)


def series(
    label: str,
    kind: Kind,
    x: Iterable[float],
    y: Iterable[float],
    spread: Iterable[float] = (),
    *,
    colour: int,
    dash: int = 0,
) -> Series:
    """Make a series of plain numbers."""
    places = tuple(float(f"{float(value):.4g}") for value in x)
    means, wide = (tuple(map(_finite, values)) for values in (y, spread))
    return Series(label=label, kind=kind, colour=colour, dash=dash, x=places, y=means, spread=wide)


def level(label: str, height: float, *, colour: int = GREY, dash: int = 3) -> Series:
    """Make a level line."""
    return series(label, "level", (), (height,), colour=colour, dash=dash)


def panel(
    shown: Sequence[Series],
    *,
    heading: str = "",
    xlabel: str = "",
    ylabel: str = "",
    log: bool = False,
    bottom: float | None = None,
    top: float | None = None,
    ticks: Sequence[tuple[float, str]] = (),
    turned: bool = False,
) -> Panel:
    """Put series on axes; no number has more digits than can be seen there."""
    every = [value for one in shown for value in one.y if value is not None]
    every += [end for end in (bottom, top) if end is not None]
    width = max(every, default=1.0) - min(every, default=0.0)
    decimals = MOST_DECIMALS if width <= 0 else min(MOST_DECIMALS, max(0, math.ceil(-math.log10(width / FINE))))
    return Panel(
        series=tuple(_rounded(one, decimals) for one in shown),
        heading=heading,
        xlabel=xlabel,
        ylabel=ylabel,
        log=log,
        bottom=bottom,
        top=top,
        ticks=tuple(ticks),
        turned=turned,
    )


def curves(
    results: Mapping[str, Result],
    measure: str,
    order: Sequence[str] = (),
    looks: Mapping[str, tuple[int, int]] | None = None,
) -> Figure:
    """Make one line per result, with a band of one standard deviation. A result of one point becomes a level line.

    Args:
        results: What is shown, by label.
        measure: Which measurement.
        order: Labels of all lines of the figure, so that each looks the same whichever others there are.
        looks: By label, colour and dash; not given: each line has the next.
    """
    places = {label: at for at, label in enumerate(order or results)}
    shown = []
    for label, result in results.items():
        colour, dash = looks[label] if looks else (places[label], places[label] + places[label] // (GREY + 1))
        values = result.measured[measure]
        if len(values) == 1:
            shown.append(level(label, float(values[0].mean()), colour=colour, dash=dash))
        else:
            shown.append(line(label, np.asarray(result.samples, np.float64), values, colour=colour, dash=dash))
    words = "time-averaged error, counted by devices" if measure == "estimated_error" else measure.replace("_", " ")
    error = measure.endswith("error")
    top = 1.0 if error and _highest(shown) > 1 else None
    if all(len(result.measured[measure]) == 1 for result in results.values()):
        return _ends(results, measure, places, words)
    return Figure(panels=(panel(shown, xlabel="samples used by the crowd", ylabel=words, bottom=0.0, top=top),))


def _ends(results: Mapping[str, Result], measure: str, places: Mapping[str, int], words: str) -> Figure:
    """Show results of one point each below each other, with their names on the axis."""
    shown = []
    for label, result in results.items():
        values = result.measured[measure][0]
        spread = [float(deviation(values))]
        shown.append(series(label, "marks", [float(places[label])], [float(values.mean())], spread, colour=0))
    ticks = [(float(at), label) for label, at in places.items()]
    return Figure(panels=(panel(shown, ylabel=words, bottom=0.0, ticks=ticks, turned=True),))


def _highest(shown: Sequence[Series]) -> float:
    """Return where the highest band ends."""
    ends = [
        value + (wide or 0.0)
        for one in shown
        for value, wide in zip(one.y, one.spread or [0.0] * len(one.y), strict=True)
        if value is not None
    ]
    return max(ends, default=0.0)


def merged(stored: Figure | None, fresh: Figure, order: Sequence[str]) -> Figure:
    """Put lines that were made now in place of those of the same name, among what was stored of the same figure.

    Args:
        stored: What is known of the other lines; None, or a figure with other axes: nothing.
        fresh: What was made now.
        order: Names of all lines, as the legend has them; they also decide how each looks.
    """
    if stored is None or list(map(_axes, stored.panels)) != list(map(_axes, fresh.panels)):
        return fresh
    panels = []
    for before, now in zip(stored.panels, fresh.panels, strict=True):
        known = {one.label: one for one in before.series} | {one.label: one for one in now.series}
        kept = sorted(known.values(), key=lambda one: order.index(one.label) if one.label in order else len(order))
        panels.append(now.model_copy(update={"series": tuple(kept)}))
    return fresh.model_copy(update={"panels": tuple(panels)})


def _axes(panel: Panel) -> tuple[object, ...]:
    return panel.heading, panel.ylabel, panel.log, panel.ticks, panel.turned


def _spaced(x: Floats, most: int, log: bool) -> npt.NDArray[np.intp]:
    """Choose points that are about evenly spaced on the axis, the first and the last among them."""
    if len(x) <= most:
        return np.arange(len(x))
    along = np.log(np.maximum(x, np.finfo(float).tiny)) if log else np.arange(len(x), dtype=float)
    wanted = np.linspace(along[0], along[-1], most)
    after = np.clip(np.searchsorted(along, wanted), 1, len(x) - 1)
    return np.unique(np.where(wanted - along[after - 1] < along[after] - wanted, after - 1, after))


def _rounded(one: Series, decimals: int) -> Series:
    cut = {
        name: tuple(None if value is None else round(value, decimals) + 0.0 for value in getattr(one, name))
        for name in ("y", "spread")
    }
    return one.model_copy(update=cut)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
