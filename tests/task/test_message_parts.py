"""Owners are told of every message that leaves a device, also of those that are sent once."""

from __future__ import annotations

import pytest

from crowdml.task import parse
from crowdml.task.explanation import explain
from tests.support.plans import on_grid

TASK = """
crowdml = 1
name = "income"
objective = "Tell incomes"
[data]
features = 20
labels = ["low", "high"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "logistic"
[algorithm]
kind = "consensus-newton"
per-round = 100
[privacy]
mode = "sound"
mechanism = "gaussian"
epsilon = 1.0
delta = 1e-5
clip = 0.5
max-uses = 20
[secure-aggregation]
enabled = true
"""


def test_products_that_are_sent_first_are_listed_with_their_own_noise() -> None:
    task = parse(TASK)
    first, rest = (on_grid(sanitiser) for sanitiser in task.calibrated.sanitisers)
    parts = {part.name: part for part in explain(task).message_parts}
    assert parts["update"].size_bytes == 4 * 20 * 21 // 2
    assert f"scale {first.scale:g} levels; then masked" in parts["update"].protection
    assert f"scale {rest.scale:g} levels; then masked" in parts["update/0/w"].protection
    assert parts["weight"].protection == "masked"


@pytest.mark.parametrize("changes", [(), ('algorithm={ kind = "ridge", per-round = 100 }', "privacy.max-uses=1")])
def test_what_is_enforced_is_never_less_than_what_can_be_proven(changes: tuple[str, ...]) -> None:
    told = explain(parse(TASK, changes=changes))
    assert all(enforced >= best.epsilon - 1e-9 for _, enforced, best in told.curve), told.curve
    assert told.curve[-1][1] <= 1.0
