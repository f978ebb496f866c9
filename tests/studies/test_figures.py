"""Figures: a record keeps what is drawn, all of it is drawn, always in the same way, and the page shows it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from crowdml.simulation.checkpoint import Spent
from crowdml.studies import STUDIES, records, reproduce
from crowdml.studies.drawing import drawn, save, svg
from crowdml.studies.figure import MOST, Figure, curves, level, line, merged, panel, series
from crowdml.studies.figure_makers import bars, by_number
from crowdml.studies.single_curves import with_curves
from crowdml.studies.study import Report
from docs.writers.paper_figures import in_words, picture_line, pictures
from docs.writers.papers import RESULTS, papers_page

from .planted import planted

RECORDED = [name for name in STUDIES if records.place(RESULTS, name).is_file()]


def result(points: int, trials: int = 2, errors: Any = None) -> Any:
    """Make what a figure needs of a result."""
    given = np.linspace(0.9, 0.1, points)[:, None] * np.linspace(1.0, 1.1, trials) if errors is None else errors
    return SimpleNamespace(samples=np.arange(1.0, points + 1), measured={"test_error": given})


@pytest.fixture(scope="module")
def made() -> records.Record:
    """The record of a study that trains nothing."""
    return records.record_of(reproduce("slicenet/table6", STUDIES["slicenet/table6"], None))


KINDS = {
    "lines": curves({"crowd": result(300), "decentral": result(80), "batch": result(1)}, "test_error"),
    "ends": curves({"a long name, ε = 8": result(1), "another": result(1)}, "test_error"),
    "bars": bars({"one": {"a": np.array([1.0, 3.0]), "b": np.array([2.0])}, "two": {"b": np.array([5.0])}}, "%"),
    "numbers": by_number({"": {"l": [(1.0, np.array([0.5, 0.7])), (10.0, np.array([0.8]))]}}, {}, "ε"),
    "turned": Figure(panels=(panel([series("m", "marks", [0, 1], [2, 3], colour=0)], ticks=[(0, "x")], turned=True),)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_keeps_its_figure(kind: str, made: records.Record, tmp_path: Path) -> None:
    kept = made.model_copy(update={"figure": KINDS[kind]})
    path = records.write_record(kept, tmp_path)
    assert records.read_record(tmp_path, made.id) == kept
    numbers = [text for text in path.read_text(encoding="utf-8").splitlines() if '"x": [' in text]
    assert all(text.rstrip(",").endswith("]") for text in numbers), "a list of numbers in one line"


def test_records_that_are_older_have_none(made: records.Record, tmp_path: Path) -> None:
    path = records.write_record(made.model_copy(update={"figure": None}), tmp_path)
    path.write_text(re.sub(r',\s*"figure": null', "", path.read_text(encoding="utf-8")), encoding="utf-8")
    older = records.read_record(tmp_path, made.id)
    assert older.figure is None and picture_line(older) == "" and pictures(tmp_path, tmp_path) == {}
    assert "images/papers/" not in papers_page(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_series_is_drawn_where_it_says(kind: str) -> None:
    figure = KINDS[kind]
    picture = drawn(figure, "a title")
    for axes, of_panel in zip(picture.axes, figure.panels, strict=True):
        held = [np.asarray(each.get_xydata(), float) for each in axes.lines]
        tops = {round(float(bar.get_height()), 9) for bar in axes.patches}
        for one in of_panel.series:
            if one.kind == "bars":
                assert {round(value, 9) for value in one.y if value is not None} <= tops
                continue
            if one.kind == "level":
                assert any(len(points) == 2 and (points[:, 1] == one.y[0]).all() for points in held), one.label
                continue
            x, y = (one.y, one.x) if of_panel.turned else (one.x, one.y)
            wanted = np.array([x, y], float).T
            assert any(points.shape == wanted.shape and np.allclose(points, wanted) for points in held), one.label
    words = " ".join(text.get_text() for legend in picture.legends for text in legend.get_texts())
    ticks = " ".join(text.get_text() for axes in picture.axes for text in (*axes.get_yticklabels(),))
    if len(figure.labels) > 1:
        for label in figure.labels:
            assert label.replace(" = ", "\u00a0=\u00a0") in words + ticks


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_figure_has_the_same_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    first = svg(KINDS[kind], "a title")
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30.0)  # somebody's own settings
    assert svg(KINDS[kind], "a title") == first and svg(KINDS[kind], "another") != first
    assert not re.search(r"matplotlib.org|\d{4}-\d\d-\d\dT", first)
    ElementTree.fromstring(first)  # noqa: S314  what was written just now


def test_words_are_drawn_as_they_are() -> None:
    """Places are cut to two digits, words and numbers on axes are not."""
    small = panel([line("at 0.0015", np.arange(3.0), np.full((3, 1), 0.015), colour=0, dash=0), level("b", 0.009)])
    words = re.findall(r">([^<>]+)</t", svg(Figure(panels=(small,)), "s.d. 0.001"))
    assert {"at 0.0015", "s.d. 0.001"} <= set(words) and any(re.fullmatch(r"0\.\d{3}", word) for word in words)
    logged = line("c", np.logspace(0, 3, 9), np.ones((9, 1)), colour=0, dash=0, log=True)
    words = re.findall(r">([^<>]+)</t", svg(Figure(panels=(panel([logged], log=True),)), "title"))
    assert {"1", "10", "100", "1000"} <= set(words)


def test_a_level_beside_bars_without_names_is_named() -> None:
    alone = bars({"one": {"": np.array([5.0])}}, "%").panels[0]
    beside = alone.model_copy(update={"series": (*alone.series, level("wanted", 4.0))})
    (legend,) = drawn(Figure(panels=(beside,)), "a title").legends
    assert [text.get_text() for text in legend.get_texts()] == ["wanted"]
    assert not drawn(Figure(panels=(alone,)), "a title").legends


def test_large_values_have_commas() -> None:
    large = panel([line("a", np.arange(3.0), np.array([[0.0], [20_000.0], [300_000.0]]), colour=0, dash=0)])
    words = re.findall(r">([^<>]+)</t", svg(Figure(panels=(large,)), "a title"))
    assert {"0", "100,000", "300,000"} <= set(words)


def test_no_two_lines_look_alike() -> None:
    many = curves({f"c{at}": result(3) for at in range(20)}, "test_error").panels[0].series
    assert len({(one.colour % 8, one.dash % 4) for one in many}) == len(many)
    for name in ("crowdml-2015/fig6", "crowdml-2015/fig5-sound"):
        study = STUDIES[name]
        assert study.draw is not None
        shown = study.draw(planted(study, lambda label: 0.2)).panels[0].series
        assert [one.label for one in shown] == [curve.label for curve in study.curves]
        assert len({(one.colour, one.dash) for one in shown}) == len(shown)


def test_lines_have_few_points_and_numbers_few_digits() -> None:
    x = np.arange(1.0, 5001.0)
    values = np.stack([np.sin(x / 900), np.sin(x / 900) + 0.02], axis=1)
    kept = panel([line("a", x, values, colour=0, dash=0)]).series[0]
    assert len(kept.x) == len(kept.y) == len(kept.spread) == MOST and (kept.x[0], kept.x[-1]) == (1.0, 5000.0)
    at = np.asarray(kept.x, int) - 1
    assert np.abs(np.asarray(kept.y, float) - values.mean(axis=1)[at]).max() <= 2 / 1000
    assert max(len(str(value)) for value in kept.y) <= len("-0.1234")
    logged = line("a", x, values, colour=0, dash=0, log=True)
    assert sum(place < 100 for place in logged.x) > len(logged.x) / 3, "as many between 1 and 100 as beyond"


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    broken = curves({"a": result(3, errors=np.array([[0.5], [np.nan], [0.2]])), "b": result(3)}, "test_error")
    assert broken.panels[0].series[0].y == (0.5, None, 0.2)
    save(broken, "a title", tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_curves_that_were_run_one_by_one_come_together() -> None:
    order = ["a", "b", "c"]
    first = curves({"c": result(5)}, "test_error", order)
    both = merged(first, curves({"a": result(4)}, "test_error", order), order)
    assert both.labels == ["a", "c"]
    assert both.panels[0].series[1] == first.panels[0].series[0], "a line that was not run anew stays as it was"
    again = merged(both, curves({"a": result(9)}, "test_error", order), order)
    assert again.labels == ["a", "c"] and len(again.panels[0].series[0].x) == 9
    other = Figure(panels=(panel([level("z", 1.0)], ylabel="another thing"),))
    assert merged(other, first, order) == merged(None, first, order) == first


def test_a_record_of_single_curves_has_the_lines_of_all() -> None:
    study = STUDIES["external/niid"]
    found = planted(study, lambda label: 0.12)
    stored = None
    for label in list(found)[:2]:
        report = Report(
            id="external/niid",
            study=study,
            seed=0,
            trials=1,
            rows=study.compare({label: found[label]}),
            results={label: found[label]},
            notes=(),
            seconds={},
            cpu_seconds=1.0,
            apart={label: Spent(commits=("abc",), cpu_seconds=1.0)},
        )
        stored = with_curves(stored, report)
    assert stored is not None and stored.figure is not None and stored.figure.labels == list(found)[:2]


def test_the_page_shows_the_figure_and_says_what_is_on_it(made: records.Record, tmp_path: Path) -> None:
    records.write_record(made, tmp_path)
    section = papers_page(tmp_path).split(f"### {made.id}\n")[1].split("\n### ")[0]
    assert made.figure is not None
    assert f"![{in_words(made.figure)}](images/papers/slicenet-table6.svg)" in section
    assert in_words(made.figure).startswith("Most in one piece, % of the net against pieces: mlp: edges from ")
    files = pictures(tmp_path, tmp_path / "papers")
    assert list(files) == [tmp_path / "papers" / "slicenet-table6.svg"]
    assert files[tmp_path / "papers" / "slicenet-table6.svg"] == svg(made.figure, f"{made.id}: {made.title}")


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_figure_is_on_the_page_in_words(name: str) -> None:
    record = records.read_record(RESULTS, name)
    shown = f"](images/papers/{name.replace('/', '-')}.svg)" in (RESULTS.parent / "docs" / "papers.md").read_text(
        encoding="utf-8"
    )
    assert shown == (record.figure is not None)
    if record.figure is not None:
        assert 20 < len(in_words(record.figure)) < 900


@pytest.mark.parametrize("name", [name for name, study in STUDIES.items() if study.curves and study.draw is None])
def test_studies_without_a_figure_of_their_own_show_all_their_curves(name: str) -> None:
    study = STUDIES[name]
    found = planted(study, lambda label: 0.2)
    figure = curves(found, study.measure, [curve.label for curve in study.curves])
    assert figure.labels == [curve.label for curve in study.curves]
