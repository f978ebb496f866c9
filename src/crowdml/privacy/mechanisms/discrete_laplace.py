"""Discrete Laplace noise: pure ε for counts (Crowd-ML 2015, equations 11 and 12)."""

from __future__ import annotations

from crowdml.core import Array, Coins
from crowdml.privacy.mechanisms.contract import NoiseLaw
from crowdml.privacy.promise import Spent


def _draw(coins: Coins, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
    return coins.discrete_laplace(stage, scale, shape)


DISCRETE_LAPLACE = NoiseLaw(
    name="discrete-laplace",
    order=1,
    pure=True,
    integer=True,
    scale=lambda epsilon, delta: 1.0 / epsilon,
    draw=_draw,
    cost=lambda scale: Spent(pure=1.0 / scale),
)
