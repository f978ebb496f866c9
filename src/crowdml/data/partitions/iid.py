"""IID: every device gets a fair sample of all rows."""

from __future__ import annotations

from typing import Literal

import numpy as np

from crowdml.data.dataset import Ints
from crowdml.data.partitions.base import Partition, deal_sizes, even_sizes


class Iid(Partition):
    """Shuffle all rows and deal them out evenly; sizes differ by one row at most.

    >>> labels = np.zeros(5, np.int32)
    >>> np.bincount(Iid().assign(labels, None, 2, np.random.default_rng(0))).tolist()
    [3, 2]
    """

    kind: Literal["iid"] = "iid"

    def deal(self, labels: Ints, owners: Ints | None, devices: int, generator: np.random.Generator) -> Ints:
        """Cut a random order into even pieces."""
        order = generator.permutation(len(labels)).astype(np.int32)
        return deal_sizes(even_sizes(len(labels), devices), order)
