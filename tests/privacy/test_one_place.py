"""One place knows what a privacy mode is: nobody else asks, and a mode from outside works everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml.core import NUMPY, Coins, Release, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy import MODES, Cost, ModelBounds, Plan, PrivacySettings, Promise, Releases, Terms
from crowdml.privacy.cost import Pure
from crowdml.privacy.sanitisers.floats import Floats
from crowdml.simulation import simulate
from crowdml.task import Task, parse
from crowdml.task.explanation import explain
from crowdml.task.live_task import require_live
from crowdml.task.task_checks import check

SOURCE = Path(crowdml.__file__).parent
ASKS = re.compile(
    r"privacy\.mode\b|\.mode\s*(?:==|!=|in\b|not in\b)|plan\.(?:sound|gradient|given|inputs|banded|steps)\b"
    r"|isinstance\([^)]*\b(?:NoNoise|Paper|Fixed|PerturbedInputs|InSteps|GridSteps|OnGrid|Correlated)\b"
)
"""A question after the mode, or after the kind of what protects."""


def code_of(path: Path) -> str:
    """Return the code without strings in quotes: words to users may name a mode."""
    return re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", '""', path.read_text(encoding="utf-8"))


def test_nobody_asks_which_mode_a_task_has() -> None:
    asking = {
        str(path.relative_to(SOURCE)): found
        for path in sorted(SOURCE.rglob("*.py"))
        if (found := [match.group(0) for match in ASKS.finditer(code_of(path))])
    }
    assert asking == {}


def test_modes_are_made_in_calibration_alone() -> None:
    made = re.compile(r"\b(?:NoNoise|Paper|Fixed|PerturbedInputs|InSteps|GridSteps|OnGrid|Correlated)\(")
    files = {
        path.name
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "sanitisers" and made.search(re.sub(r"class \w+\(.*", "", code_of(path)))
    }
    assert files == {"modes.py", "paper_plan.py", "sound_plan.py"}


@record
class Shifted(Floats):
    """A toy: adds the same number to everything."""

    by: float

    @property
    def bounds_rows(self) -> bool:
        return True

    def cost(self, uses: int, rows: int | None = None) -> Cost | None:
        return Cost.of(Pure(epsilon=0.25)).times(uses).grouped(rows or 1)

    def perturbed(self, release: Release, memory: Tree, coins: Coins) -> tuple[Tree, Tree]:
        return trees.map(lambda leaf: leaf + np.float32(self.by), release.update), memory

    def describe(self) -> dict[str, str]:
        return {"update": f"moved by {self.by:g}"}

    def words(self, terms: Terms) -> str:
        return "Moved a little; no owner is promised anything."

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        return {"noise": f"{self.by:g} on each number", "guarantee": "a toy"}


def toy(settings: PrivacySettings, releases: Releases, model: ModelBounds) -> Plan:
    terms = Terms(mode=settings.mode, delta=settings.delta, claim=Promise(epsilon=0.25))
    return Plan(terms=terms, sanitisers=(Shifted(by=0.001),) * releases.phases)


TASK = """
crowdml = 1
name = "toy"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
[crowd]
devices = 10
passes = 2
curve = 1
"""


@pytest.fixture
def toy_task() -> Iterator[Task]:
    MODES.add("toy", toy)
    plain = parse(TASK)
    yield plain.model_copy(update={"privacy": plain.privacy.model_copy(update={"mode": "toy"})})
    MODES._entries.pop("toy")


def test_a_mode_from_outside_works_in_explanations_and_simulations(toy_task: Task) -> None:
    check(toy_task)
    found = explain(toy_task)
    assert found.mode == "toy" and found.promise.startswith("Moved a little")
    assert {part.protection for part in found.message_parts} == {"moved by 0.001", "in clear"}
    told = simulate(toy_task)
    assert told.privacy["sample"] == {"epsilon": 0.5, "delta": 0.0, "by": "Σε"}
    assert told.privacy["paper_claim"] == {"epsilon": 0.25, "delta": 0.0}
    assert told.privacy["noise"] == "0.001 on each number" and told.privacy["guarantee"] == "a toy"
    assert told.test_error < 0.5


def test_a_mode_from_outside_is_refused_where_it_must_be(toy_task: Task) -> None:
    with pytest.raises(crowdml.core.BadInput, match='"toy" exists in simulation only'):
        require_live(toy_task)
    with pytest.raises(crowdml.core.BadInput, match="no ε to choose"):
        toy_task.calibrated.for_owner(1.0)
    assert replace(toy_task.calibrated) == toy_task.calibrated
    assert toy_task.build(NUMPY).last.sanitiser.describe() == {"update": "moved by 0.001"}
