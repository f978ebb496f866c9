"""Coins: the only randomness a kernel may use, handed in by the driver.

A draw is addressed by the check-in the coins were made for, a stage name and its shape. The simulation answers
from a counter hash, a device from the operating system's entropy, a test from given values: so a formula with
noise in it can be checked against the same numbers everywhere. All draws have unit scale where a scale exists.
"""

from __future__ import annotations

from typing import Protocol

from crowdml.core.ops import Array


class Coins(Protocol):
    """Named draws. Asking twice for the same stage of the same check-in is a mistake."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1), float32."""
        ...

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Laplace with scale 1 (variance 2), float32."""
        ...

    def gaussian(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Gaussian with standard deviation 1, float32."""
        ...

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Integers z with probability proportional to exp(-|z| / scale), int32."""
        ...


class GridCoins(Coins, Protocol):
    """What sound mode draws besides. Every driver's coins are of this kind; a test of other modes needs less."""

    def discrete_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Integers z with probability proportional to exp(-z² / (2 scale²)), int32."""
        ...

    def skellam(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Differences of two Poisson draws of mean scale²/2 each, int32; the scale is never traced."""
        ...

    def retry(self, number: Array) -> GridCoins:
        """Coins for another try at the same stages, the `number`th; it may be traced."""
        ...
