"""One-hot: spread a column of class numbers over one column per class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.base import Bounds, Fitted, Transform


class OneHot(Transform):
    """Replace a column of whole numbers 0 .. size-1 by `size` columns with a single 1, in the same place.

    >>> OneHot(column=0, size=3).fit(np.array([[2, 5]])).apply(np.array([[2, 5]]))
    array([[0., 0., 1., 5.]], dtype=float32)
    """

    kind: Literal["one-hot"] = "one-hot"
    column: int = Field(ge=0, description="Which column holds the class number; the first is 0.")
    size: int = Field(gt=0, description="How many classes there are.")

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Return the fixed function."""
        return Fitted(apply=self._apply, arrays={})

    def bounds(self, before: Bounds) -> Bounds:
        """Add the single 1 to what was there; the old column can only have made the row longer."""
        return Bounds(
            l1=None if before.l1 is None else before.l1 + 1,
            l2=None if before.l2 is None else math.hypot(before.l2, 1),
            features=None if before.features is None else before.features + self.size - 1,
        )

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Compare the column with every class number; columns before and after stay."""
        before = columns_of(graph, rows, 0, self.column)
        column = columns_of(graph, rows, self.column, self.column + 1)
        after = columns_of(graph, rows, self.column + 1, np.iinfo(np.int64).max)
        numbers = graph.constant(np.arange(self.size, dtype=np.float32)[None])
        spread = graph.add("Cast", graph.add("Equal", column, numbers), to="FLOAT")
        return graph.add("Concat", before, spread, after, axis=1)

    def _apply(self, rows: Rows) -> Floats:
        if self.column >= rows.shape[1]:
            raise BadInput(
                f"one-hot: there is no column {self.column} in rows of {rows.shape[1]} features",
                hint=f"columns are 0 to {rows.shape[1] - 1}",
            )
        numbers = rows[:, self.column]
        chosen = numbers.astype(np.int64)
        if (chosen != numbers).any() or (chosen < 0).any() or (chosen >= self.size).any():
            raise BadInput(f"one-hot: column {self.column} must hold whole numbers from 0 to {self.size - 1}")
        spread = np.zeros((len(rows), self.size), np.float32)
        spread[np.arange(len(rows)), chosen] = 1
        parts = (rows[:, : self.column], spread, rows[:, self.column + 1 :])
        return np.concatenate(parts, axis=1, dtype=np.float32)


def columns_of(graph: Graph, rows: Value, start: int, end: int) -> Value:
    """Take columns from `start` up to `end`, if there are any."""
    return graph.add("Slice", rows, graph.constant((start,)), graph.constant((end,)), graph.constant((1,)))
