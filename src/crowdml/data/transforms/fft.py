"""FFT: the strength of each frequency in a short recording."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdml.core.graphs import Graph, Value
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.base import Bounds, Fitted, Transform


class Fft(Transform):
    """Read each row as a recording and replace it by the magnitudes of its discrete Fourier transform.

    As many bins as samples: for real recordings the upper half mirrors the lower one.

    >>> Fft().fit(np.ones((1, 4))).apply(np.ones((1, 4)))
    array([[4., 0., 0., 0.]], dtype=float32)
    """

    kind: Literal["fft"] = "fft"

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Return the fixed function."""
        return Fitted(apply=magnitudes, arrays={})

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
        candidates = [] if before.l2 is None else [before.l2 * root]
        candidates += [] if before.l1 is None else [before.l1 * root]
        l2 = min(candidates) if candidates else None
        return Bounds(l1=None if l2 is None else l2 * root, l2=l2, features=before.features)


def magnitudes(rows: Rows) -> Floats:
    """Return the magnitude of each bin of each row's Fourier transform, in float32."""
    return np.abs(np.fft.fft(rows.astype(np.float64), axis=1)).astype(np.float32)
