"""Figures come back as figures, axes as they are asked for; a notebook shows table, curve and warnings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.simulation import simulate
from crowdml.simulation.reporting.figures import curve_figure
from crowdml.task import Task

Make = Callable[..., Task]


def test_a_plot_is_a_figure(digits: Make, tmp_path: Path) -> None:
    result = simulate(digits("data.validation=100"), trials=2, engine="numpy")
    figure = result.plot()
    (axes,) = figure.axes
    assert axes.get_xlabel() == "samples used by the crowd" and len(axes.lines) == 2
    figure = result.plot(tmp_path / "x.svg", against="bytes_up")
    assert "bytes sent by devices" in (tmp_path / "x.svg").read_text()
    assert np.array_equal(np.asarray(figure.axes[0].lines[0].get_xdata()), result.along("bytes_up"))
    with pytest.raises(BadInput, match=r'crowd\.measure = \["loss"\]'):
        result.plot(measure="test_loss")
    with pytest.raises(BadInput, match='did you mean "samples"'):
        result.plot(against="sample")


def test_many_curves_have_as_much_room_as_few_and_large_numbers_are_written_shortly(digits: Make) -> None:
    result = simulate(digits(), engine="numpy")
    long = dataclasses.replace(result, samples=result.samples * 1000)

    def room(count: int) -> float:
        figure = curve_figure(
            {f"curve {number} with words that fill a line of the legend": long for number in range(count)}
        )
        figure.canvas.draw()
        assert "1M" in [text.get_text() for text in figure.axes[0].get_xticklabels()]
        return float(figure.axes[0].get_position().height * figure.get_size_inches()[1])

    assert room(24) >= 0.95 * room(2)


def test_a_notebook_shows_what_matters(digits: Make) -> None:
    result = simulate(digits("name=a-b", "algorithm.rate.c=1e9"), trials=2, engine="numpy")
    shown = result._repr_html_()
    assert re.search(r"test error.*?0\.\d{4}", shown) and "no formal guarantee" in shown
    assert "data:image/png;base64," in shown and "<script" not in shown
    assert all(f"warning: {warning[:20]}" in shown for warning in result.warnings) and result.warnings
