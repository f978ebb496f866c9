"""Dirichlet: devices differ in their mix of classes, as much as one number says."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from crowdml.core.errors import BadInput
from crowdml.data.dataset import Ints
from crowdml.data.partitions.base import Partition

TRIES = 10


class Dirichlet(Partition):
    """Share out the rows of each class by proportions drawn from a Dirichlet law.

    A large alpha gives nearly equal devices, a small one gives devices that hold few classes and few rows.

    >>> labels = np.repeat(np.arange(2, dtype=np.int32), 50)
    >>> device = Dirichlet(alpha=1.0).assign(labels, None, 4, np.random.default_rng(0))
    >>> int(np.bincount(device, minlength=4).sum())
    100
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(
        gt=0, examples=[0.5], description="Concentration: large for equal devices, small for unequal ones."
    )

    def deal(self, labels: Ints, owners: Ints | None, devices: int, generator: np.random.Generator) -> Ints:
        """Draw again, a few times, while a device is left without rows."""
        for _ in range(TRIES):
            result = self._draw(labels, devices, generator)
            empty = int((np.bincount(result, minlength=devices) == 0).sum())
            if not empty:
                return result
        raise BadInput(
            f"dirichlet with alpha = {self.alpha} leaves {empty} of {devices} devices without a single row",
            hint="choose a larger alpha or fewer devices",
        )

    def _draw(self, labels: Ints, devices: int, generator: np.random.Generator) -> Ints:
        result = np.empty(len(labels), np.int32)
        for label in np.unique(labels):
            members = generator.permutation(np.flatnonzero(labels == label))
            shares = generator.dirichlet(np.full(devices, self.alpha))
            # Gamma draws underflow for tiny alpha; then one device takes the whole class.
            if not np.isfinite(shares).all():
                shares = np.eye(devices)[generator.integers(devices)]
            # Places between cuts rather than rounded sizes: nothing is lost and nothing given twice.
            places = (np.arange(len(members)) + generator.random()) / len(members)
            holder = np.searchsorted(np.cumsum(shares), places, side="right")
            result[members] = np.minimum(holder, devices - 1)
        return result
