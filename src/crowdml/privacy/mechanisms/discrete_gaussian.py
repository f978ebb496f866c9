"""Discrete Gaussian noise: for integers with a bound in L2 (Canonne, Kamath and Steinke 2020)."""

from __future__ import annotations

from typing import cast

from crowdml.core import Array, Coins, GridCoins
from crowdml.privacy.mechanisms.contract import NoiseLaw
from crowdml.privacy.promise import Spent, gaussian_mu


def _draw(coins: Coins, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
    return cast(GridCoins, coins).discrete_gaussian(stage, scale, shape)


DISCRETE_GAUSSIAN = NoiseLaw(
    name="discrete-gaussian",
    order=2,
    pure=False,
    integer=True,
    scale=lambda epsilon, delta: 1.0 / gaussian_mu(epsilon, delta),
    draw=_draw,
    cost=lambda scale: Spent(mu_squared=1.0 / scale**2),
)
