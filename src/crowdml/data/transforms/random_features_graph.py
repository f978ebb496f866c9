"""Random features as a graph: the same filters as convolutions, for a model that leaves crowdml."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdml.core.graphs import Graph, Value
from crowdml.data.transforms.random_features import CONTRAST_FLOOR, STRIDE, THRESHOLD, bank


def write_answers(graph: Graph, pictures: Value, size: int, colours: int, filters: int, patch: int) -> Value:
    """Write what filters of one patch size find; pictures have shape (any, colours, size, size)."""
    weights = bank(patch, colours, filters).T.reshape(filters, patch, patch, colours).transpose(0, 3, 1, 2)
    even = np.full((1, colours, patch, patch), 1 / (colours * patch * patch), np.float32)
    mean = _convolve(graph, pictures, even)
    square = _convolve(graph, graph.add("Mul", pictures, pictures), even)
    variance = graph.add("Relu", graph.add("Sub", square, graph.add("Mul", mean, mean)))
    contrast = graph.add("Sqrt", graph.add("Add", variance, graph.constant(np.float32(CONTRAST_FLOOR))))
    answers = graph.add("Div", _convolve(graph, pictures, weights), contrast)
    threshold = graph.constant(np.float32(THRESHOLD))
    above = graph.add("Relu", graph.add("Sub", answers, threshold))
    below = graph.add("Relu", graph.add("Sub", graph.add("Neg", answers), threshold))
    places = (size - patch) // STRIDE + 1
    folded = (_fold(graph, own, places, filters) for own in (above, below))
    return graph.add("Sqrt", graph.add("Concat", *folded, axis=1))


def _convolve(graph: Graph, pictures: Value, weights: Any) -> Value:
    return graph.add("Conv", pictures, graph.constant(np.ascontiguousarray(weights)), strides=(STRIDE, STRIDE))


def _fold(graph: Graph, answers: Value, places: int, filters: int) -> Value:
    """Average over quarters, and add each filter's answer to its mirror's on the other side."""
    half = (places + 1) // 2
    halves = ((0, half), (places - half, places))
    parts = []
    for rows in halves:
        for columns, mirrored in (halves, halves[::-1]):
            own = _quarter(graph, answers, (0, filters // 2), rows, columns)
            mirror = _quarter(graph, answers, (filters // 2, filters), rows, mirrored)
            parts.append(graph.add("Add", own, mirror))
    return graph.add("Concat", *parts, axis=1)


def _quarter(graph: Graph, answers: Value, *ranges: tuple[int, int]) -> Value:
    """Average some filters' answers over a quarter, shape (any, filters)."""
    starts, ends = (graph.constant(own) for own in zip(*ranges, strict=True))
    part = graph.add("Slice", answers, starts, ends, graph.constant((1, 2, 3)))
    return graph.add("ReduceMean", part, axes=(2, 3), keepdims=0)
