"""Projection onto a ball around zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crowdml.core import NUMPY, Ops, trees
from crowdml.core.ops import onto_ball
from crowdml.simulation.engine.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
INSIDE = ({"w": np.array([[3.0, 0.0]], np.float32)}, {"b": np.array([4.0], np.float32)})


@BOTH
def test_inside_nothing_moves_at_all(ops: Ops) -> None:
    for radius in (5.0, 6.0):
        found = onto_ball(INSIDE, radius, ops)
        np.testing.assert_array_equal(found[0]["w"], [[3.0, 0.0]])
        np.testing.assert_array_equal(found[1]["b"], [4.0])


@BOTH
def test_outside_everything_shrinks_by_one_factor(ops: Ops) -> None:
    found = onto_ball(INSIDE, 1.0, ops)
    np.testing.assert_allclose(found[0]["w"], [[0.6, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(found[1]["b"], [0.8], rtol=1e-6)
    assert found[1]["b"].dtype == np.float32


@BOTH
@pytest.mark.parametrize("radius", [1.0, 1e9])
def test_zero_stays_zero(ops: Ops, radius: float) -> None:
    np.testing.assert_array_equal(onto_ball({"w": np.zeros(3, np.float32)}, radius, ops)["w"], np.zeros(3))


@settings(deadline=None, max_examples=100)
@given(
    hnp.arrays(np.float32, st.integers(1, 5), elements=st.floats(-(2.0**50), 2.0**50, width=32)), st.floats(1e-3, 1e6)
)
def test_the_result_is_the_nearest_point_of_the_ball(values: np.ndarray, radius: float) -> None:
    found = onto_ball({"w": values}, radius, NUMPY)["w"].astype(float)
    norm = float(np.linalg.norm(values.astype(float)))
    assert np.linalg.norm(found) <= radius * (1 + 1e-5)
    expected = values.astype(float) * (1.0 if norm <= radius else radius / norm)
    # Squares of numbers below 1e-19 vanish in float32, so a tiny vector may count as zero; it is inside anyway.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-30)
    assert trees.size({"w": found}) == values.size
