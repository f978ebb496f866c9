"""Charts of a task: the error by version, how targets are spread, who takes part when, how stale check-ins are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from markupsafe import Markup

from crowdml.core import record
from crowdml.core.targets import Target
from crowdml.server.pages.rendering import counted
from crowdml.server.pages.svg_charts import (
    MOST_POINTS,
    TABLE_ROWS,
    Bar,
    Chart,
    Series,
    bar_chart,
    column_chart,
    line_chart,
    spark_line,
    thinned,
    whole_ticks,
)
from crowdml.server.store import StoredError
from crowdml.server.tasks.figures.learning_curve import CurvePoint
from crowdml.server.tasks.figures.statistics import DAYS_SHOWN, Statistics, Validated, day_name, staleness_bins
from crowdml.task.recent_error import WIDEST, RecentError
from crowdml.task.target_shares import TargetShare

WAITING = "Waiting for the first versions."
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@record
class _Measured:
    """An error of the recent check-ins, and when it was."""

    version: int
    check_ins: int
    recent: RecentError


@record
class Spark:
    """A curve as small as a word, and in words what it is of; both empty where there is none."""

    svg: Markup
    words: str


@record
class TaskCharts:
    """All charts of a task; None where there is nothing to draw."""

    error: Chart
    targets: Chart | None
    days: Chart | None
    staleness: Chart | None


def draw_charts(target: Target, statistics: Statistics, curve: Sequence[CurvePoint], ended: bool = False) -> TaskCharts:
    """Draw what there is of a task; one that has ended waits for nothing more."""
    return TaskCharts(
        error=_error(statistics, curve, ended),
        targets=_targets(target, statistics),
        days=_days(statistics),
        staleness=_staleness(statistics),
    )


def draw_spark(curve: Sequence[CurvePoint], validated: Sequence[StoredError]) -> Spark:
    """Draw the curve of a task as small as a word: its error where one is known, else its check-ins."""
    measured = [(point, point.recent_error) for point in curve if point.recent_error]
    if len(measured) > 1:
        points = [(point.stored.version, clamp(recent.estimate)) for point, recent in measured]
        band = [(recent.low, recent.high) for _, recent in measured]
        told = f"from {points[0][1]:.2f} to {points[-1][1]:.2f}"
        says = measured[0][1].says_something and measured[-1][1].says_something
        return _spark(points, band, f"Error of recent check-ins: {told if says else 'noise still hides it'}")
    if len(validated) > 1:
        errors = [(float(found.version), found.error) for found in validated]
        return _spark(errors, (), f"Error on public rows: from {errors[0][1]:.2f} to {errors[-1][1]:.2f}")
    counts = [(float(point.stored.version), float(point.stored.check_ins)) for point in curve]
    return _spark(counts, (), f"Check-ins: from {counts[0][1]:,.0f} to {counts[-1][1]:,.0f}" if curve else "")


def _spark(points: Sequence[tuple[float, float]], band: Sequence[tuple[float, float]], words: str) -> Spark:
    drawn = spark_line(points, band, words)
    return Spark(svg=drawn, words=words if drawn else "")


def clamp(number: float) -> float:
    """Bring a share into [0, 1]: noise may push an estimate out, where no share can be."""
    return min(1.0, max(0.0, number))


def _error(statistics: Statistics, curve: Sequence[CurvePoint], ended: bool) -> Chart:
    measured, validated = _measured(statistics, curve), statistics.validated
    errors = validated.errors if validated else ()
    if len(measured) < 2 and not errors:
        return _check_ins(curve, bool(measured), ended)
    series = []
    if len(measured) > 1:
        kept = [measured[at] for at in thinned(measured, MOST_POINTS)]
        points = [(float(found.version), clamp(found.recent.estimate)) for found in kept]
        band = [(found.recent.low, found.recent.high) for found in kept]
        series.append(Series(points=points, band=band, name="recent check-ins"))
    if errors:
        points = [(float(found.version), found.error) for found in (errors[at] for at in thinned(errors, MOST_POINTS))]
        series.append(Series(points=points, name="operator’s public rows", kind="second" if series else ""))
    words = _error_words(measured[-1].recent if len(measured) > 1 else None, validated, statistics.noisy)
    svg = line_chart(series, id="curve", across="version", ticks=SHARES, most=1.0, label=words)
    names, rows = _error_table(measured, errors)
    return Chart(svg=svg, caption=words, names=names, rows=rows)


def _measured(statistics: Statistics, curve: Sequence[CurvePoint]) -> list[_Measured]:
    """Return the errors of the curve, and the present one behind them."""
    found = [
        _Measured(version=point.stored.version, check_ins=point.stored.check_ins, recent=point.recent_error)
        for point in curve
        if point.recent_error
    ]
    now = statistics.recent_error
    if now and (not found or found[-1].check_ins < statistics.check_ins):
        found.append(_Measured(version=statistics.version, check_ins=statistics.check_ins, recent=now))
    return found


def _error_words(recent: RecentError | None, validated: Validated | None, noisy: bool) -> str:
    said = []
    if recent:
        why = "noise of the private counts, and sampling" if noisy else "sampling; no noise protects these counts"
        said.append(f"Error of the recent check-ins by version, and its 95 % band ({why}). Now {recent.words()}.")
    if validated and validated.errors:
        last = validated.errors[-1]
        learnt = ", from which the server learns as well, so this error is flattered" if validated.learnt_from else ""
        said.append(
            f"On the operator’s {counted(validated.rows, 'public row')}{learnt}: {last.error:.2f} at version "
            f"{last.version}. No private row and no privacy budget is behind it."
        )
    return " ".join(said)


def _error_table(
    measured: Sequence[_Measured], errors: Sequence[StoredError]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    if len(measured) < 2:
        kept = (errors[at] for at in thinned(errors, TABLE_ROWS))
        return ("version", "error on public rows"), tuple((str(point.version), f"{point.error:.2f}") for point in kept)
    rows = []
    for found in (measured[at] for at in thinned(measured, TABLE_ROWS)):
        recent = found.recent
        shown = [str(found.version), f"{found.check_ins:,}", f"{clamp(recent.estimate):.2f}"]
        shown.append(f"{recent.low:.2f} to {recent.high:.2f}")
        if errors:
            at = bisect_right(errors, found.version, key=lambda point: point.version)
            shown.append(f"{errors[at - 1].error:.2f}" if at else "–")
        rows.append(tuple(shown))
    names = ("version", "check-ins", "recent error", "95 % band", *(("on public rows",) if errors else ()))
    return names, tuple(rows)


def _check_ins(curve: Sequence[CurvePoint], counts: bool, ended: bool) -> Chart:
    """Draw check-ins where there is no error to draw."""
    if len(curve) < 2:
        none, why = ("No curve.", "The task ended before there was one.") if ended else ("No curve yet.", WAITING)
        return Chart(svg=Markup('<p class="empty">{}</p>').format(none), caption=why)
    kept = [curve[at].stored for at in thinned(curve, MOST_POINTS)]
    last = kept[-1]
    why = "" if counts else " This task sends no counts, so its error is not known."
    words = f"Check-ins by version: {last.check_ins} at version {last.version}.{why}"
    ticks = whole_ticks(last.check_ins)
    points = [(float(point.version), float(point.check_ins)) for point in kept]
    svg = line_chart(
        [Series(points=[(0.0, 0.0), *points])],
        id="curve",
        across="version",
        ticks=[float(tick) for tick in ticks],
        most=float(last.check_ins),
        label=words,
    )
    rows = tuple(
        (str(point.version), f"{point.check_ins:,}") for point in (kept[at] for at in thinned(kept, TABLE_ROWS))
    )
    return Chart(svg=svg, caption=words, names=("version", "check-ins"), rows=rows)


def _targets(target: Target, statistics: Statistics) -> Chart | None:
    if not statistics.targets:
        return None
    bars = [_share_bar(shown) for shown in statistics.targets]
    most = max(0.05, *(max(bar.value, bar.high or 0.0) for bar in bars))
    of = f"{counted(statistics.rows, 'row')} that devices looked at, a row each time it was"
    why = f"{'noise that devices added to these counts, and ' if statistics.noisy else ''}sampling"
    words = (
        f"Share of each {'label' if target.has_accuracy else 'range'} among {of}. The lines are 95 % bands: {why}."
        f"{'' if statistics.noisy else ' No noise protects these counts.'}"
        f"{' Where noise has carried a band beyond all shares there can be, none is drawn.' * _any_hidden(statistics)}"
    )
    svg = bar_chart(bars, id="targets", label=words, most=most, written=_share)
    rows = tuple((shown.name, *_share_cells(shown)) for shown in statistics.targets)
    first = "label" if target.has_accuracy else target.column
    return Chart(svg=svg, caption=words, names=(first, "share", "95 % band"), rows=rows)


def _is_hidden(shown: TargetShare) -> bool:
    """Whether noise has carried the whole band below 0 or above 1: cut off there it has no width, and tells nothing."""
    return shown.high <= shown.low


def _any_hidden(statistics: Statistics) -> bool:
    return any(map(_is_hidden, statistics.targets))


def _share_bar(shown: TargetShare) -> Bar:
    if _is_hidden(shown):
        return Bar(name=shown.name, value=clamp(shown.share))
    return Bar(name=shown.name, value=clamp(shown.share), low=shown.low, high=shown.high)


def _share_cells(shown: TargetShare) -> tuple[str, str]:
    """Write share and band for the table."""
    if _is_hidden(shown):
        return "not known", f"{'below 0' if shown.share < 0.5 else 'above 100'} %: noise hides it"
    return f"{100 * clamp(shown.share):.1f} %", f"{100 * shown.low:.1f} to {100 * shown.high:.1f} %"


def _share(bar: Bar) -> str:
    """Write the share of a bar, unless noise hides it."""
    if bar.low is None or bar.high is None or bar.high - bar.low > WIDEST:
        return "not known"
    return f"{100 * bar.value:.0f} %"


def _days(statistics: Statistics) -> Chart | None:
    days = statistics.activity.days[-DAYS_SHOWN:]
    if not days:
        return None
    bars = [Bar(name=day_name(day.day), value=float(day.check_ins)) for day in days]
    last = days[-1]
    words = (
        f"Check-ins by day (UTC). On {day_name(last.day)}: {counted(last.check_ins, 'check-in')} from "
        f"{counted(last.devices, 'device')}."
    )
    rows = tuple((day_name(day.day), f"{day.check_ins:,}", f"{day.devices:,}") for day in days[::-1])
    return Chart(
        svg=column_chart(bars, id="days", label=words),
        caption=words,
        names=("day", "check-ins", "devices"),
        rows=rows,
    )


def _staleness(statistics: Statistics) -> Chart | None:
    counts = statistics.activity.staleness
    total = sum(counts)
    if not total:
        return None
    names = [
        f"{low}" if low == high else f"{low} to {high}" if high is not None else f"{low} or more"
        for low, high in staleness_bins()
    ]
    used = max(number for number, count in enumerate(counts) if count) + 1
    bars = [Bar(name=name, value=float(count)) for name, count in zip(names[:used], counts[:used], strict=True)]
    fresh = 100 * counts[0] / total
    words = (
        "How many versions went by while a device worked: check-ins by staleness. "
        f"{fresh:.0f} % were made from the version they met."
    )
    svg = bar_chart(
        bars,
        id="staleness",
        label=words,
        most=max(bar.value for bar in bars),
        written=lambda bar: f"{100 * bar.value / total:.0f} %",
    )
    rows = tuple((bar.name, f"{int(bar.value):,}", f"{100 * bar.value / total:.1f} %") for bar in bars)
    return Chart(svg=svg, caption=words, names=("versions", "check-ins", "share"), rows=rows)
