"""Unbalanced: the same mix of classes everywhere, but some devices hold far more rows than others."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from crowdml.data.dataset import Ints
from crowdml.data.partitions.base import Partition, deal_sizes


class Unbalanced(Partition):
    """Draw a lognormal weight for each device and deal shuffled rows in proportion, one row each for a start.

    >>> labels = np.zeros(100, np.int32)
    >>> device = Unbalanced(sigma=2.0).assign(labels, None, 10, np.random.default_rng(0))
    >>> bool(np.bincount(device).min() >= 1)
    True
    """

    kind: Literal["unbalanced"] = "unbalanced"
    sigma: float = Field(1.0, ge=0, le=20, description="Spread of the logarithm of sizes; 0 for equal sizes.")

    def deal(self, labels: Ints, owners: Ints | None, devices: int, generator: np.random.Generator) -> Ints:
        """Cut a random order at places in proportion to the weights."""
        weights = generator.lognormal(0.0, self.sigma, devices)
        spare = len(labels) - devices
        cuts = np.floor(np.cumsum(weights / weights.sum())[:-1] * spare).astype(np.int64)
        extra = np.diff(np.concatenate(([0], np.minimum(cuts, spare), [spare])))
        order = generator.permutation(len(labels)).astype(np.int32)
        return deal_sizes((1 + extra).astype(np.int32), order)
