"""Draw what a figure shows: narrow enough for a phone, in colours that colour-blind readers can tell apart.

The same figure gives the same bytes: no date, no random names, numbers cut to what can be seen.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from crowdml.core.files import save_figure
from crowdml.simulation.reporting.figures import COLOURS, STYLES
from crowdml.studies.figure import Figure, Panel, Series

MARKS = "os^Dv*PX<>h"
GREY = "#6b6b6b"
PALETTE = (*COLOURS, GREY)
WIDTH = 4.8
"""Inches; a phone shows it at about its own size."""
SIZE, LINE = 9.0, 0.165
"""Points of the letters, and inches from line to line."""
LETTERS = 60
"""So many of them fit side by side."""
KEY = 7
"""As many letters as the sample of a line takes in the legend."""
ALONE, STACKED, IN_GRID, STEP = 2.9, 2.5, 1.0, 0.44
"""Heights in inches: of an only panel, of one among several, of one in a grid, and of a line of a turned panel."""
BAR = 0.84
"""Share of a group's place that its bars take."""

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": SIZE,
    "axes.titlesize": SIZE,
    "axes.labelsize": SIZE,
    "xtick.labelsize": SIZE - 0.5,
    "ytick.labelsize": SIZE - 0.5,
    "legend.fontsize": SIZE - 0.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "savefig.dpi": 200,
    "figure.dpi": 72,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "crowdml",
}


@contextlib.contextmanager
def _our_style() -> Iterator[None]:
    """Use our style and nobody's own."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        cast(Any, matplotlib.rcParams).update(_STYLE)
        yield


def save(figure: Figure, title: str, path: Path) -> None:
    """Draw a figure into a file."""
    with _our_style():
        save_figure(drawn(figure, title), path)


def svg(figure: Figure, title: str) -> str:
    """Draw a figure as SVG: the same bytes whenever and wherever it is drawn."""
    stream = io.StringIO()
    with _our_style():
        unstamped = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawn(figure, title).savefig(stream, format="svg", metadata=unstamped)
    cut = re.sub(r"<[^>]*>", _cut_places, stream.getvalue())
    return "\n".join(line.rstrip() for line in cut.splitlines()) + "\n"


def _cut_places(tag: re.Match[str]) -> str:
    """Cut numbers within a tag to two digits, which are places; words between tags stay as they are."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag[0])


