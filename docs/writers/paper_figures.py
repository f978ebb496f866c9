"""Pictures of the papers' page: one for each record that has a figure, drawn as `crowdml reproduce --plot` draws it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crowdml.studies.figure import Figure, Panel, Series
    from crowdml.studies.records import Record

MOST_SAID = 8
"""So many series are told one by one; of more, only how many there are."""


def file_name(study_id: str) -> str:
    """Return the name of a study's picture."""
    return f"{study_id.replace('/', '-')}.svg"


def pictures(results: Path, folder: Path) -> dict[Path, str]:
    """Draw all figures that records have, by file in a folder."""
    from crowdml.studies import STUDIES
    from crowdml.studies.drawing import svg
    from crowdml.studies.records import place, read_record

    there = [read_record(results, name) for name in STUDIES if place(results, name).is_file()]
    return {
        folder / file_name(record.id): svg(record.figure, f"{record.id}: {record.title}")
        for record in there
        if record.figure is not None
    }


def orphans(drawn: dict[Path, str], folder: Path) -> list[Path]:
    """Return pictures in a folder that belong to no record."""
    return sorted(set(folder.glob("*.svg")) - set(drawn))


def picture_line(record: Record) -> str:
    """Return the line of Markdown that shows a record's figure, or nothing."""
    if record.figure is None:
        return ""
    return f"![{in_words(record.figure)}](images/papers/{file_name(record.id)})"


def in_words(figure: Figure) -> str:
    """Say what a figure shows, for those who do not see it: axes, and how each series ends.

    >>> from crowdml.studies.figure import Figure, panel, series
    >>> line = series("crowd", "line", [0, 10], [0.5, 0.25], colour=0)
    >>> in_words(Figure(panels=(panel([line], xlabel="samples", ylabel="test error"),)))
    'Test error against samples: crowd ends at 0.25'
    """
    first = figure.panels[0]
    xlabel = next((panel.xlabel for panel in figure.panels if panel.xlabel), "")
    ylabel = " and ".join(dict.fromkeys(_measure(panel) for panel in figure.panels if panel.ylabel))
    what = ylabel[:1].upper() + ylabel[1:] + f" against {xlabel}" * bool(xlabel)
    if figure.columns > 1:
        text = f"{what}, in {len(figure.panels)} panels, each with {', '.join(figure.labels)}"
    else:
        named = len(figure.panels) > 1 and all(panel.heading for panel in figure.panels)
        told = [(f"{panel.heading}: " if named else "") + _panel_in_words(panel) for panel in figure.panels]
        text = f"{what}: {'. '.join(told if named else told[:1])}" if first.series else what
    return text.replace("[", "(").replace("]", ")").replace("\n", " ")


def _measure(panel: Panel) -> str:
    """Return what a panel shows; in a grid each row has a line that is no measure of its own."""
    return panel.ylabel.replace("\n", ", ")


def _panel_in_words(panel: Panel) -> str:
    shown = [one for one in panel.series if one.label]
    if len(shown) > MOST_SAID:
        return f"{len(shown)} lines, from {shown[0].label} to {shown[-1].label}"
    told = [_series_in_words(one, panel) for one in shown or panel.series]
    return "; ".join(told)


def _series_in_words(one: Series, panel: Panel) -> str:
    """Say where a line ends, how high a level is, or every bar and mark that has a name."""
    name = f"{one.label} " * bool(one.label)
    known = [(x, y) for x, y in zip(one.x or [0.0] * len(one.y), one.y, strict=True) if y is not None]
    if not known:
        return f"{name}was never a number"
    if one.kind == "level":
        return f"{name}at {known[0][1]:g}"
    if one.kind == "line":
        return f"{name}ends at {known[-1][1]:g}"
    if one.kind == "points":
        return f"{name}from {known[0][1]:g} to {known[-1][1]:g}"
    words = [text for _, text in sorted(panel.ticks)]
    every = [f"{words[round(x)]} {y:g}" if round(x) < len(words) else f"{y:g}" for x, y in known]
    return f"{name}{', '.join(every)}"
