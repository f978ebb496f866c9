"""What is read where nothing is promised: one row comes back as it was, a sum of many does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.audit import Options, audit_drawing, run
from crowdml.audit.exposure import Exposure, expose
from crowdml.core import BadInput
from crowdml.task import Task

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"


def task(*changes: str) -> Task:
    return Task.load(EXAMPLE, ["crowd.passes=1", *changes])


def test_a_check_in_of_one_row_is_the_row_and_its_label(tmp_path: Path) -> None:
    found = run(task(), Options(seed=3))
    assert isinstance(found, Exposure) and found.holds
    one, *others = found.inverted
    assert one.rows == 1 and one.likeness > 0.9999 and one.labels == 1.0
    assert [each.rows for each in others] == [2, 5, 20] and all(each.likeness < one.likeness for each in others)
    assert 0.3 < found.right < 0.8 and found.to_json()["guarantee"] == "no formal guarantee"
    found.draw(tmp_path / "read.png")
    assert (tmp_path / "read.png").read_bytes().startswith(b"\x89PNG")
    assert found.words()[-1].startswith("verdict: no formal guarantee")


def test_local_steps_hide_a_row_no_better() -> None:
    found = expose(task("algorithm={ kind = 'fedavg', local-batch = 1 }"))
    assert found.inverted[0].likeness > 0.99


def test_a_secure_sum_hides_a_row_among_those_of_the_cohort() -> None:
    alone = expose(task("algorithm={ kind = 'fedsgd', per-round = 20 }"))
    summed = expose(
        task("algorithm={ kind = 'fedsgd', per-round = 20 }", "secure-aggregation={ enabled = true, honest = 0.9 }")
    )
    assert "secure sum of 14" in summed.seen
    assert summed.inverted[0].likeness < alone.inverted[0].likeness


def test_a_convolution_has_no_first_layer_that_this_reads(tmp_path: Path) -> None:
    found = expose(task("model={ kind = 'cnn', shape = [8, 8, 1], convolutions = [4], layers = [] }"))
    assert found.inverted == () and found.tables() == [] and "not dense" in found.words()[0]
    with pytest.raises(BadInput, match="nothing was read"):
        found.draw(tmp_path / "read.png")


def test_pictures_stand_in_even_columns_below_a_name_that_is_wider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(audit_drawing, "save_figure", lambda figure, path: drawn.append(figure))
    rows = np.random.default_rng(0).random((8, 64))
    audit_drawing.draw_pictures([("rows of a device: 20 rows, the most alike", rows)] * 2, "title", tmp_path / "a.png")
    (figure,) = drawn
    figure.canvas.draw()
    left = [axes.get_position().x0 for axes in figure.axes[:8]]
    assert np.diff(left) == pytest.approx(left[1] - left[0], rel=0.02)
    name = figure.axes[0].texts[0]
    assert name.get_window_extent().y1 < figure.bbox.y1 and name.get_window_extent().x0 >= 0
    assert figure.axes[8].texts[0].get_window_extent().y1 < figure.axes[0].get_window_extent().y0
