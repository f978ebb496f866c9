"""crowdml slice and crowdml audit as a user meets them: what they print and write, and how they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crowdml.slicing.attacks import Transcript
from crowdml.slicing.published import PUBLISHED

EXAMPLE = Path(__file__).parents[2] / "examples" / "sliced-digits.toml"
PAPERS = Path(__file__).parents[2] / "src" / "crowdml" / "studies" / "tasks" / "slicenet-mlp.toml"
SMALL = ("--set", "model.layers=[16,8]", "--set", "algorithm.balance=1.5", "--own-rows", "40")

Run = Callable[..., tuple[int, str, str]]


def test_slice_prints_every_piece_and_the_papers_figures_beside(run: Run) -> None:
    code, shown, _ = run("slice", str(PAPERS), "--pieces", "5")
    lines = [line.split() for line in shown.splitlines()]
    assert code == 0 and [line[0] for line in lines[2:8]] == ["1", "2", "3", "4", "5", "dominator"]
    assert "whole net: 1494 neurons, 414600 edges" in shown
    paper = PUBLISHED["mlp"][5]
    assert f"largest {paper.largest}, ideal {paper.ideal}; {paper.kib:.2f} KiB" in shown


def test_slice_has_no_figures_of_the_paper_for_other_nets(run: Run) -> None:
    code, shown, _ = run("slice", str(EXAMPLE), "--pieces", "3", "--balance", "1.2")
    assert code == 0 and "SliceNet's tables" not in shown


def test_slice_writes_json_and_a_figure(run: Run, tmp_path: Path) -> None:
    wide = ("--pieces", "3", "--balance", "1.2")
    code, shown, _ = run("slice", str(EXAMPLE), *wide, "--json", "-", "--plot", "pieces.png")
    found = json.loads(shown)
    assert code == 0 and (tmp_path / "pieces.png").read_bytes().startswith(b"\x89PNG")
    assert len(found["pieces"]) == 3 and found["slicer"] == "in-order" and found["paper"] is None
    total = sum(piece["computation"] for piece in found["pieces"])
    assert found["computation"]["ideal"] == pytest.approx(total / 3)
    assert found["computation"]["balance"] <= 1.2
    sent = sum(piece["sends"] for piece in (*found["pieces"], found["dominator"]))
    assert found["communication"]["kib"] == pytest.approx(8 * sent / 1024)


def test_audit_prints_what_was_read_and_that_nothing_is_promised(run: Run, tmp_path: Path) -> None:
    code, shown, _ = run("audit", str(EXAMPLE), *SMALL, "--plot", "read.png")
    assert code == 0 and "a reader with 40 rows of its own" in shown
    assert "sums" in shown and "1 row in" in shown and "privacy: no formal guarantee" in shown
    assert (tmp_path / "read.png").read_bytes().startswith(b"\x89PNG")


def test_audit_writes_json_and_nothing_else(run: Run) -> None:
    code, shown, _ = run("audit", str(EXAMPLE), *SMALL, "--json", "-")
    found = json.loads(shown)
    assert code == 0 and found["own_rows"] == 40 and found["guarantee"].startswith("no formal guarantee")
    assert all(0 <= reading["right"] <= 1 for reading in found["readings"] if reading["right"] is not None)


BAD = {
    "no such file": (("slice", "nowhere.toml"), "nowhere.toml"),
    "too many pieces": (("slice", str(EXAMPLE), "--pieces", "500"), "500 pieces"),
    "no pieces": (("slice", str(EXAMPLE), "--pieces", "0"), "--pieces"),
    "balance that cannot be met": (("slice", str(EXAMPLE), "--pieces", "9", "--balance", "1.001"), "larger balance"),
    "unknown slicer": (("slice", str(EXAMPLE), "--slicer", "metric"), "metis"),
    "nothing to slice": (("slice", str(EXAMPLE), "--set", "model={ kind = 'softmax' }"), "no hidden layer"),
    "not a figure": (("slice", str(EXAMPLE), "--plot", "pieces.gif"), ".png"),
    "audit of devices alone": (("audit", str(EXAMPLE), "--set", "algorithm.pieces=0"), "nothing is passed on"),
    "audit without rows": (("audit", str(EXAMPLE), "--own-rows", "3"), "--own-rows"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_clear_message(run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    code, shown, said = run(*arguments)
    assert code == 2 and shown == "" and words in said and "Traceback" not in said
    assert list(tmp_path.iterdir()) == [], "something was written"


def test_slice_counts_hops_and_bytes_by_format(run: Run) -> None:
    """With six hops of two legs of 25 ms a batch takes .3 s at least."""
    code, shown, _ = run("slice", str(PAPERS), "--pieces", "5", "--balance", "1.05", "--leg", "0.025")
    assert code == 0 and "float32 9.45, bfloat16 4.73, int8 2.36 and 72 bytes of scales" in shown
    assert "6 hops of two legs; legs of 25 ms allow 3.33 batches/s" in shown
    code, shown, _ = run("slice", str(EXAMPLE), "--pieces", "3", "--balance", "1.2", "--leg", "0", "--json", "-")
    found = json.loads(shown)
    assert code == 0 and found["floor"]["batches_per_second"] is None
    assert found["communication"]["hops"] == 6 and found["communication"]["formats"]["int8"]["scales_bytes"] > 0


def test_audit_reads_a_transcript(run: Run, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels, rows = generator.integers(0, 10, 60), generator.random((60, 64))
    made = Transcript(
        own_sums=rows[:30, :9], own_rows=rows[:30], own_labels=labels[:30], sums=rows[30:, :9], labels=labels[30:]
    )
    made.save(tmp_path / "heard.npz")
    code, shown, _ = run("audit", str(EXAMPLE), "--transcript", "heard.npz", "--plot", "read.png")
    assert code == 0 and "sums of the transcript" in shown and "chance" in shown
    assert (tmp_path / "read.png").is_file()
    code, _, said = run("audit", str(EXAMPLE), "--transcript", "missing.npz")
    assert code == 2 and "missing.npz" in said
