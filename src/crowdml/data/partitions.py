"""Partitions: how the training rows are spread over the devices of a simulated crowd.

iid          every device gets a fair sample of all rows
unbalanced   the same mix everywhere, but some devices hold far more rows than others
shards       every device sees only a few of the classes
dirichlet    devices differ in their mix of classes, as much as one number says
writer       the partition that nature made: a device holds the rows of one person
"""

from __future__ import annotations

import abc
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.core.errors import BadInput
from crowdml.core.registry import Registry
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


def deal_sizes(sizes: Ints, order: npt.NDArray[np.int64]) -> Ints:
    """Give the first `sizes[0]` rows of `order` to device 0, the next `sizes[1]` to device 1, and so on.

    >>> deal_sizes(np.array([1, 2], np.int32), np.array([2, 0, 1])).tolist()
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


class Iid(Partition):
    """Shuffle all rows and deal them out evenly; sizes differ by one row at most.

    >>> labels = np.zeros(5, np.int32)
    >>> np.bincount(Iid().assign(labels, None, 2, np.random.default_rng(0))).tolist()
    [3, 2]
    """

    kind: Literal["iid"] = "iid"

    def deal(self, labels: Ints, owners: Ints | None, devices: int, generator: np.random.Generator) -> Ints:
        """Cut a random order into even pieces."""
        order = generator.permutation(len(labels))
        return deal_sizes(even_sizes(len(labels), devices), order)


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
        order = generator.permutation(len(labels))
        return deal_sizes((1 + extra).astype(np.int32), order)


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


PARTITIONS: Registry[type[Partition]] = Registry(
    "partition",
    {"iid": Iid, "shards": Shards, "dirichlet": Dirichlet, "unbalanced": Unbalanced, "writer": Writer},
)
