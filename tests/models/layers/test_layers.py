"""Layers one by one: forward values, first parameters, and pulling slopes back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, Ops
from crowdml.models.layers import LAYERS
from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.dense import Dense
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX

# isort: split
import jax
import jax.numpy as jnp

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
POINTS = np.array([[-1e4, -3.0, -0.5, 0.25, 2.0, 1e4]], np.float32)
WRITTEN = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu}


class Given:
    """Coins that give one number for everything."""

    def __init__(self, value: float) -> None:
        self.value = value

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.full(shape, self.value, np.float32)


@BOTH
@pytest.mark.parametrize("kind", list(WRITTEN))
def test_activations_and_their_slopes(kind: str, ops: Ops) -> None:
    layer = LAYERS[kind]().build((6,), ops)
    y, memory = layer.forward({}, ops.xp.asarray(POINTS))
    np.testing.assert_allclose(y, WRITTEN[kind](POINTS), rtol=1e-5, atol=1e-7)
    above = np.full_like(POINTS, 3.0)
    _, pull = jax.vjp(WRITTEN[kind], jnp.asarray(POINTS))
    np.testing.assert_allclose(layer.pull_back({}, memory, above), pull(jnp.asarray(above))[0], rtol=1e-5, atol=1e-6)
    assert layer.shape == (6,) and layer.factors is None and not layer.biased
    assert layer.init(Given(0.5), "s") == {}  # type: ignore[arg-type]


@BOTH
def test_the_slope_of_relu_at_zero_is_zero(ops: Ops) -> None:
    layer = LAYERS["relu"]().build((1,), ops)
    _, memory = layer.forward({}, ops.xp.zeros((1, 1), dtype=ops.xp.float32))
    assert float(layer.pull_back({}, memory, ops.xp.ones((1, 1), dtype=ops.xp.float32))[0, 0]) == 0.0


@BOTH
def test_flatten_and_back(ops: Ops) -> None:
    layer = LAYERS["flatten"]().build((2, 3), ops)
    # Two examples, 0…5 and 6…11; examples of several axes come first, flat ones last.
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    y, memory = layer.forward({}, x)
    assert layer.shape == (6,)
    np.testing.assert_array_equal(y.T, [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
    np.testing.assert_array_equal(layer.pull_back({}, memory, y), x)


@BOTH
def test_dense_by_hand(ops: Ops) -> None:
    layer = Dense(size=2).build((3,), ops)
    parameters = {"w": np.array([[1, 2, 3], [0, -1, 0.5]], np.float32), "b": np.array([10, 20], np.float32)}
    y, memory = layer.forward(parameters, np.array([[1, 0], [1, 0], [2, 3]], np.float32))
    np.testing.assert_array_equal(y.T, [[19, 20], [19, 21.5]])
    slope = np.array([[1, 0], [2, 1]], np.float32)
    np.testing.assert_array_equal(layer.pull_back(parameters, memory, slope).T, [[1, 0, 4], [0, -1, 0.5]])
    assert layer.biased and layer.factors is not None
    factors = layer.factors(parameters, memory, np.array([[1, 0], [-2, 4]], np.float32))
    total = factors.total(np.array([0.5, 1], np.float32))
    np.testing.assert_array_equal(total["w"], [[0.5, 0.5, 1], [-1, -1, 10]])
    np.testing.assert_array_equal(total["b"], [0.5, 3])
    np.testing.assert_array_equal(factors.squared_norms(), [5 * (6 + 1), 16 * (9 + 1)])
    np.testing.assert_array_equal(factors.absolute_norms(), [3 * (4 + 1), 4 * (3 + 1)])


@pytest.mark.parametrize(("coin", "sign"), [(0.0, -1), (0.5, 0), (1.0, 1)])
def test_first_weights_are_uniform_within_the_stated_reach(coin: float, sign: int) -> None:
    parameters = Dense(size=2).build((4,), NUMPY).init(Given(coin), "s")  # type: ignore[arg-type]
    np.testing.assert_allclose(parameters["w"], np.full((2, 4), sign * math.sqrt(6 / (4 + 2))), atol=1e-7)
    assert parameters["w"].dtype == np.float32
    np.testing.assert_array_equal(parameters["b"], [0, 0])


def test_a_dense_layer_may_do_without_bias_and_start_at_zero() -> None:
    layer = Dense(size=2, bias=False, start="zero").build((4,), NUMPY)
    parameters = layer.init(Given(1.0), "s")  # type: ignore[arg-type]
    assert list(parameters) == ["w"] and not parameters["w"].any() and not layer.biased


def test_first_numbers_as_pytorch_draws_them() -> None:
    coins = HashCoins(trial_seed(0, 0), 0, NUMPY)
    made = Dense(size=300, start="fan-in").build((25,), NUMPY).init(coins, "init/0")
    for leaf in (made["w"], made["b"]):
        assert 0.19 < np.abs(leaf).max() <= 0.2 and abs(float(leaf.mean())) < 0.03
    first = Convolution(size=200, kernel=5, start="fan-in").build((8, 8, 4), NUMPY).init(coins, "init/0")
    for leaf in (first["w"], first["b"]):
        assert 0.095 < np.abs(leaf).max() <= 0.1
    plain = Convolution(size=200, kernel=5).build((8, 8, 4), NUMPY).init(coins, "init/0")
    assert not plain["b"].any()
