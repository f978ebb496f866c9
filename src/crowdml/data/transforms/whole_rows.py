"""Transforms that look at a row as a whole: its length (norm), its main directions (pca), its frequencies (fft)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from crowdml.core.blas_threads import one_blas_thread
from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
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
    require_finite,
)

LEAST = 1e-60
"""Shorter than any row of float32 numbers that is not zero."""
SHRINK = 1 - 2**-22
"""Rounding to float32 must not carry a row beyond its bound, on which a privacy promise may rest."""


class Norm(FixedTransform):
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

    def apply(self, rows: Rows) -> Floats:
        """Shorten in float64, so that rounding does not carry a row beyond its bound."""
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


WHITEN_FLOOR = 1e-3
"""Share of the largest standard deviation below which a direction is taken to have that much: the rest is rounding."""


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
    whiten: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Divide each direction by this power of its standard deviation: 1 makes all alike; a half lets "
        "directions of little variance count more, which shortens training under noise.",
    )

    def learn(self, blocks: Blocks) -> Arrays:
        """Compute mean and directions in one pass over the rows."""
        count, mean, covariance = moments(blocks)
        if self.components > min(count, len(mean)):
            raise BadInput(
                f"pca cannot find {self.components} components in {count} rows of {len(mean)} features",
                hint=f"components must be at most {min(count, len(mean))}",
            )
        directions = _leading(covariance, self.components)
        if self.whiten:
            deviations = np.sqrt(np.einsum("ik,ij,jk->k", directions, covariance, directions, optimize=True).clip(0))
            floor = WHITEN_FLOOR * max(float(deviations.max()), float(np.finfo(np.float32).tiny))
            directions = (directions / np.maximum(deviations, floor) ** self.whiten).astype(np.float32)
        return {"mean": mean.astype(np.float32), "directions": directions}

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
    with one_blas_thread():  # SciPy brings a library of its own, which is loaded by now
        _, vectors = eigh(covariance, subset_by_index=(size - components, size - 1))
    directions = vectors[:, ::-1]
    # The sign of a direction is arbitrary; fixing it makes the fit the same on every machine.
    largest = np.abs(directions).argmax(axis=0)
    signs = np.where(directions[largest, np.arange(components)] < 0, -1.0, 1.0)
    return np.ascontiguousarray(directions * signs, dtype=np.float32)


class Fft(FixedTransform):
    """Read each row as a recording and replace it by the magnitudes of its discrete Fourier transform.

    As many bins as samples: for real recordings the upper half mirrors the lower one.

    >>> Fft().fit(np.ones((1, 4))).apply(np.ones((1, 4)))
    array([[4., 0., 0., 0.]], dtype=float32)
    """

    kind: Literal["fft"] = "fft"

    def apply(self, rows: Rows) -> Floats:
        """Return the magnitudes, as many as a recording has samples."""
        return magnitudes(rows)

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Use ONNX's transform of real rows, which wants one more axis at the end."""
        axis = graph.constant((2,))
        wide = graph.add("Unsqueeze", graph.add("Cast", rows, to="DOUBLE"), axis)
        bins = graph.add("DFT", wide, axis=1)
        power = graph.add("ReduceSum", graph.add("Mul", bins, bins), axis, keepdims=0)
        return graph.add("Cast", graph.add("Sqrt", power), to="FLOAT")

    def bounds(self, before: Bounds) -> Bounds:
        """Use Parseval's theorem for the length, and that no bin exceeds the sum of absolute values."""
        if before.features is None:
            return Bounds()
        root = math.sqrt(before.features) * (1 + 2**-22)
        known = _least(before.l2, before.l1)
        l2 = None if known is None else known * root
        return Bounds(l1=None if l2 is None else l2 * root, l2=l2, features=before.features)


def magnitudes(rows: Rows) -> Floats:
    """Return the magnitude of each bin of each row's Fourier transform, in float32."""
    return np.abs(np.fft.fft(rows.astype(np.float64), axis=1)).astype(np.float32)
