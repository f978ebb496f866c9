"""The hash must look random. Bounds are set at five standard errors: a false alarm in 2 million, per figure."""

from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY
from crowdml.simulation.coins import HashCoins, trial_seed
from crowdml.simulation.jax_ops import JAX

SIZE = 400_000


def coins(check_in: int = 1, seed: int = 0) -> HashCoins:
    return HashCoins(trial_seed(seed, 0), check_in, NUMPY)


def within(value: float, expected: float, deviation: float, count: int = SIZE) -> bool:
    return bool(abs(value - expected) < 5 * deviation / np.sqrt(count))


def test_uniform_moments() -> None:
    draws = coins().uniform("u", (SIZE,)).astype(np.float64)
    assert within(draws.mean(), 0.5, np.sqrt(1 / 12)) and within((draws**2).mean(), 1 / 3, np.sqrt(4 / 45))
    assert 0 < draws.min() and draws.max() < 1


def test_laplace_moments_and_tails() -> None:
    draws = coins().laplace("l", (SIZE,)).astype(np.float64)
    assert within(draws.mean(), 0, np.sqrt(2)) and within((draws**2).mean(), 2, np.sqrt(24 - 4))
    for bound in (1, 3, 6, 9):
        share = np.exp(-bound)
        assert within((np.abs(draws) > bound).mean(), share, np.sqrt(share * (1 - share)))


def test_gaussian_moments_and_tails() -> None:
    from scipy.special import ndtr

    draws = coins().gaussian("g", (SIZE + 1,)).astype(np.float64)
    assert within(draws.mean(), 0, 1) and within((draws**2).mean(), 1, np.sqrt(2))
    for bound in (1, 2, 3, 4):
        share = 2 * ndtr(-bound)
        assert within((np.abs(draws) > bound).mean(), share, np.sqrt(share * (1 - share)))


@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
def test_discrete_laplace_law(scale: float) -> None:
    draws = coins().discrete_laplace("d", scale, (SIZE,))
    q = np.exp(-1 / scale)
    for value in range(-3, 4):
        share = (1 - q) / (1 + q) * q ** abs(value)
        assert within((draws == value).mean(), share, np.sqrt(share * (1 - share)))
    assert draws.dtype == np.int32


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (coins(1).laplace("l", (SIZE,)), coins(2).laplace("l", (SIZE,))),
        (coins(1).laplace("l", (SIZE,)), coins(1).laplace("m", (SIZE,))),
        (coins(1).laplace("l", (SIZE,)), coins(1, seed=1).laplace("l", (SIZE,))),
        (coins(1).laplace("l", (SIZE + 1,))[:-1], coins(1).laplace("l", (SIZE + 1,))[1:]),
        (coins(1).gaussian("g", (2 * SIZE,))[:SIZE], coins(1).gaussian("g", (2 * SIZE,))[SIZE:]),
    ],
    ids=["check-ins", "stages", "seeds", "neighbours", "halves of a pair"],
)
def test_draws_are_uncorrelated(left: Any, right: Any) -> None:
    assert abs(np.corrcoef(left, right)[0, 1]) < 5 / np.sqrt(SIZE)
    assert abs(np.corrcoef(np.abs(left), np.abs(right))[0, 1]) < 5 / np.sqrt(SIZE)


def test_one_coordinate_over_many_check_ins() -> None:
    draws = np.array([coins(number).uniform("u", (4,)) for number in range(1, 20_001)], np.float64)
    assert abs(draws.mean(axis=0) - 0.5).max() < 5 * np.sqrt(1 / 12 / 20_000)
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 5 / np.sqrt(20_000)
    assert len(np.unique(draws[:, 0])) > 19_900  # 24 bits: about 12 collisions are expected


@pytest.mark.parametrize("law", ["uniform", "laplace", "gaussian"])
def test_numpy_and_jax_draw_alike(law: str) -> None:
    import jax.numpy as jnp

    seed = trial_seed(5, 3)
    ours = getattr(HashCoins(seed, 9, NUMPY), law)("s", (30, 7))
    theirs = np.asarray(getattr(HashCoins(jnp.asarray(seed), 9, JAX), law)("s", (30, 7)))
    np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)
