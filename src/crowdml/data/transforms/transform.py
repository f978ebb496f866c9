"""What a transform is: settings that can be fitted, and then turn rows into better rows.

A transform is a line of a task file. Fitting gives a `Fitted`: a function from rows to rows, and the arrays it
needs. Fixed transforms need none. The arrays of a fitted one travel in the signed task, and any device
rebuilds the same function from them with `restore`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
from crowdml.core.records import record
from crowdml.core.settings import Settings
from crowdml.data.dataset import Floats, Rows

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

Blocks: TypeAlias = Callable[[], Iterator[Rows]]
"""Rows, a block at a time; calling again starts from the first row again."""

BLOCK_NUMBERS = 1 << 22
"""How many numbers one block holds (16 MiB as float32): large enough for fast matrix products."""


LEAST = 2.0**-90
"""Bounds below this are not told apart."""


@record
class Fitted:
    """A transform ready to be applied.

    Attributes:
        apply: Turns rows of shape (any, features) into float32 rows of shape (any, new features).
        arrays: What was learnt from data, by name; empty for fixed transforms.
        private_fit: True if `arrays` was computed from the crowd's own rows. Publishing it is then a release.
    """

    apply: Callable[[Rows], Floats]
    arrays: Arrays
    private_fit: bool = False


@record
class Bounds:
    """What is known about every row at one point of a chain; None where nothing is known.

    Attributes:
        l1: No row has a larger sum of absolute values.
        l2: No row has a larger Euclidean length.
        features: The number of columns.
    """

    l1: float | None = None
    l2: float | None = None
    features: int | None = None

    def scaled(self, factor: float) -> Bounds:
        """Let no number grow by more than a factor; what rounding adds is allowed for."""
        l1, l2 = (None if length is None else rounded_up(length * factor) for length in (self.l1, self.l2))
        return Bounds(l1=l1, l2=l2, features=self.features)

    def shifted(self, offset: float) -> Bounds:
        """Let every number move by at most an offset; what rounding adds is allowed for."""
        if not offset:
            return self
        count = self.features
        l1 = None if self.l1 is None or count is None else rounded_up(self.l1 + offset * count)
        l2 = None if self.l2 is None or count is None else rounded_up(self.l2 + offset * math.sqrt(count))
        return Bounds(l1=l1, l2=l2, features=count)

    def widened(self, columns: int, value: float) -> Bounds:
        """Add columns of which one at most is not zero, and that one no larger than a value."""
        return Bounds(
            l1=None if self.l1 is None else self.l1 + value,
            l2=None if self.l2 is None else math.hypot(self.l2, value),
            features=None if self.features is None else self.features + columns,
        )


def rounded_up(bound: float) -> float:
    """Allow for what rounding adds to a bound."""
    # float32 rounds a product by at most 2^-24 of its value; below 2^-126 by up to 2^-150 whatever the value, which is
    # nothing beside LEAST for any number of columns.
    return max(bound * (1 + 2**-22), LEAST) if bound else 0.0


class Transform(Settings):
    """The interface of all transforms. A leaf class is final and lists its settings as fields."""

    kind: str
    costly: ClassVar[bool] = False
    """True if the result is worth keeping in memory rather than computing again."""

    def learn(self, blocks: Blocks) -> Arrays:
        """Compute what the transform needs from rows; nothing for fixed transforms."""
        return {}

    @abc.abstractmethod
    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Build the function from the arrays that `learn` gave, here or on another machine."""

    @abc.abstractmethod
    def bounds(self, before: Bounds) -> Bounds:
        """Say what is known of each row afterwards, whatever the rows were."""

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Write the function into a graph; rows that the function refuses are not refused there."""
        raise BadInput(f"{self.kind} cannot be exported", where="data.transform")

    @property
    def learns(self) -> bool:
        """Whether fitting looks at rows. What it finds may be published only if those rows are public."""
        return type(self).learn is not Transform.learn

    def fit(self, rows: Rows) -> Fitted:
        """Learn from the rows and return the ready function."""
        found = self.restore(self.learn(lambda: blocks_of(rows)))
        return dataclasses.replace(found, private_fit=self.learns)


class FixedTransform(Transform):
    """A transform that learns nothing: it is the same everywhere, because the task file says all about it."""

    @abc.abstractmethod
    def apply(self, rows: Rows) -> Floats:
        """Turn rows of shape (any, features) into float32 rows of shape (any, new features)."""

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Return `apply`, which needs no arrays."""
        return Fitted(apply=self.apply, arrays={})


def blocks_of(rows: Rows, numbers: int = BLOCK_NUMBERS) -> Iterator[Rows]:
    """Cut a table into blocks of rows of so many numbers, without copying.

    >>> [len(block) for block in blocks_of(np.zeros((5, 1 << 21)))]
    [2, 2, 1]
    """
    size = max(1, numbers // max(1, rows.shape[1]))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def require_columns(kind: str, rows: Rows, expected: int) -> None:
    """Refuse rows whose width is not the one the transform was fitted for."""
    if rows.ndim != 2 or rows.shape[1] != expected:
        raise BadInput(f"{kind} expects rows of {expected} features, not an array of shape {rows.shape}")


def require_finite(kind: str, rows: Rows) -> None:
    """Refuse infinite numbers and NaN, which would spread silently."""
    if not np.isfinite(rows).all():
        raise BadInput(f"{kind} met a value that is not a finite number", hint="clean or drop such rows first")


def require_array(kind: str, arrays: Mapping[str, npt.NDArray[Any]], name: str, ndim: int) -> Floats:
    """Take one array out of a signed task, as float32, or say what is wrong with it."""
    if name not in arrays:
        raise BadInput(
            f'{kind} needs an array "{name}"', hint="fit the transform first, or take it from the signed task"
        )
    array = np.asarray(arrays[name], np.float32)
    if array.ndim != ndim or not np.isfinite(array).all():
        raise BadInput(f'{kind}: the array "{name}" must have {ndim} axes and finite values, not shape {array.shape}')
    return array