def drawn(figure: Figure, title: str) -> Any:
    """Draw a figure with matplotlib; whoever saves it does so in the same style."""
    from matplotlib.figure import Figure as Picture

    rows, columns = -(-len(figure.panels) // figure.columns), figure.columns
    labels = [_named(panel) for panel in figure.panels]
    common = all(each == labels[0] for each in labels)
    if common and len(figure.panels[0].series) == 1:
        labels = [[]] * len(labels)  # the title says what the only one is
    legends = labels[:1] if common else labels
    heads = textwrap.wrap(title, LETTERS)
    height = len(heads) * LINE + sum(map(_height_of_legend, legends)) + sum(_heights(figure))
    picture = Picture(figsize=(WIDTH, height + 0.15), layout="constrained")
    in_grid = columns > 1
    axes = picture.subplots(rows, columns, squeeze=False, sharex=in_grid, sharey=in_grid)
    for at, panel in zip(axes.flat, figure.panels, strict=True):
        _draw_panel(at, panel, in_grid)
        if not common:
            _own_legend(at, panel, _named(panel))
    picture.suptitle("\n".join(heads), x=0.01, ha="left", fontsize=SIZE)
    if common and legends[0]:
        handles, words = _handles(axes.flat[0], figure.panels[0])
        picture.legend(
            handles, words, loc="outside lower center", ncols=_columns(legends[0]), frameon=False, handlelength=2.4
        )
    return picture


def _heights(figure: Figure) -> list[float]:
    """Return how high each row of panels is, in inches."""
    if figure.columns > 1:
        rows = len(figure.panels) // figure.columns
        each = IN_GRID if rows > 2 else WIDTH / figure.columns
        return [max(IN_GRID, min(each, 2.2)) + 0.1] * rows + [0.4]
    if any(panel.turned for panel in figure.panels):
        return [0.6 + STEP * len(panel.ticks) for panel in figure.panels]
    return [ALONE if len(figure.panels) == 1 else STACKED + 0.2 * bool(panel.heading) for panel in figure.panels]


def _columns(labels: Sequence[str]) -> int:
    """Return how many names stand side by side in a legend: as many in every line, as far as possible."""
    most = max(1, min(4, LETTERS // (max(map(len, labels)) + KEY)))
    return -(-len(labels) // -(-len(labels) // most))


def _height_of_legend(labels: Sequence[str]) -> float:
    if not labels:
        return 0.0
    lines = sum(len(_wrapped(label)) for label in labels)
    return (lines / _columns(labels) + 1) * LINE


def _wrapped(words: str, width: int = LETTERS - KEY) -> list[str]:
    """Cut words into lines; a letter and its value stay together."""
    lines = words.replace(" = ", "\u00a0=\u00a0").splitlines()
    return [part for line in lines for part in textwrap.wrap(line, width)]


def _handles(at: Any, panel: Panel) -> tuple[list[Any], list[str]]:
    """Return what the legend shows, in the order of the series."""
    known = {words: handle for handle, words in zip(*at.get_legend_handles_labels(), strict=True)}
    labels = [label for label in _named(panel) if label in known]
    return [known[label] for label in labels], ["\n".join(_wrapped(label)) for label in labels]


def _named(panel: Panel) -> list[str]:
    """Return the names of a legend: not those that stand on the axis."""
    on_axis = {words for _, words in panel.ticks} if panel.turned else set()
    return [one.label for one in panel.series if one.label and one.label not in on_axis]


def _own_legend(at: Any, panel: Panel, labels: Sequence[str]) -> None:
    """Put a legend below a panel, so far that it is not over what stands below the axis."""
    handles, words = _handles(at, panel)
    at.legend(
        handles,
        words,
        loc="upper center",
        bbox_to_anchor=(0.45, 0.0),
        borderaxespad=3.6 if panel.xlabel else 2.0,
        ncols=_columns(labels),
        frameon=False,
        handlelength=2.4,
    )


def _draw_panel(at: Any, panel: Panel, small: bool) -> None:
    bars = [one for one in panel.series if one.kind == "bars"]
    for number, one in enumerate(panel.series):
        colour = PALETTE[one.colour % len(PALETTE)]
        if one.kind == "bars":
            _draw_bars(at, one, bars, colour)
        elif one.kind == "level":
            (at.axvline if panel.turned else at.axhline)(
                one.y[0], color=colour, linestyle=STYLES[one.dash % len(STYLES)], linewidth=1.3, label=one.label or None
            )
        elif one.kind == "line":
            _draw_line(at, one, colour)
        else:
            _draw_marks(at, one, colour, MARKS[(one.colour if panel.turned else number) % len(MARKS)], panel.turned)
    _set_axes(at, panel, small)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _draw_line(at: Any, one: Series, colour: str) -> None:
    y = _numbers(one.y)
    mark = "o" if len(y) == 1 else ""  # a line of one point would not be seen
    at.plot(one.x, y, STYLES[one.dash % len(STYLES)], marker=mark, color=colour, label=one.label or None)
    if any(one.spread):
        wide = _numbers(one.spread)
        low, high = ([value + side * each for value, each in zip(y, wide, strict=True)] for side in (-1, 1))
        at.fill_between(one.x, low, high, color=colour, alpha=0.15, linewidth=0)


def _draw_marks(at: Any, one: Series, colour: str, mark: str, turned: bool) -> None:
    """Draw marks with their spread; those that are joined have the line of their dash."""
    x, y, wide = list(one.x), _numbers(one.y), _numbers(one.spread) if any(one.spread) else None
    join = STYLES[one.dash % len(STYLES)] if one.kind == "points" else "none"
    places = {"x": y, "y": x, "xerr": wide} if turned else {"x": x, "y": y, "yerr": wide}
    at.errorbar(**places, marker=mark, linestyle=join, color=colour, label=one.label or None, capsize=2)


def _draw_bars(at: Any, one: Series, bars: Sequence[Series], colour: str) -> None:
    """Draw the bars of one name, each beside those of other names in its group."""
    width = BAR / max(sum(x in each.x for each in bars) for x in {x for each in bars for x in each.x})
    left = []
    for x in one.x:
        beside = [each for each in bars if x in each.x]
        left.append(x + (beside.index(one) - (len(beside) - 1) / 2) * width)
    at.bar(left, _numbers(one.y), width * 0.92, color=colour, label=one.label or None)
    if any(one.spread):
        at.errorbar(left, _numbers(one.y), _numbers(one.spread), fmt="none", color="#333333", linewidth=1, capsize=2)


def _set_axes(at: Any, panel: Panel, small: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if panel.log:
        (at.set_yscale if panel.turned else at.set_xscale)("log")
    values, places = (at.xaxis, at.yaxis) if panel.turned else (at.yaxis, at.xaxis)
    values.set_major_locator(MaxNLocator(3 if small else 6, steps=[1, 2, 5, 10]))
    if max(map(abs, values.get_view_interval())) >= 1e4:
        values.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if panel.ticks:
        room = 34 if panel.turned else max(6, LETTERS // len(panel.ticks) - 1)
        words = ["\n".join(_wrapped(word, room)) for _, word in panel.ticks]
        places.set_ticks([place for place, _ in panel.ticks], words)
        places.set_tick_params(which="minor", length=0)
        places.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        if not panel.log:
            places.grid(panel.turned)
    elif not panel.log:
        places.set_major_locator(MaxNLocator(2 if small else 6, steps=[1, 2, 5, 10]))
        places.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"))
        at.set_xlim(0, None)
    else:
        places.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    (at.set_xlim if panel.turned else at.set_ylim)(panel.bottom, panel.top)
    if panel.turned:
        at.invert_yaxis()
    across, up = (panel.ylabel, panel.xlabel) if panel.turned else (panel.xlabel, panel.ylabel)
    at.set(xlabel=across, ylabel=up)
    at.set_title(panel.heading, loc="left" if not small else "center")
