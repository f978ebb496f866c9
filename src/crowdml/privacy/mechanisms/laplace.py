"""Laplace noise: pure ε for a bound in L1 (Crowd-ML 2015, equation 10)."""

from __future__ import annotations

import math

from crowdml.core import Array, Coins
from crowdml.privacy.mechanisms.contract import NoiseLaw
from crowdml.privacy.promise import Spent


def _draw(coins: Coins, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
    return coins.laplace(stage, shape) * scale


LAPLACE = NoiseLaw(
    name="laplace",
    order=1,
    pure=True,
    integer=False,
    scale=lambda epsilon, delta: 1.0 / epsilon,
    draw=_draw,
    cost=lambda scale: Spent(pure=1.0 / scale),
    deviation=lambda size: math.sqrt(2),
)
