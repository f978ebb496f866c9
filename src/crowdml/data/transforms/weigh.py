"""Weigh: multiply some columns by factors that everybody knows, so that what matters is not drowned by the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
from crowdml.core.settings import Settings
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.base import Bounds, Fitted, Transform
from crowdml.data.transforms.one_hot import columns_of
from crowdml.data.transforms.scale import rounded_up

Column = Annotated[int, Field(ge=0)]


class Weight(Settings):
    """A span of neighbouring columns and its factor."""

    first: Column = Field(description="The first column; the first of all is 0.")
    last: Column = Field(description="The last column.")
    by: float = Field(description="The factor.")


class Weigh(Transform):
    """Multiply some columns by public factors; the others stay as they are.

    >>> weigh = Weigh(columns=[Weight(first=1, last=1, by=10.0)])
    >>> weigh.fit(np.ones((1, 3))).apply(np.ones((1, 3)))
    array([[ 1., 10.,  1.]], dtype=float32)
    """

    kind: Literal["weigh"] = "weigh"
    columns: list[Weight] = Field(min_length=1, description="Spans of columns and their factors, in ascending order.")

    @model_validator(mode="after")
    def _ascending(self) -> Weigh:
        ends = [-1]
        for span in self.columns:
            if not ends[-1] < span.first <= span.last:
                raise ValueError(f"columns {span.first} to {span.last} do not come after column {ends[-1]}")
            ends.append(span.last)
        return self

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Return the fixed function."""
        return Fitted(apply=self._apply, arrays={})

    def bounds(self, before: Bounds) -> Bounds:
        """Let every bound grow by the largest factor."""
        if before.features is not None and self.columns[-1].last >= before.features:
            raise BadInput(
                f"there is no column {self.columns[-1].last} in rows of {before.features}", where="data.transform"
            )
        largest = max(1.0, *(abs(span.by) for span in self.columns))
        return Bounds(
            l1=None if before.l1 is None else rounded_up(before.l1 * largest),
            l2=None if before.l2 is None else rounded_up(before.l2 * largest),
            features=before.features,
        )

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Cut the columns apart, multiply, and put them together again."""
        pieces, at = [], 0
        for span in self.columns:
            if span.first > at:
                pieces.append(columns_of(graph, rows, at, span.first))
            own = columns_of(graph, rows, span.first, span.last + 1)
            pieces.append(graph.add("Mul", own, graph.constant(np.float32(span.by))))
            at = span.last + 1
        return graph.add("Concat", *pieces, columns_of(graph, rows, at, np.iinfo(np.int64).max), axis=1)

    def _apply(self, rows: Rows) -> Floats:
        made = rows.astype(np.float32)
        for span in self.columns:
            made[:, span.first : span.last + 1] *= np.float32(span.by)
        return made
