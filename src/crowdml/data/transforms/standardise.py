"""Standardise: give every column mean zero and standard deviation one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.base import Arrays, Blocks, Bounds, Fitted, Transform, require_array, require_columns


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
