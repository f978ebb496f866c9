"""What a partition is: a rule that says which device of a simulated crowd holds which training row."""

from __future__ import annotations

import abc

import numpy as np

from crowdml.core.errors import BadInput
from crowdml.core.settings import Settings
from crowdml.data.dataset import Ints


class Partition(Settings):
    """The interface of all partitions. A leaf class is final and lists its settings as fields."""

    kind: str

    def assign(self, labels: Ints, owners: Ints | None, devices: int, generator: np.random.Generator) -> Ints:
        """Return the device number, 0 to devices-1, of each training row. Every device gets at least one row.

        Args:
            labels: The class of each row.
            owners: Who produced each row, if known.
            devices: How many devices the crowd has.
            generator: Where all chance comes from; the same generator state gives the same answer.
        """
        if devices < 1:
            raise BadInput(f"a crowd needs at least one device, not {devices}", hint="devices = 1 or more")
        if devices > len(labels):
            raise BadInput(
                f"{devices} devices cannot share {len(labels)} training rows",
                where="crowd.devices",
                hint=f"devices must be at most {len(labels)}, so that each gets a row",
            )
        return self.deal(labels, owners, devices, generator).astype(np.int32, copy=False)

    @abc.abstractmethod
    def deal(self, labels: Ints, owners: Ints | None, devices: int, generator: np.random.Generator) -> Ints:
        """Do what `assign` promises, for a number of devices between 1 and the number of rows."""


def deal_sizes(sizes: Ints, order: Ints) -> Ints:
    """Give the first `sizes[0]` rows of `order` to device 0, the next `sizes[1]` to device 1, and so on.

    >>> deal_sizes(np.array([1, 2], np.int32), np.array([2, 0, 1], np.int32)).tolist()
    [1, 1, 0]
    """
    result = np.empty(len(order), np.int32)
    result[order] = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return result


def even_sizes(rows: int, parts: int) -> Ints:
    """Split a number of rows into parts that differ by one row at most.

    >>> even_sizes(7, 3).tolist()
    [3, 2, 2]
    """
    return np.full(parts, rows // parts, np.int32) + (np.arange(parts) < rows % parts).astype(np.int32)
