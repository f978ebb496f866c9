"""Gaussian noise: (ε, δ) for a bound in L2, by the analytic calibration."""

from __future__ import annotations

from crowdml.core import Array, Coins
from crowdml.privacy.mechanisms.contract import NoiseLaw
from crowdml.privacy.promise import Spent, gaussian_mu


def _draw(coins: Coins, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
    return coins.gaussian(stage, shape) * scale


GAUSSIAN = NoiseLaw(
    name="gaussian",
    order=2,
    pure=False,
    integer=False,
    scale=lambda epsilon, delta: 1.0 / gaussian_mu(epsilon, delta),
    draw=_draw,
    cost=lambda scale: Spent(mu_squared=1.0 / scale**2),
    deviation=lambda size: 1.0,
)
