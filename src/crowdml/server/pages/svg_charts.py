"""Charts as SVG, drawn by the server: they are there without JavaScript, and each has its numbers in a table.

A chart is a record: the drawing, a sentence that says what it shows, and names and rows of its table. Colours are
classes of the style sheet, so that a chart is light or dark with its page. All text in a drawing is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from crowdml.core import record

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 18, 18, 58
TABLE_ROWS = 20
"""Rows of a table at most; a curve has more points than anybody reads."""
BROAD, STRONG = 12.0, 15.0
"""How wide a letter is at most, which is on a phone; and one that stands out."""
MOST_POINTS = 150
"""Points of a drawn curve at most: more would not be seen."""

Place = Callable[[float], float]


@record
class Chart:
    """A drawing with what it says.

    Attributes:
        svg: The drawing.
        caption: What it shows, in words.
        names: Names of the columns of its table.
        rows: Its rows, as text.
    """

    svg: Markup
    caption: str
    names: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@record
class Series:
    """A curve.

    Attributes:
        points: Pairs of where and how much, in order.
        band: Lower and upper end at each of them; empty: no band.
        name: What it is, where there are several.
        kind: Class of the style sheet: empty, or `second`.
    """

    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = ()
    name: str = ""
    kind: str = ""


@record
class Bar:
    """A bar.

    Attributes:
        name: What it is of.
        value: How long it is.
        low: Lower end of its band; None: it has none.
        high: Upper end.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def thinned(points: Sequence[object], most: int) -> list[int]:
    """Return places of so many points at most, evenly spread, with the last.

    >>> thinned("abcdefg", 3)
    [0, 3, 6]
    """
    step = max(1, -(-(len(points) - 1) // max(1, most - 1)))
    return list(range(len(points) - 1, -1, -step))[::-1]


def whole_ticks(most: float) -> list[int]:
    """Return whole numbers from 0 up to `most`: at most six, in steps of 1, 2 or 5 times a power of ten.

    >>> whole_ticks(3), whole_ticks(130)
    ([0, 1, 2, 3], [0, 50, 100])
    """
    at = 0
    while most / _step(at) > 5:
        at += 1
    return list(range(0, int(most) + 1, _step(at)))


def _step(at: int) -> int:
    return int((1, 2, 5)[at % 3] * 10 ** (at // 3))


def in_short(number: float) -> str:
    """Write a number so short that it fits beside an axis on a phone.

    >>> in_short(0.25), in_short(5000), in_short(20_000), in_short(2_500_000)
    ('0.25', '5000', '20k', '2.5M')
    """
    for letter, size in (("M", 1e6), ("k", 1e3)):
        if number >= max(10_000, size):
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def line_chart(
    series: Sequence[Series], *, id: str, across: str, ticks: Sequence[float], most: float, label: str
) -> Markup:
    """Draw curves over the same axes.

    Args:
        series: The curves; the first comes first.
        id: Name of the drawing in its page.
        across: What goes across.
        ticks: Marks of the axis upwards.
        most: Upper end of that axis.
        label: What the drawing shows, for who cannot see it.
    """
    last = max((points[-1][0] for points in (curve.points for curve in series) if points), default=1.0)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(where: float) -> float:
        return LEFT + width * where / max(1.0, last)

    def y(number: float) -> float:
        return TOP + height * (1 - min(1.0, max(0.0, number / (most or 1.0))))

    parts = [_across_line(y(tick), in_short(tick)) for tick in ticks]
    for tick in whole_ticks(last):
        anchor = "end" if tick == last and tick else "middle"
        parts.append(f'<line class="base" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{y(0):.1f}" y2="{y(0) + 5:.1f}"/>')
        parts.append(_text("tick x", x(tick), y(0) + 24, in_short(tick), anchor))
    parts.append(_text("name", LEFT + width / 2, HEIGHT - 8, across))
    for curve in series:
        parts += _curve(curve, x, y)
    parts += _keys(series)
    return _svg("".join(parts), id, label, HEIGHT)


def _across_line(at: float, name: str) -> str:
    line = f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
    return line + _text("tick y", LEFT - 10, at + 5, name, "end")


def _curve(curve: Series, x: Place, y: Place) -> list[str]:
    parts = []
    if curve.band:
        upper = [(where, high) for (where, _), (_, high) in zip(curve.points, curve.band, strict=True)]
        lower = [(where, low) for (where, _), (low, _) in zip(curve.points, curve.band, strict=True)]
        parts.append(f'<path class="band {curve.kind}" d="{_path([*upper, *lower[::-1]], x, y)}Z"/>')
    if curve.points:
        parts.append(f'<path class="line {curve.kind}" d="{_path(curve.points, x, y)}"/>')
        where, value = curve.points[-1]
        parts.append(f'<circle class="dot {curve.kind}" cx="{x(where):.1f}" cy="{y(value):.1f}" r="4.5"/>')
    return parts


def _keys(series: Sequence[Series]) -> list[str]:
    """Name the curves in their colours, where there are several."""
    if len(series) < 2:
        return []
    return [
        _text(f"key key-{number + 1}", WIDTH - RIGHT, TOP + 16 + 24 * number, curve.name, "end")
        for number, curve in enumerate(series)
    ]


def bar_chart(bars: Sequence[Bar], *, id: str, label: str, most: float, written: Callable[[Bar], str]) -> Markup:
    """Draw bars that lie below each other, each with its name to the left and its number to the right.

    Args:
        bars: From above.
        id: Name of the drawing in its page.
        label: What the drawing shows, for who cannot see it.
        most: The number that is as long as there is room.
        written: Writes the number of a bar.
    """
    pitch = 34
    # Letters are larger on a phone: names there are twice as wide as on a desk.
    left = 24 + STRONG * max((len(_short(bar.name)) for bar in bars), default=0)
    room = WIDTH - left - 150.0
    parts = []
    for number, bar in enumerate(bars):
        top = 6 + pitch * number
        length = room * min(1.0, max(0.0, bar.value / (most or 1.0)))
        parts.append(_text("strong", left - 12, top + 19, _short(bar.name), "end"))
        banded = bar.low is not None and bar.high is not None
        kind = "bar banded" if banded else "bar"
        parts.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{length:.1f}" height="{pitch - 8}" rx="3"/>')
        if bar.low is not None and bar.high is not None:
            low, high = (left + room * min(1.0, max(0.0, end / (most or 1.0))) for end in (bar.low, bar.high))
            middle = top + (pitch - 8) / 2
            ends = f"M{low:.1f} {middle - 5}v10M{low:.1f} {middle}H{high:.1f}M{high:.1f} {middle - 5}v10"
            parts.append(f'<path class="whisker" d="{ends}"/>')
        parts.append(_text("", WIDTH - 4, top + 19, written(bar), "end"))
    parts.insert(0, f'<line class="base" x1="{left}" x2="{left}" y1="2" y2="{4 + pitch * len(bars)}"/>')
    return _svg("".join(parts), id, label, 8 + pitch * max(1, len(bars)))


def column_chart(bars: Sequence[Bar], *, id: str, label: str) -> Markup:
    """Draw columns beside each other; as many of their names are written as there is room for."""
    most = max((bar.value for bar in bars), default=1.0)
    width, height = WIDTH - LEFT - RIGHT, 200
    pitch = min(140.0, width / max(1, len(bars)))

    def y(number: float) -> float:
        return TOP + height * (1 - number / (most or 1.0))

    parts = [_across_line(y(tick), in_short(tick)) for tick in whole_ticks(most)]
    every = max(1, math.ceil((BROAD * max((len(bar.name) for bar in bars), default=0) + 18) / pitch))
    for number, bar in enumerate(bars):
        left, top = LEFT + pitch * number + pitch * 0.12, y(bar.value)
        size = f'width="{pitch * 0.76:.1f}" height="{TOP + height - top:.1f}"'
        parts.append(f'<rect class="bar" x="{left:.1f}" y="{top:.1f}" {size} rx="2"/>')
        if number % every == 0:
            half = BROAD * len(bar.name) / 2
            at = min(WIDTH - half, max(half, left + pitch * 0.38))
            parts.append(_text("tick x", at, TOP + height + 24, bar.name))
    return _svg("".join(parts), id, label, TOP + height + 36)


def spark_line(points: Sequence[tuple[float, float]], band: Sequence[tuple[float, float]], label: str) -> Markup:
    """Draw a curve without axes, as small as a word."""
    if len(points) < 2:
        return Markup("")
    kept = thinned(points, 60)
    curve = Series(points=[points[at] for at in kept], band=[band[at] for at in kept] if band else ())
    last = curve.points[-1][0] or 1.0
    most = max([value for _, value in curve.points] + [high for _, high in curve.band]) or 1.0
    drawn = "".join(_curve(curve, lambda where: 300 * where / last, lambda value: 46 - 44 * min(1.0, value / most)))
    drawn = drawn.split("<circle", 1)[0]
    words = escape(label)
    return Markup(  # noqa: S704  numbers of ours, and escaped words
        f'<svg class="spark" viewBox="0 0 300 48" preserveAspectRatio="none" role="img" aria-label="{words}">'
        f"{drawn}</svg>"
    )


def _path(points: Sequence[tuple[float, float]], x: Place, y: Place) -> str:
    return "M" + "L".join(f"{x(where):.1f} {y(value):.1f}" for where, value in points)


def _text(kind: str, x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _short(name: str, most: int = 16) -> str:
    """Leave out the middle of a long name: what tells it from others stands at one of its ends, as a rule.

    >>> _short("Ankle boot seen from the left")
    'Ankle bo…he left'
    """
    half = most // 2
    return name if len(name) <= most else f"{name[:half]}…{name[half + 1 - most :]}"


def _svg(parts: str, id: str, label: str, height: float) -> Markup:
    return Markup(  # noqa: S704  numbers and classes of ours; words were escaped where they came in
        f'<svg class="chart" id="{id}" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{parts}</svg>"
    )
