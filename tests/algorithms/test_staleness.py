"""Staleness rules at and around their limits."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.algorithms.staleness import Stale, accepts, factor
from crowdml.core import NUMPY, Ops
from crowdml.simulation.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)


@pytest.mark.parametrize(
    ("rule", "limit", "used", "not_used"),
    [
        ("accept", 3, [0, 1, 2, 3], [4, 1000]),
        ("weight", 3, [0, 1, 2, 3], [4, 1000]),
        ("accept", 0, [0], [1]),
        ("drop", 3, [0], [1, 2, 3, 4]),
        ("drop", 0, [0], [1]),
    ],
)
def test_which_check_ins_are_used(rule: Stale, limit: int, used: list[int], not_used: list[int]) -> None:
    rule_holds = accepts(rule, limit)
    assert all(rule_holds(staleness) for staleness in used)
    assert not any(rule_holds(staleness) for staleness in not_used)


@BOTH
@pytest.mark.parametrize("staleness", [0, 1, 3, 99])
def test_weights(staleness: int, ops: Ops) -> None:
    for given in (staleness, ops.xp.int32(staleness)):
        found = factor("weight", given, ops)
        assert float(found) == pytest.approx((1 + staleness) ** -0.5, rel=1e-6)
        assert found.dtype == np.float32
        assert float(factor("accept", given, ops)) == float(factor("drop", given, ops)) == 1.0
