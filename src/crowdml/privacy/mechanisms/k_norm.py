"""K-norm noise: pure ε for a bound in L2 (Hardt and Talwar 2010; Crowd-ML library 2016, equation 6).

The density is proportional to exp(-‖z‖₂ / scale) over the whole message: a uniform direction, and a length that is
Gamma distributed with as many degrees as the message has numbers.
"""

from __future__ import annotations

import math

from crowdml.core import Array, Coins
from crowdml.privacy.mechanisms.contract import NoiseLaw
from crowdml.privacy.promise import Spent


def _draw(coins: Coins, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
    direction = coins.gaussian(f"{stage}/direction", shape)
    # A sum of exponential draws is Gamma distributed, and the size of a Laplace draw is exponential.
    radius = abs(coins.laplace(f"{stage}/radius", shape)).sum()
    return direction * (scale * radius / (direction * direction).sum() ** 0.5)


K_NORM = NoiseLaw(
    name="k-norm",
    order=2,
    pure=True,
    integer=False,
    whole=True,
    scale=lambda epsilon, delta: 1.0 / epsilon,
    draw=_draw,
    cost=lambda scale: Spent(pure=1.0 / scale),
    deviation=lambda size: math.sqrt(size + 1),
)
