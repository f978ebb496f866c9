"""Charts: what is drawn is what the table says, at the right place, and no word of a task becomes a tag."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as xml
from typing import Any

import pytest
from markupsafe import Markup

from crowdml.core import Labels
from crowdml.server.pages.svg_charts import (
    BROAD,
    HEIGHT,
    LEFT,
    RIGHT,
    STRONG,
    TOP,
    WIDTH,
    Bar,
    Series,
    bar_chart,
    column_chart,
    line_chart,
    spark_line,
    thinned,
)
from crowdml.server.pages.task_charts import Spark, draw_charts, draw_spark
from crowdml.server.store import Point, StoredError
from crowdml.server.tasks.figures.learning_curve import CurvePoint, LearningCurve
from crowdml.server.tasks.figures.statistics import Statistics, Validated
from crowdml.server.tasks.figures.task_activity import Activity, Day
from crowdml.task.target_shares import TargetShare

EVIL = '<script>alert("1")</script>'


def parsed(drawn: Markup) -> Any:
    return xml.fromstring(str(drawn))  # noqa: S314  our own drawing


def curve(*errors: int, check_ins: int = 20, rows: int = 400) -> LearningCurve:
    """Make a curve whose windows have these errors among so many rows each."""
    made, total = LearningCurve(0.0), 0
    for number, count in enumerate(errors, 1):
        total += count
        made.extend(
            [
                Point(
                    version=number * check_ins,
                    check_ins=number * check_ins,
                    rows=number * rows,
                    estimated_error=0.0,
                    time=0.0,
                    counted=number * rows,
                    errors=total,
                )
            ]
        )
    return made


def statistics(made: LearningCurve, **changes: Any) -> Statistics:
    last = made.points[-1] if made.points else None
    known: dict[str, Any] = {
        "version": last.stored.version if last else 0,
        "check_ins": last.stored.check_ins if last else 0,
        "devices": 3,
        "rows": 100,
        "recent_error": last.recent_error if last else None,
        "targets": (),
        "activity": Activity(over=(), last=None, staleness=(0,) * 9),
        "validated": None,
        "noisy": True,
    }
    return Statistics(**known | changes)


def test_a_curve_goes_from_edge_to_edge_and_its_band_lies_around_it() -> None:
    series = Series(points=[(0, 1.0), (50, 0.5), (100, 0.0)], band=[(0.9, 1.0), (0.4, 0.6), (0.0, 0.1)])
    drawn = parsed(line_chart([series], id="c", across="version", ticks=(0, 1), most=1.0, label="words"))
    line = next(path for path in drawn.iter("path") if "line" in path.get("class").split())
    points = [tuple(map(float, pair.split())) for pair in line.get("d")[1:].split("L")]
    bottom = HEIGHT - 58
    assert points == [(LEFT, TOP), ((LEFT + WIDTH - RIGHT) / 2, (TOP + bottom) / 2), (WIDTH - RIGHT, bottom)]
    assert drawn.get("role") == "img" and drawn.get("aria-label") == "words"


@pytest.mark.parametrize("drawn", ["bar", "column"])
def test_words_in_a_drawing_are_escaped(drawn: str) -> None:
    bars = [Bar(name=EVIL, value=1.0, low=0.5, high=1.5)]
    if drawn == "bar":
        made = bar_chart(bars, id="b", label=EVIL, most=2.0, written=lambda bar: EVIL)
    else:
        made = column_chart(bars, id="b", label=EVIL)
    assert "<script" not in made and parsed(made).get("aria-label") == EVIL


def test_bars_are_as_long_as_their_numbers_and_have_their_bands() -> None:
    bars = [Bar(name="a", value=0.5, low=0.4, high=0.6), Bar(name="b", value=1.0)]
    drawn = parsed(bar_chart(bars, id="b", label="", most=1.0, written=lambda bar: f"{bar.value:g}"))
    widths = [float(rect.get("width")) for rect in drawn.iter("rect")]
    assert widths[0] * 2 == widths[1] and len(list(drawn.iter("path"))) == 1


@pytest.mark.parametrize("names", [["0", "1"], ["an overcoat that is too long for a chart", "b"]])
def test_names_of_bars_stay_within_the_drawing_with_the_large_letters_of_a_phone(names: list[str]) -> None:
    bars = [Bar(name=name, value=1.0, low=0.0, high=1.0) for name in names]
    drawn = parsed(bar_chart(bars, id="b", label="", most=1.0, written=lambda bar: "not known"))
    left = [float(text.get("x")) - STRONG * len(text.text) for text in drawn.iter("text") if text.text != "not known"]
    assert min(left) >= 0 and max(float(rect.get("x")) + float(rect.get("width")) for rect in drawn.iter("rect")) <= 500
    assert len(left) == 2 and min(left) < 30, "short names leave the room to the bars"


@pytest.mark.parametrize("days", [1, 2, 4, 5, 30, 60])
def test_days_are_named_side_by_side_within_the_drawing(days: int) -> None:
    drawn = parsed(column_chart([Bar(name="2024-10-04", value=1e6)] * days, id="c", label=""))
    named = [text for text in drawn.iter("text") if text.get("class") == "tick x"]
    half = BROAD * 10 / 2
    at = [float(text.get("x")) for text in named]
    assert at[0] >= half and at[-1] <= WIDTH - half and len(at) == {1: 1, 2: 2, 4: 4, 5: 3, 30: 4, 60: 4}[days]
    assert all(after - before >= 2 * half for before, after in itertools.pairwise(at))
    up = [text.text for text in drawn.iter("text") if text.get("class") == "tick y"]
    assert up[-1] == "1M" and max(map(len, up)) * BROAD <= LEFT - 10


def test_few_points_of_many_are_drawn_with_the_last_one() -> None:
    kept = thinned(range(1000), 150)
    assert len(kept) <= 150 and kept[-1] == 999 and kept == sorted(kept)
    assert thinned([1], 20) == [0] and thinned([], 20) == []


def test_the_error_of_the_crowd_and_that_on_public_rows_are_two_curves_and_two_columns() -> None:
    made = curve(200, 100, 40)
    errors = tuple(StoredError(version=version, error=error, time=0.0) for version, error in ((10, 0.6), (60, 0.1)))
    shown = statistics(made, validated=Validated(rows=50, learnt_from=True, errors=errors))
    chart = draw_charts(Labels(names=("a", "b")), shown, made.points).error
    assert chart.svg.count('class="line') == 2 and "flattered" in chart.caption and "50 public rows" in chart.caption
    assert chart.names == ("version", "check-ins", "recent error", "95 % band", "on public rows")
    assert [(row[0], row[2], row[4]) for row in chart.rows] == [
        ("20", "0.50", "0.60"),
        ("40", "0.25", "0.60"),
        ("60", "0.10", "0.10"),
    ]


def test_without_counts_the_error_on_public_rows_stands_alone() -> None:
    errors = tuple(StoredError(version=version, error=0.3, time=0.0) for version in (1, 2))
    shown = statistics(LearningCurve(0.0), validated=Validated(rows=50, learnt_from=False, errors=errors))
    chart = draw_charts(Labels(names=("a", "b")), shown, ()).error
    assert chart.names == ("version", "error on public rows") and len(chart.rows) == 2
    assert "Error on public rows" in draw_spark((), errors).words


def test_shares_out_of_range_are_drawn_within_it() -> None:
    targets = (TargetShare(name="a", share=-0.1, low=0.0, high=0.2), TargetShare(name="b", share=1.1, low=0.8, high=1))
    chart = draw_charts(Labels(names=("a", "b")), statistics(LearningCurve(0.0), targets=targets), ()).targets
    assert chart is not None and [row[1] for row in chart.rows] == ["0.0 %", "100.0 %"]
    widths = [float(width) for width in re.findall(r'class="bar banded" .*?width="([\d.]+)"', chart.svg)]
    assert widths[0] == 0 < widths[1]


def test_a_band_that_noise_carried_beyond_all_shares_is_not_drawn_and_the_share_not_known() -> None:
    targets = (
        TargetShare(name="a", share=-0.9, low=0.0, high=0.0),
        TargetShare(name="b", share=1.9, low=1.0, high=1.0),
        TargetShare(name="c", share=0.4, low=0.3, high=0.5),
    )
    chart = draw_charts(Labels(names=("a", "b", "c")), statistics(LearningCurve(0.0), targets=targets), ()).targets
    assert chart is not None and [row[1:] for row in chart.rows] == [
        ("not known", "below 0 %: noise hides it"),
        ("not known", "above 100 %: noise hides it"),
        ("40.0 %", "30.0 to 50.0 %"),
    ]
    assert chart.svg.count('class="bar banded"') == 1 and chart.svg.count("not known") == 2
    assert "noise has carried a band beyond" in chart.caption
    drawn = draw_charts(Labels(names=("c",)), statistics(LearningCurve(0.0), targets=targets[2:]), ()).targets
    assert drawn is not None and "beyond" not in drawn.caption


def test_days_and_staleness_have_tables_that_add_up() -> None:
    days = tuple(Day(day=20_000 + number, check_ins=10 + number, devices=3) for number in range(80))
    activity = Activity(over=days[:-1], last=days[-1], staleness=(5, 3, 0, 2, 0, 0, 0, 0, 0))
    charts = draw_charts(Labels(names=("a", "b")), statistics(LearningCurve(0.0), activity=activity), ())
    assert charts.days is not None and charts.staleness is not None
    assert len(charts.days.rows) == 60 and charts.days.rows[0][1] == "89"
    assert charts.staleness.rows[-1] == ("4 to 7", "2", "20.0 %") and "50 %" in charts.staleness.caption


def test_a_spark_line_says_what_it_is_of() -> None:
    assert draw_spark(curve(200, 40).points, ()).words == "Error of recent check-ins: from 0.50 to 0.10"
    assert draw_spark(curve(2, 1, rows=4).points, ()).words == "Error of recent check-ins: noise still hides it"
    alone = [CurvePoint(stored=point.stored, recent_error=None) for point in curve(1, 1, 1).points]
    assert draw_spark(alone, ()).words == "Check-ins: from 20 to 60"
    assert draw_spark((), ()) == draw_spark(alone[:1], ()) == Spark(svg=Markup(""), words="")


def test_a_task_that_has_ended_waits_for_nothing() -> None:
    target, none = Labels(names=("a", "b")), statistics(LearningCurve(0.0))
    waits, over = draw_charts(target, none, ()).error, draw_charts(target, none, (), ended=True).error
    assert "No curve yet." in waits.svg and "Waiting" in waits.caption
    assert "No curve." in over.svg and over.caption == "The task ended before there was one."


def test_a_spark_line_needs_two_points() -> None:
    assert spark_line([(1, 0.5)], (), "") == ""
    assert 'aria-label="falls"' in spark_line([(1, 0.5), (2, 0.4)], (), "falls")
