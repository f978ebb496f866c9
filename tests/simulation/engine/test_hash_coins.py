"""The hash must look random. Bounds are set at five standard errors: a false alarm in 2 million, per figure."""

from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX

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


@pytest.mark.parametrize("scale", [3.0, 4.0, 7.3, 16.0, 100.0])
def test_a_rounded_gaussian_is_nearly_a_discrete_one(scale: float) -> None:
    """The distance of the two laws, added up over all integers: no draws, no chance."""
    from scipy.stats import norm

    size = np.abs(np.arange(-int(12 * scale), int(12 * scale) + 1)).astype(float)
    discrete = np.exp(-(size**2) / (2 * scale**2))
    discrete /= discrete.sum()
    wide = np.sqrt(scale**2 - 1 / 12)
    rounded = norm.sf((size - 0.5) / wide) - norm.sf((size + 0.5) / wide)
    assert 0.5 * np.abs(discrete - rounded).sum() < 5e-4 / scale**4
    plain = norm.sf((size - 0.5) / scale) - norm.sf((size + 0.5) / scale)
    assert 0.5 * np.abs(discrete - plain).sum() > 1e-2 / scale**2, "without the correction it would be far more"


def test_in_float32_a_gaussian_draw_is_off_by_less_than_a_millionth() -> None:
    """Against the same formula in double precision, from the same words; a root near zero may be off by more."""
    draws = coins()
    turn = draws._words("g", SIZE, 1).view(np.int32).astype(np.float64) * 2.0**-31
    exponential = -np.log(((draws._words("g", SIZE, 0) & np.uint32(0x7FFFFFFF)) | np.uint32(1)) / 2.0**31)
    exact = np.sqrt(2 * exponential) * np.sin(np.pi / 2 * turn)
    off = np.abs(draws.gaussian("g", (SIZE,)) - exact)
    assert off.mean() < 5e-7 and off.max() < 1e-3 and (off > 2e-6).mean() < 1e-3


@pytest.mark.parametrize("scale", [4.0, 524.0])
def test_discrete_gaussian_draws_have_their_law(scale: float) -> None:
    """χ² of 10⁶ draws over at most 121 cells. False alarm: 4 standard deviations, 1 in 30,000; the seed is fixed."""
    from scipy import stats

    draws = HashCoins(np.array([1, 2], np.uint32), 1, NUMPY).discrete_gaussian("s", scale, (1_000_000,))
    assert draws.dtype == np.int32
    reach = int(4.5 * scale)
    width = max(1, reach // 60)
    edges = np.arange(-reach, reach + 1, width)
    inner = np.arange(-40 * int(scale), 40 * int(scale) + 1)
    pmf = np.exp(-(inner.astype(float) ** 2) / (2 * scale**2))
    cells = np.searchsorted(edges, inner, side="right")
    expected = np.bincount(cells, pmf / pmf.sum(), minlength=len(edges) + 1) * 1e6
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    common = expected > 20
    square = ((observed - expected)[common] ** 2 / expected[common]).sum()
    assert abs(stats.norm.isf(stats.chi2.sf(square, common.sum() - 1))) < 4


@pytest.mark.parametrize("scale", [0.5, 0.9375, 4.0, 524.0])
def test_rounded_gaussian_draws_have_their_law_at_any_scale(scale: float) -> None:
    """χ² of 10⁶ draws over at most 120 cells. False alarm: 4 standard deviations, 1 in 30,000; the seed is fixed."""
    from scipy import stats

    draws = HashCoins(np.array([1, 2], np.uint32), 1, NUMPY).rounded_gaussian("s", scale, (1_000_000,))
    assert draws.dtype == np.int32
    edges = np.unique(np.round(np.linspace(-4.2, 4.2, 120) * max(scale, 0.8))) + 0.5
    expected = np.diff(np.concatenate([[0.0], stats.norm.cdf(edges / scale), [1.0]])) * 1e6
    observed = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    common = expected > 20
    square = ((observed - expected)[common] ** 2 / expected[common]).sum()
    assert abs(stats.norm.isf(stats.chi2.sf(square, common.sum() - 1))) < 4


def test_another_try_has_other_coins_and_the_same_ones_when_asked_again() -> None:
    coins = HashCoins(np.array([1, 2], np.uint32), 9, NUMPY)
    first, second, again = (coins.retry(n).uniform("s", (1000,)) for n in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    for other in (
        second,
        coins.uniform("s", (1000,)),
        HashCoins(np.array([1, 2], np.uint32), 10, NUMPY).retry(1).uniform("s", (1000,)),
    ):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.15
