"""Scale: multiply every value by one number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.core.graphs import Graph, Value
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.base import Bounds, Fitted, Transform

LEAST = 2.0**-90
"""Bounds below this are not told apart."""


class Scale(Transform):
    """Multiply every value by one number, for instance to bring pixels into 0..1.

    >>> Scale(by=0.5).fit(np.array([[2, 4]])).apply(np.array([[2, 4]]))
    array([[1., 2.]], dtype=float32)
    """

    kind: Literal["scale"] = "scale"
    by: float = Field(examples=[0.0625], description="The factor every value is multiplied by.")

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Return the fixed function."""
        return Fitted(apply=self._apply, arrays={})

    def bounds(self, before: Bounds) -> Bounds:
        """Scale the bounds too, rounding upwards."""
        factor = abs(float(np.float32(self.by)))
        return Bounds(
            l1=None if before.l1 is None else rounded_up(before.l1 * factor),
            l2=None if before.l2 is None else rounded_up(before.l2 * factor),
            features=before.features,
        )

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Multiply."""
        return graph.add("Mul", rows, graph.constant(np.float32(self.by)))

    def _apply(self, rows: Rows) -> Floats:
        return rows.astype(np.float32) * np.float32(self.by)


def rounded_up(bound: float) -> float:
    """Allow for what rounding adds to a bound."""
    # float32 rounds a product by at most 2^-24 of its value; below 2^-126 by up to 2^-150 whatever the value, which is
    # nothing beside LEAST for any number of columns.
    return max(bound * (1 + 2**-22), LEAST) if bound else 0.0
