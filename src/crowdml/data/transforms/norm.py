"""Norm: bring every row to a given length, so that no single row can say too much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.base import Bounds, Fitted, Transform, require_finite

LEAST = 1e-60
"""Shorter than any row of float32 numbers that is not zero."""
SHRINK = 1 - 2**-22
"""Rounding to float32 must not carry a row beyond its bound, on which a privacy promise may rest."""


class Norm(Transform):
    """Shorten long rows (`at-most`), or bring all rows to one length (`exactly`). A zero row stays zero.

    >>> Norm(order=1, at_most=1.0).fit(np.array([[3.0, 1.0]])).apply(np.array([[3.0, 1.0]])).round(4)
    array([[0.75, 0.25]], dtype=float32)
    """

    kind: Literal["norm"] = "norm"
    order: Literal[1, 2] = Field(examples=[2], description="1 for the sum of absolute values, 2 for Euclidean length.")
    at_most: float | None = Field(None, gt=0, description="Rows longer than this are shortened to it.")
    exactly: float | None = Field(None, gt=0, description="Every row gets this length, except zero rows.")

    centre: bool = Field(False, description="First subtract from every row the mean of its own numbers.")

    @model_validator(mode="after")
    def _one_target(self) -> Norm:
        if (self.at_most is None) == (self.exactly is None):
            raise ValueError("give exactly one of at-most and exactly")
        return self

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Return the fixed function."""
        return Fitted(apply=self._apply, arrays={})

    def bounds(self, before: Bounds) -> Bounds:
        """State the new length; with `at-most` an earlier, smaller bound stays true."""
        radius = self._radius()
        root = None if before.features is None else math.sqrt(before.features)
        l2 = radius
        l1 = radius if self.order == 1 else None if root is None else radius * root
        if self.at_most is not None:
            # Without its mean a row is never longer in L2, and at most twice as long in L1.
            l1 = _least(l1, 2 * before.l1 if self.centre and before.l1 is not None else before.l1)
            l2 = _least(l2, before.l2) or radius
        return Bounds(l1=l1, l2=l2, features=before.features)

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Divide by the length where it counts; in float64, as `apply` does."""
        wide = graph.add("Cast", rows, to="DOUBLE")
        if self.centre:
            wide = graph.add("Sub", wide, graph.add("ReduceMean", wide, axes=(1,), keepdims=1))
        parts = graph.add("Abs", wide) if self.order == 1 else graph.add("Mul", wide, wide)
        lengths = graph.add("ReduceSum", parts, graph.constant((1,)), keepdims=1)
        if self.order == 2:
            lengths = graph.add("Sqrt", lengths)
        radius = SHRINK * self._radius()
        least = graph.constant(np.float64(LEAST if self.at_most is None else radius))
        factors = graph.add("Div", graph.constant(np.float64(radius)), graph.add("Max", lengths, least))
        return graph.add("Cast", graph.add("Mul", wide, factors), to="FLOAT")

    def _radius(self) -> float:
        radius = self.exactly if self.at_most is None else self.at_most
        if radius is None:
            raise BadInput("norm needs at-most or exactly")
        return radius

    def _apply(self, rows: Rows) -> Floats:
        require_finite("norm", rows)
        wide = rows.astype(np.float64)
        if self.centre:
            wide = wide - wide.mean(axis=1, keepdims=True)
        lengths = np.abs(wide).sum(axis=1) if self.order == 1 else np.sqrt(np.square(wide).sum(axis=1))
        radius = self._radius()
        factors = np.where(lengths > 0, SHRINK * radius / np.where(lengths > 0, lengths, 1.0), 1.0)
        if self.at_most is not None:
            factors = np.where(lengths > SHRINK * radius, factors, 1.0)
        return (wide * factors[:, None]).astype(np.float32)


def _least(first: float | None, second: float | None) -> float | None:
    known = [value for value in (first, second) if value is not None]
    return min(known) if known else None
