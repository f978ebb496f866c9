"""Transforms that treat each column by itself: scale, scale-columns, standardise, intercept, one-hot.

All but standardise are fixed: they are the same on every device because the task file says everything about them.
"""

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
from crowdml.data.transforms.transform import (
    Arrays,
    Blocks,
    Bounds,
    Fitted,
    FixedTransform,
    Transform,
    require_array,
    require_columns,
)

LARGEST = 1e38
"""Of factors and offsets: 32 bits hold little more."""


class Scale(FixedTransform):
    """Multiply every value by one number, for instance to bring pixels into 0..1; first subtract another, if given.

    >>> Scale(by=0.5).fit(np.array([[2, 4]])).apply(np.array([[2, 4]]))
    array([[1., 2.]], dtype=float32)
    >>> Scale(by=0.5, offset=2.0).fit(np.array([[2, 4]])).apply(np.array([[2, 4]]))
    array([[0., 1.]], dtype=float32)
    """

    kind: Literal["scale"] = "scale"
    by: float = Field(
        examples=[0.0625], ge=-LARGEST, le=LARGEST, description="The factor every value is multiplied by."
    )
    offset: float = Field(
        0.0, ge=-LARGEST, le=LARGEST, description="What is first subtracted from every value, such as a known mean."
    )

    def bounds(self, before: Bounds) -> Bounds:
        """Scale the bounds too, rounding upwards; an offset makes rows longer by its own length at most."""
        return before.shifted(abs(float(np.float32(self.offset)))).scaled(abs(float(np.float32(self.by))))

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Subtract, where there is something to subtract, and multiply."""
        moved = graph.add("Sub", rows, graph.constant(np.float32(self.offset))) if self.offset else rows
        return graph.add("Mul", moved, graph.constant(np.float32(self.by)))

    def apply(self, rows: Rows) -> Floats:
        """Subtract and multiply in float32."""
        made = rows.astype(np.float32)
        return (made - np.float32(self.offset) if self.offset else made) * np.float32(self.by)


Column = Annotated[int, Field(ge=0)]


class Span(Settings):
    """A span of neighbouring columns and its factor."""

    first: Column = Field(description="The first column; the first of all is 0.")
    last: Column = Field(description="The last column.")
    by: float = Field(ge=-LARGEST, le=LARGEST, description="The factor.")


class ScaleColumns(FixedTransform):
    """Multiply some columns by public factors; the others stay as they are.

    >>> louder = ScaleColumns(columns=[Span(first=1, last=1, by=10.0)])
    >>> louder.fit(np.ones((1, 3))).apply(np.ones((1, 3)))
    array([[ 1., 10.,  1.]], dtype=float32)
    """

    kind: Literal["scale-columns"] = "scale-columns"
    columns: list[Span] = Field(min_length=1, description="Spans of columns and their factors, in ascending order.")

    @model_validator(mode="after")
    def _ascending(self) -> ScaleColumns:
        ends = [-1]
        for span in self.columns:
            if not ends[-1] < span.first <= span.last:
                raise ValueError(f"columns {span.first} to {span.last} do not come after column {ends[-1]}")
            ends.append(span.last)
        return self

    def bounds(self, before: Bounds) -> Bounds:
        """Let every bound grow by the largest factor."""
        if before.features is not None and self.columns[-1].last >= before.features:
            raise BadInput(
                f"there is no column {self.columns[-1].last} in rows of {before.features}", where="data.transform"
            )
        return before.scaled(max(1.0, *(abs(span.by) for span in self.columns)))

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Cut the columns apart, multiply, and put them together again."""
        pieces, at = [], 0
        for span in self.columns:
            if span.first > at:
                pieces.append(columns_of(graph, rows, at, span.first))
            chosen = columns_of(graph, rows, span.first, span.last + 1)
            pieces.append(graph.add("Mul", chosen, graph.constant(np.float32(span.by))))
            at = span.last + 1
        return graph.add("Concat", *pieces, columns_of(graph, rows, at, np.iinfo(np.int64).max), axis=1)

    def apply(self, rows: Rows) -> Floats:
        """Multiply the columns of each span, in a copy."""
        made = rows.astype(np.float32)
        for span in self.columns:
            made[:, span.first : span.last + 1] *= np.float32(span.by)
        return made


