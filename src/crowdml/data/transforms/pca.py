"""PCA: keep the few directions along which rows differ most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.base import Arrays, Blocks, Bounds, Fitted, Transform, require_array, require_columns


class Pca(Transform):
    """Subtract the mean row and project onto the directions of largest variance.

    Fitting looks at rows: where those are private, publishing mean and directions is a release. So sound mode fits on
    rows that are declared public (`data.public`), and a live task brings the arrays along.

    >>> rows = np.array([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
    >>> Pca(components=1).fit(rows).apply(rows).round(3).ravel()
    array([-2.828,  0.   ,  2.828], dtype=float32)
    """

    kind: Literal["pca"] = "pca"
    components: int = Field(gt=0, examples=[50], description="How many directions to keep.")

    def learn(self, blocks: Blocks) -> Arrays:
        """Compute mean and directions in one pass over the rows."""
        count, mean, covariance = moments(blocks)
        if self.components > min(count, len(mean)):
            raise BadInput(
                f"pca cannot find {self.components} components in {count} rows of {len(mean)} features",
                hint=f"components must be at most {min(count, len(mean))}",
            )
        return {"mean": mean.astype(np.float32), "directions": _leading(covariance, self.components)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Build the projection from `mean` (features,) and `directions` (features, components)."""
        mean = require_array("pca", arrays, "mean", 1)
        directions = require_array("pca", arrays, "directions", 2)
        if directions.shape != (len(mean), self.components):
            raise BadInput(f"pca: directions must have shape {(len(mean), self.components)}, not {directions.shape}")

        def apply(rows: Rows) -> Floats:
            require_columns("pca", rows, len(mean))
            projected = (rows.astype(np.float32) - mean) @ directions
            return projected.astype(np.float32, copy=False)

        return Fitted(apply=apply, arrays={"mean": mean, "directions": directions})

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Subtract, then project."""
        centred = graph.add("Sub", rows, graph.constant(require_array("pca", arrays, "mean", 1)))
        return graph.add("MatMul", centred, graph.constant(require_array("pca", arrays, "directions", 2)))

    def bounds(self, before: Bounds) -> Bounds:
        """Promise nothing but the width: the mean could be anything."""
        return Bounds(features=self.components)


def moments(blocks: Blocks) -> tuple[int, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the number of rows, their mean and their covariance, in one pass with little memory."""
    count, shift, total, products = 0, None, None, None
    for block in blocks():
        if shift is None or total is None or products is None:
            # Any nearby point will do; sums around it do not cancel as sums around zero would.
            shift = np.asarray(block.mean(axis=0, dtype=np.float64), np.float32)
            total = np.zeros(len(shift))
            products = np.zeros((len(shift), len(shift)))
        centred = block.astype(np.float32) - shift
        count += len(block)
        total += centred.sum(axis=0, dtype=np.float64)
        products += centred.T @ centred
    if shift is None or total is None or products is None:
        raise BadInput("there are no rows to fit to", hint="the training part must have at least one row")
    offset = total / count
    return count, shift + offset, products / count - np.outer(offset, offset)


def _leading(covariance: npt.NDArray[np.float64], components: int) -> Floats:
    from scipy.linalg import eigh

    size = len(covariance)
    _, vectors = eigh(covariance, subset_by_index=(size - components, size - 1))
    directions = vectors[:, ::-1]
    # The sign of a direction is arbitrary; fixing it makes the fit the same on every machine.
    largest = np.abs(directions).argmax(axis=0)
    signs = np.where(directions[largest, np.arange(components)] < 0, -1.0, 1.0)
    return np.ascontiguousarray(directions * signs, dtype=np.float32)
