"""Intercept: append a column with one value, so that a linear model gets an offset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.core.graphs import Graph, Value
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.base import Bounds, Fitted, Transform


class Intercept(Transform):
    """Append a column that has the same value in every row.

    Put it before `norm` if the length of the whole row must stay bounded by the norm's own figure.

    >>> Intercept().fit(np.zeros((1, 2))).apply(np.zeros((1, 2)))
    array([[0., 0., 1.]], dtype=float32)
    """

    kind: Literal["intercept"] = "intercept"
    value: float = Field(1.0, description="The value of the new last column.")

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Return the fixed function."""
        return Fitted(apply=self._apply, arrays={})

    def bounds(self, before: Bounds) -> Bounds:
        """Add the new value to each bound."""
        extra = abs(float(np.float32(self.value)))
        return Bounds(
            l1=None if before.l1 is None else before.l1 + extra,
            l2=None if before.l2 is None else math.hypot(before.l2, extra),
            features=None if before.features is None else before.features + 1,
        )

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Pad by one column at the end."""
        return graph.add("Pad", rows, graph.constant((0, 0, 0, 1)), graph.constant(np.float32(self.value)))

    def _apply(self, rows: Rows) -> Floats:
        result = np.empty((len(rows), rows.shape[1] + 1), np.float32)
        result[:, :-1] = rows
        result[:, -1] = self.value
        return result
