"""Skellam noise: for shares of a sum of integers with a bound in L2. Sums of such shares have the same kind of law."""

from __future__ import annotations

from typing import cast

from crowdml.core import Array, Coins, GridCoins
from crowdml.privacy.mechanisms.contract import NoiseLaw
from crowdml.privacy.promise import Spent


def _draw(coins: Coins, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
    return cast(GridCoins, coins).skellam(stage, scale, shape)


def _no_scale(epsilon: float, delta: float) -> float:
    raise ValueError("Skellam noise is calibrated for sums, where its divergences are known: see `sums`")


def _no_cost(scale: float) -> Spent:
    raise ValueError("Skellam noise is accounted in sums: see `sums`")


SKELLAM = NoiseLaw(name="skellam", order=2, pure=False, integer=True, scale=_no_scale, draw=_draw, cost=_no_cost)
