"""Shards: every device sees only a few of the classes."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from crowdml.core.errors import BadInput
from crowdml.data.dataset import Ints
from crowdml.data.partitions.base import Partition, even_sizes


class Shards(Partition):
    """Sort the rows by label, cut them into equal shards, and give each device a few shards at random.

    This is the hard partition of McMahan et al. (2017): with two shards a device sees about two classes.

    >>> labels = np.repeat(np.arange(4, dtype=np.int32), 5)
    >>> device = Shards(per_device=1).assign(labels, None, 4, np.random.default_rng(0))
    >>> [len(set(labels[device == number])) for number in range(4)]
    [1, 1, 1, 1]
    """

    kind: Literal["shards"] = "shards"
    per_device: int = Field(2, gt=0, description="How many shards each device gets.")

    def deal(self, labels: Ints, owners: Ints | None, devices: int, generator: np.random.Generator) -> Ints:
        """Give shard number s to the device at place s of a random order."""
        shards = devices * self.per_device
        if shards > len(labels):
            raise BadInput(
                f"{devices} devices with {self.per_device} shards each need {shards} rows; there are {len(labels)}",
                hint=f"per-device must be at most {len(labels) // devices}",
            )
        shuffled = generator.permutation(len(labels))
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        holder = generator.permutation(np.arange(shards, dtype=np.int32) % devices)
        result = np.empty(len(labels), np.int32)
        result[order] = np.repeat(holder, even_sizes(len(labels), shards))
        return result