class Standardise(Transform):
    """Subtract each column's mean and divide by its standard deviation. A constant column becomes zero.

    Fitting looks at rows: where those are private, publishing mean and deviation is a release. So sound mode fits on
    rows that are declared public (`data.public`), and a live task brings the arrays along.

    >>> rows = np.array([[0.0, 7.0], [2.0, 7.0]])
    >>> Standardise().fit(rows).apply(rows).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    kind: Literal["standardise"] = "standardise"

    def learn(self, blocks: Blocks) -> Arrays:
        """Compute mean and deviation in two passes, which is exact even for columns far from zero."""
        count, total = 0, None
        for block in blocks():
            count += len(block)
            part = block.sum(axis=0, dtype=np.float64)
            total = part if total is None else total + part
        if total is None:
            raise BadInput("there are no rows to fit to", hint="the training part must have at least one row")
        mean = total / count
        squares = sum(np.square(block - mean).sum(axis=0) for block in blocks())
        return {"mean": mean.astype(np.float32), "deviation": np.sqrt(squares / count).astype(np.float32)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Build the function from `mean` and `deviation`, each of shape (features,)."""
        mean, deviation, factor = _read(arrays)

        def apply(rows: Rows) -> Floats:
            require_columns("standardise", rows, len(mean))
            scaled: Floats = (rows.astype(np.float32) - mean) * factor
            return scaled

        return Fitted(apply=apply, arrays={"mean": mean, "deviation": deviation})

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Subtract, then multiply."""
        mean, _, factor = _read(arrays)
        return graph.add("Mul", graph.add("Sub", rows, graph.constant(mean)), graph.constant(factor))

    def bounds(self, before: Bounds) -> Bounds:
        """Promise nothing but the width: a column may have any spread."""
        return Bounds(features=before.features)


def _read(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[Floats, Floats, Floats]:
    """Return mean, deviation, and the factor of each column."""
    mean = require_array("standardise", arrays, "mean", 1)
    deviation = require_array("standardise", arrays, "deviation", 1)
    if deviation.shape != mean.shape or (deviation < 0).any():
        raise BadInput("standardise: deviation must be as long as mean, and not negative")
    # What float32 cannot tell from a constant column counts as one.
    varies = deviation > 1e-6 * np.maximum(1.0, np.abs(mean))
    return mean, deviation, np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0).astype(np.float32)


class Intercept(FixedTransform):
    """Append a column that has the same value in every row.

    Put it before `norm` if the length of the whole row must stay bounded by the norm's own figure.

    >>> Intercept().fit(np.zeros((1, 2))).apply(np.zeros((1, 2)))
    array([[0., 0., 1.]], dtype=float32)
    """

    kind: Literal["intercept"] = "intercept"
    value: float = Field(1.0, description="The value of the new last column.")

    def bounds(self, before: Bounds) -> Bounds:
        """Add the new value to each bound."""
        return before.widened(1, abs(float(np.float32(self.value))))

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Pad by one column at the end."""
        return graph.add("Pad", rows, graph.constant((0, 0, 0, 1)), graph.constant(np.float32(self.value)))

    def apply(self, rows: Rows) -> Floats:
        """Append the column."""
        result = np.empty((len(rows), rows.shape[1] + 1), np.float32)
        result[:, :-1] = rows
        result[:, -1] = self.value
        return result


class OneHot(FixedTransform):
    """Replace a column of whole numbers 0 .. size-1 by `size` columns with a single 1, in the same place.

    >>> OneHot(column=0, size=3).fit(np.array([[2, 5]])).apply(np.array([[2, 5]]))
    array([[0., 0., 1., 5.]], dtype=float32)
    """

    kind: Literal["one-hot"] = "one-hot"
    column: int = Field(ge=0, description="Which column holds the class number; the first is 0.")
    size: int = Field(gt=0, description="How many classes there are.")

    def bounds(self, before: Bounds) -> Bounds:
        """Add the single 1 to what was there; the old column can only have made the row longer."""
        return before.widened(self.size - 1, 1.0)

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Compare the column with every class number; columns before and after stay."""
        before = columns_of(graph, rows, 0, self.column)
        column = columns_of(graph, rows, self.column, self.column + 1)
        after = columns_of(graph, rows, self.column + 1, np.iinfo(np.int64).max)
        numbers = graph.constant(np.arange(self.size, dtype=np.float32)[None])
        spread = graph.add("Cast", graph.add("Equal", column, numbers), to="FLOAT")
        return graph.add("Concat", before, spread, after, axis=1)

    def apply(self, rows: Rows) -> Floats:
        """Spread the column, refusing what is no class number."""
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
