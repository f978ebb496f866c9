"""Writer: the partition that nature made, in which a device holds the rows of one person."""

from __future__ import annotations

from typing import Literal

import numpy as np

from crowdml.core.errors import BadInput
from crowdml.data.dataset import Ints
from crowdml.data.partitions.base import Partition


class Writer(Partition):
    """Keep the rows of one owner together; with fewer devices than owners a device holds several owners.

    >>> owners = np.array([7, 7, 9, 9, 9], np.int32)
    >>> device = Writer().assign(np.zeros(5, np.int32), owners, 2, np.random.default_rng(0))
    >>> sorted(np.bincount(device).tolist())
    [2, 3]
    """

    kind: Literal["writer"] = "writer"

    def deal(self, labels: Ints, owners: Ints | None, devices: int, generator: np.random.Generator) -> Ints:
        """Deal whole owners, in random order, round after round."""
        if owners is None:
            raise BadInput(
                "this dataset does not say who produced each row, so it cannot be split by writer",
                hint="choose another partition, or data with owners: mnist (with its writer file) or activity",
            )
        people, number = np.unique(owners, return_inverse=True)
        if devices > len(people):
            raise BadInput(
                f"the rows come from {len(people)} owners, too few for {devices} devices",
                hint=f"devices must be at most {len(people)}",
            )
        holder = generator.permutation(len(people)) % devices
        return holder[number].astype(np.int32)
