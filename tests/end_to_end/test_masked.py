"""Devices over HTTP in masked rounds, some of them lost on the way: the model is that of the plain sums, bit by bit."""

from __future__ import annotations

import runpy
from pathlib import Path

LIVE = Path(__file__).parents[2] / "benchmarks" / "secagg" / "live.py"


def test_masked_rounds_with_losses_equal_the_course_without_masks(tmp_path: Path) -> None:
    run = runpy.run_path(str(LIVE))["run"]
    found = run(tmp_path, devices=6, rounds=2, drop_out=0.17, allowed=0.5, stage_s=1.0)
    assert found.equal
    assert found.versions == 2
    assert found.releases == found.check_ins + found.refused  # what was charged was used, or is known to be spent
    assert sum(found.lost.values()) >= 1
