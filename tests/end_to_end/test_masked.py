"""Devices over HTTP in masked rounds, some of them lost on the way: the model is that of the plain sums, bit by bit."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

LIVE = Path(__file__).parents[2] / "benchmarks" / "secagg" / "live.py"


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "fedsgd", "rounds": 2},
        {"kind": "admm", "rounds": 3, "together": 5},
        {"kind": "consensus-newton", "rounds": 2, "together": 5},
        {"kind": "ridge", "rounds": 1},
    ],
    ids=lambda own: str(own["kind"]),
)
def test_masked_rounds_with_losses_equal_the_course_without_masks(settings: dict[str, Any], tmp_path: Path) -> None:
    run = runpy.run_path(str(LIVE))["run"]
    found = run(tmp_path, devices=6, drop_out=0.17, allowed=0.34, stage_s=1.0, **settings)
    assert found.equal
    assert found.versions == settings["rounds"]
    assert found.releases == found.check_ins + found.refused  # what was charged was used, or is known to be spent
    assert sum(found.lost.values()) >= 1
