"""Scattering as a graph: the same wavelets as convolutions, for a model that leaves crowdml."""

from __future__ import annotations

import numpy as np

from crowdml.core.graphs import Graph, Value
from crowdml.data.transforms.scattering import DIRECTIONS, FLOOR, PATHS, REACH, bank


def write_scattering(graph: Graph, rows: Value, size: int, colours: int, grid: int) -> Value:
    """Write the whole transform; every colour of a picture is a picture of its own until the end."""
    maps = graph.add("Reshape", rows, graph.constant((-1, size, size, colours)))
    maps = graph.add("Transpose", maps, perm=(0, 3, 1, 2))
    maps = graph.add("Reshape", maps, graph.constant((-1, 1, size, size)))
    maps = graph.add("Div", maps, graph.constant(np.float32(255)))
    narrow, wide = _sizes(graph, maps, 0), _sizes(graph, maps, 1)
    second = _sizes(graph, graph.add("Reshape", narrow, graph.constant((-1, 1, size, size))), 1)
    places = size // 2
    groups = [_group(graph, maps, size // grid), _group(graph, narrow, size // grid)]
    groups.append(_group(graph, wide, places // grid))
    # One group of features for each direction of the narrow wavelet.
    pooled = _group(graph, second, places // grid)
    groups.append(graph.add("Reshape", pooled, graph.constant((-1, DIRECTIONS**2, grid, grid))))
    joined = graph.add("Concat", *groups, axis=1)
    return graph.add("Reshape", joined, graph.constant((-1, colours * PATHS * grid * grid)))


def _sizes(graph: Graph, maps: Value, width: int) -> Value:
    reach, kernels = REACH[width], bank(width).kernels
    pads = graph.constant((0, 0, reach, reach, 0, 0, reach, reach))
    mirrored = graph.add("Pad", maps, pads, mode="reflect")
    squares = []
    for part in (kernels.real, kernels.imag):
        weights = graph.constant(np.ascontiguousarray(part[:, None], np.float32))
        answer = graph.add("Conv", mirrored, weights, strides=(1 + width, 1 + width))
        squares.append(graph.add("Mul", answer, answer))
    return graph.add("Sqrt", graph.add("Add", *squares))


def _group(graph: Graph, maps: Value, part: int) -> Value:
    """Average over parts, then mean 0 and variance 1 for each picture."""
    pooled = graph.add("AveragePool", maps, kernel_shape=(part, part), strides=(part, part))
    centred = graph.add("Sub", pooled, graph.add("ReduceMean", pooled, axes=(1, 2, 3), keepdims=1))
    variance = graph.add("ReduceMean", graph.add("Mul", centred, centred), axes=(1, 2, 3), keepdims=1)
    floor = graph.constant(np.float32(FLOOR**2))
    return graph.add("Div", centred, graph.add("Sqrt", graph.add("Add", variance, floor)))
