"""Devices over HTTP in masked rounds, some of them lost on the way: the model is that of the plain sums, bit by bit."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from crowdml.device import Ledger

LIVE = Path(__file__).parents[2] / "benchmarks" / "secagg" / "live.py"


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "fedsgd", "rounds": 2},
        {"kind": "admm-sums", "rounds": 3, "together": 5},
        {"kind": "consensus-newton", "rounds": 2, "together": 5},
        {"kind": "ridge", "rounds": 1},
    ],
    ids=lambda settings: str(settings["kind"]),
)
def test_masked_rounds_with_losses_equal_the_course_without_masks(settings: dict[str, Any], tmp_path: Path) -> None:
    run = runpy.run_path(str(LIVE))["run"]
    found = run(tmp_path, devices=6, drop_out=0.17, allowed=0.34, stage_s=1.0, **settings)
    assert found.equal
    assert found.versions == settings["rounds"]
    assert found.releases == found.check_ins + found.refused  # what was charged was used, or is known to be spent
    assert sum(found.lost.values()) == settings["rounds"]  # one of the six in every round
    first, later = _uses_charged(tmp_path)
    # Squares of rows are sent with less noise than gradients, and count for as many uses as that costs.
    assert first == ({2} if settings["kind"] == "consensus-newton" else {1})
    assert later <= {1}


def _uses_charged(folder: Path) -> tuple[set[int], set[int]]:
    """Return what releases of the first version, and of later ones, were charged as in the devices' ledgers."""
    found: tuple[set[int], set[int]] = (set(), set())
    for path in folder.rglob("ledger.sqlite"):
        with Ledger(path) as ledger:
            for entry in map(json.loads, ledger.entries()):
                if "version" in entry:
                    found[entry["version"] > 0].add(entry.get("uses", 1))
    return found
