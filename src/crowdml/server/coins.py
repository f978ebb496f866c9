"""Coins of the server: it begins models and nothing else, so it needs no noise."""

from __future__ import annotations

import math
import os

import numpy as np

from crowdml.core import Array


class EntropyCoins:
    """Uniform numbers from the operating system. Implements `Coins`; noise belongs to devices and is refused."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1)."""
        words = np.frombuffer(os.urandom(4 * math.prod(shape)), np.uint32) >> np.uint32(8)
        return ((words.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24)).reshape(shape)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Refuse."""
        raise TypeError("the server draws no noise")

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Refuse."""
        raise TypeError("the server draws no noise")
