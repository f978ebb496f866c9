"""Trees: nested dicts, tuples and tree records with arrays as leaves.

Just enough to walk parameters and states without JAX. Dict keys are walked in sorted order, as JAX does, so the
order of leaves is the same in every driver and on the wire.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from crowdml.core.ops import Array, Ops, Tree


def _children(tree: Tree) -> list[tuple[str, Tree]] | None:
    if isinstance(tree, dict):
        return [(str(key), tree[key]) for key in sorted(tree)]
    if isinstance(tree, tuple | list):
        return [(str(index), child) for index, child in enumerate(tree)]
    if dataclasses.is_dataclass(tree):
        return [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return None


def paths(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Array]]:
    """Yield every leaf with its path, such as `("0/w", array)`."""
    children = _children(tree)
    if children is None:
        yield prefix, tree
        return
    for name, child in children:
        yield from paths(child, f"{prefix}/{name}" if prefix else name)


def leaves(tree: Tree) -> list[Array]:
    """List the leaves in order.

    >>> leaves({"b": 2, "a": (1, {"c": 3})})
    [1, 3, 2]
    """
    return [leaf for _, leaf in paths(tree)]


def map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to each leaf, or to the leaves of several trees of one shape side by side.

    >>> map(lambda a, b: a + b, {"x": 1, "y": (2,)}, {"x": 10, "y": (20,)})
    {'x': 11, 'y': (22,)}
    """
    return _map_paths(lambda _path, *values: function(*values), "", tree, *others)


def map_paths(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """As `map`, with the leaf's path as the first argument."""
    return _map_paths(function, "", tree, *others)


def _map_paths(function: Callable[..., Any], prefix: str, tree: Tree, *others: Tree) -> Tree:
    children = _children(tree)
    if children is None:
        return function(prefix, tree, *others)
    aside = [dict(_children(other) or ()) for other in others]
    made = {
        name: _map_paths(function, f"{prefix}/{name}" if prefix else name, child, *(other[name] for other in aside))
        for name, child in children
    }
    if isinstance(tree, dict):
        return {key: made[str(key)] for key in tree}
    if isinstance(tree, tuple | list):
        return type(tree)(made.values())
    return dataclasses.replace(tree, **made)


def squared_norm(tree: Tree, ops: Ops) -> Array:
    """Sum of squares over all leaves."""
    total: Array = 0.0
    for leaf in leaves(tree):
        total = total + ops.sum_of_squares(leaf)
    return total


def size(tree: Tree) -> int:
    """Count the numbers in a tree of arrays.

    >>> import numpy as np
    >>> size({"w": np.zeros((3, 2)), "b": np.zeros(3)})
    9
    """
    return sum(int(leaf.size) for leaf in leaves(tree))
