"""Mechanisms: scale and cost belong together, bound and noise share a norm, clipping never lengthens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crowdml.core import NUMPY, Ops
from crowdml.privacy import MECHANISMS, Cost
from crowdml.privacy.cost import Gaussian, Pure
from crowdml.privacy.noise.laws import Bound, Mechanism, add_noise, calibrated, clip_weights
from crowdml.simulation.engine.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
EVERY = pytest.mark.parametrize("name", list(MECHANISMS))


class Recorder:
    """Coins that give 1, 2, 3, … and remember what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, tuple[int, ...]]] = []
        self.scales: list[float] = []

    def _draw(self, law: str, stage: str, shape: tuple[int, ...]) -> Any:
        self.asked.append((law, stage, shape))
        return np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return self._draw("uniform", stage, shape)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Any:
        return self._draw("laplace", stage, shape)

    def gaussian(self, stage: str, shape: tuple[int, ...]) -> Any:
        return self._draw("gaussian", stage, shape)

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        self.scales.append(scale)
        return self._draw("discrete-laplace", stage, shape).astype(np.int32)


@EVERY
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("radius", [0.5, 1.0, 3.0])
def test_one_calibrated_release_costs_what_was_asked(name: str, epsilon: float, radius: float) -> None:
    law = MECHANISMS[name]
    delta = 0.0 if law.pure else 1e-5
    made = calibrated(law, Bound(order=law.order, radius=radius, clipped=True), epsilon, delta)
    promise = made.cost.promise(delta)
    assert promise.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert promise.delta == delta
    assert all(isinstance(happened, Pure) == law.pure for happened, _ in made.cost.events)


def test_scales_by_hand() -> None:
    assert MECHANISMS["laplace"].scale(4.0, 0.0) == 0.25
    assert MECHANISMS["discrete-laplace"].scale(4.0, 0.0) == 0.25
    assert MECHANISMS["laplace"].cost(0.25) == Cost.of(Pure(epsilon=4.0))
    assert MECHANISMS["gaussian"].cost(2.0) == Cost.of(Gaussian(mu_squared=0.25))
    assert Bound(order=1, radius=3.0, clipped=False).sensitivity == 6.0


@EVERY
def test_more_noise_costs_less(name: str) -> None:
    law = MECHANISMS[name]
    costs = [law.cost(scale).promise(1e-5).epsilon for scale in (0.5, 1.0, 2.0, 4.0)]
    assert costs == sorted(costs, reverse=True) and len(set(costs)) == 4


@EVERY
def test_a_bound_in_the_other_norm_is_refused(name: str) -> None:
    law = MECHANISMS[name]
    with pytest.raises(ValueError, match=f"{name} noise needs a bound in L{law.order}, not L{3 - law.order}"):
        Mechanism(bound=Bound(order=3 - law.order, radius=1.0, clipped=True), law=law, noise=1.0)
    with pytest.raises(ValueError, match="needs a bound"):
        calibrated(law, Bound(order=3 - law.order, radius=1.0, clipped=True), 1.0, 1e-5)


@BOTH
@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_noise_is_added_to_every_number_once_with_its_scale(name: str, ops: Ops) -> None:
    coins = Recorder()
    tree = {"b": np.zeros(3, np.float32), "a": (np.full((2, 2), 10, np.float32),)}
    found = add_noise(MECHANISMS[name], tree, 0.5, coins, "gradient")
    np.testing.assert_array_equal(found["b"], [0.5, 1.0, 1.5])
    np.testing.assert_array_equal(found["a"][0], [[10.5, 11], [11.5, 12]])
    assert coins.asked == [(name, "gradient/a/0", (2, 2)), (name, "gradient/b", (3,))]
    assert found["b"].dtype == np.float32


def test_discrete_noise_is_drawn_at_its_scale() -> None:
    coins = Recorder()
    tree = {"n": np.array([5, 6], np.int32)}
    found = add_noise(MECHANISMS["discrete-laplace"], tree, 2.5, coins, "s")
    np.testing.assert_array_equal(found["n"], [6, 8])
    assert found["n"].dtype == np.int32
    assert coins.scales == [2.5]


@BOTH
def test_clip_weights_by_hand(ops: Ops) -> None:
    found = clip_weights(ops.xp.asarray([0.0, 0.5, 2.0, 8.0, 1e-38], dtype="float32"), 2.0, ops)
    np.testing.assert_array_equal(found, [1.0, 1.0, 1.0, 0.25, 1.0])
    assert found.dtype == np.float32


@settings(deadline=None, max_examples=200)
@given(
    hnp.arrays(np.float32, st.integers(1, 6), elements=st.floats(0, width=32, max_value=float(np.float32(1e30)))),
    st.floats(1e-6, 1e7),
)
def test_clip_weights_bring_norms_within_the_radius_and_never_lengthen(norms: Any, radius: float) -> None:
    weights = clip_weights(norms, radius, NUMPY)
    assert np.all((weights >= 0) & (weights <= 1))
    assert np.all(norms.astype(float) * weights <= radius * (1 + 1e-6))
    assert np.all(weights[norms <= radius * (1 - 1e-6)] == 1)
    assert np.all((norms.astype(float) * weights)[norms > radius * (1 + 1e-6)] >= radius * (1 - 1e-6))


def test_an_endless_gradient_counts_for_nothing() -> None:
    assert clip_weights(np.array([np.inf], np.float32), 1.0, NUMPY)[0] == 0.0


def test_a_zero_gradient_needs_no_clipping_whatever_the_radius() -> None:
    np.testing.assert_array_equal(clip_weights(np.zeros(2, np.float32), 1e9, NUMPY), [1.0, 1.0])
