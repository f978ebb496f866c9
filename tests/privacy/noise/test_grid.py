"""The grid: whatever goes in, the integers that come out obey the limit."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crowdml.core import NUMPY, GridCoins
from crowdml.privacy.noise.grid import TRIES, Grid, make_fine_grid, make_grid, round_checked, to_levels


class Worst:
    """Coins that always round up, or always the given way."""

    def __init__(self, constant: float | None, seed: int = 0) -> None:
        self.constant, self.rng, self.asked = constant, np.random.default_rng(seed), 0

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        self.asked += 1
        if self.constant is None:
            return self.rng.random(shape, np.float32)
        return np.full(shape, self.constant, np.float32)

    def retry(self, number: Any) -> Worst:
        return self


def obeys(grid: Grid, k: Any) -> bool:
    """The limit in Python's integers, which do not overflow."""
    rows = [[int(value) for value in row] for row in k]
    norms = [sum(map(abs, row)) if grid.order == 1 else sum(value * value for value in row) for row in rows]
    return all(norm <= grid.limit for norm in norms)


def rounded(grid: Grid, vectors: Any, coins: Any) -> Any:
    with np.errstate(all="ignore"):
        return round_checked(grid, to_levels(grid, vectors, NUMPY), coins, "grid", NUMPY)


@settings(deadline=None, max_examples=300)
@given(
    vectors=hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.floats(width=32)),
    order=st.sampled_from([1, 2]),
    radius=st.sampled_from([1e-6, 0.3, 1.0, 1e6]),
    constant=st.sampled_from([None, 0.0, 0.5, 1.0]),
)
def test_the_integers_obey_the_limit_for_any_input(
    vectors: Any, order: int, radius: float, constant: float | None
) -> None:
    grid = make_grid(order, vectors.shape[1], radius, "example")
    k = rounded(grid, vectors, Worst(constant))
    assert k.dtype == np.int32 and k.shape == vectors.shape
    assert obeys(grid, k)


@settings(deadline=None, max_examples=200)
@given(
    x=hnp.arrays(np.float32, (2, 7), elements=st.floats(width=32)),
    order=st.sampled_from([1, 2]),
    constant=st.sampled_from([None, 0.0]),
)
def test_the_check_alone_is_the_proof(x: Any, order: int, constant: float | None) -> None:
    """Vectors that nobody clipped, not even numbers: the integers obey all the same."""
    grid = make_grid(order, 7, 1.0, "example")
    with np.errstate(all="ignore"):
        assert obeys(grid, round_checked(grid, x, cast(GridCoins, Worst(constant)), "grid", NUMPY))


@pytest.mark.parametrize("size", [1, 640, 20_000, 100_000])
def test_squares_on_a_fine_grid_fit_into_their_integers_for_every_size(size: int) -> None:
    """Otherwise a vector that nobody clipped would wrap to a short one, and pass."""
    grid = make_fine_grid(size, 1.0)
    assert grid.limit < 2**31
    k = round_checked(grid, np.full((1, size), 1e9), cast(GridCoins, Worst(0.5)), "grid", NUMPY)
    assert obeys(grid, k)


@pytest.mark.parametrize("order", [1, 2])
def test_without_the_check_the_limit_would_be_passed(order: int) -> None:
    """The naive rule, nearest or upward rounding of a clipped vector, is longer than the limit."""
    grid = make_grid(order, 400, 1.0, "example")
    vectors = np.full((1, 400), 1 / (400 if order == 1 else 20), np.float32)
    x = to_levels(grid, vectors * 0.999, NUMPY)
    up = np.ceil(x).astype(np.int64)
    assert (np.abs(up).sum() if order == 1 else (up**2).sum()) > grid.limit
    coins = Worst(0.0)  # always up: every try is too long
    k = round_checked(grid, x, cast(GridCoins, coins), "grid", NUMPY)
    assert coins.asked == TRIES
    np.testing.assert_array_equal(k, np.trunc(x))


@pytest.mark.parametrize("order", [1, 2])
def test_a_vector_that_is_rounded_again_leaves_the_others_as_they_are(order: int) -> None:
    """Their coins would otherwise depend on it, and a sum would move by more than one vector can."""
    rng = np.random.default_rng(3)
    grid = make_grid(order, 400, 1.0, "example")
    x = to_levels(grid, rng.standard_normal((5, 400)).astype(np.float32), NUMPY) / np.float32(2)
    other = x.copy()
    other[2] = to_levels(grid, np.full((1, 400), 0.999 / (400 if order == 1 else 20), np.float32), NUMPY)

    class Second(Worst):
        """Coins that differ from one try to the next, and always round one vector up."""

        def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
            uniform = super().uniform(stage, shape)
            uniform[2] = 0.0
            return uniform

    coins = Second(None), Second(None)
    one, two = (
        round_checked(grid, levels, cast(GridCoins, given_coins), "grid", NUMPY)
        for levels, given_coins in zip((x, other), coins, strict=True)
    )
    assert coins[0].asked == 1 and coins[1].asked > 1
    np.testing.assert_array_equal(np.delete(one, 2, axis=0), np.delete(two, 2, axis=0))


@pytest.mark.parametrize("order", [1, 2])
def test_rounding_keeps_the_mean_and_is_rarely_repeated(order: int) -> None:
    """False alarm: means of 4,000 roundings of deviation ≤ 1/2, at 6 deviations over 300 numbers: below 1 in 10⁶."""
    rng = np.random.default_rng(1)
    vector = rng.standard_normal(300).astype(np.float32)
    vector *= 0.8 / np.linalg.norm(vector, order)
    grid = make_grid(order, 300, 1.0, "example")
    coins = Worst(None, 2)
    k = rounded(grid, np.tile(vector, (4000, 1)), coins)
    assert coins.asked <= 2  # well inside the radius nothing is ever too long
    assert np.abs(k.mean(axis=0) - vector / grid.step).max() < 6 * 0.5 / np.sqrt(4000)
    at_the_border = np.tile(vector / 0.8, (4000, 1))
    first = np.floor(at_the_border / grid.step + rng.random(at_the_border.shape))
    norms = np.abs(first).sum(axis=1) if order == 1 else (first**2).sum(axis=1)
    assert (norms > grid.limit).mean() < 0.2


def test_levels_and_limits_are_those_of_the_design() -> None:
    grid = make_grid(2, 105, 2.0, "example")
    assert (grid.levels, grid.limit, grid.step) == (64, 64 * 64 + 64 + 26, 2.0 / 64)
    assert grid.sensitivity == pytest.approx(2 * np.sqrt(64**2 + 64 + 26)) and grid.sensitivity_power == 4 * grid.limit
    one = make_grid(1, 500, 2.0, "release")
    assert (one.levels, one.limit, one.sensitivity) == (2048, 2048 + 23, 2 * (2048 + 23))
    # The price of the headroom: a percent or two.
    for order in (1, 2):
        for size in (10, 105, 640, 10_000):
            wide = make_grid(order, size, 1.0, "example")
            assert wide.sensitivity / (2 * wide.levels) < 1.04
