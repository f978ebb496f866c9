"""Trees: nested dicts, tuples and tree records with arrays as leaves.

Just enough to walk parameters and states without JAX. Dict keys are walked in sorted order, as JAX does, so the
order of leaves is the same in every driver and on the wire.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

Array: TypeAlias = Any
"""An array of NumPy or JAX. `Float[Array, "size features"]` is one of floats with two axes: what has one name in a
signature, or in a record, has one length. `Integer` are whole numbers, `Num` both."""

Tree: TypeAlias = Any
"""Nested dicts, tuples and tree records with arrays as leaves. A `SameTree` has the structure and the shapes of every
other `SameTree` of its signature."""

# Annotations are read by type checkers, and by tests that run with every shape checked: these import jaxtyping first.
# Nobody else waits for its import.
if TYPE_CHECKING:
    from jaxtyping import Float as Float
    from jaxtyping import Integer as Integer
    from jaxtyping import Num as Num

    SameTree: TypeAlias = Any
    Absent: TypeAlias = Any
elif "jaxtyping" in sys.modules:
    from jaxtyping import Float, Integer, Num, PyTree, Shaped

    SameTree = PyTree[Shaped[Array, "?*shape"], "SameTree"]
    Absent = tuple[()]
else:
    Float = Integer = Num = SameTree = Absent = Any


def _children(tree: Tree) -> list[tuple[str, Tree]] | None:
    if isinstance(tree, dict):
        return [(str(key), tree[key]) for key in sorted(tree)]
    if isinstance(tree, tuple | list):
        return [(str(index), child) for index, child in enumerate(tree)]
    names = _fields(type(tree))
    return None if names is None else [(name, getattr(tree, name)) for name in names]


_names: dict[type, tuple[str, ...] | None] = {}


def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of a record's fields; None for what is no record. Remembered: it is asked for every leaf."""
    try:
        return _names[kind]
    except KeyError:
        is_record = dataclasses.is_dataclass(kind)
        found = _names[kind] = tuple(field.name for field in dataclasses.fields(kind)) if is_record else None
        return found


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
    found: list[Array] = []
    _gather(tree, found)
    return found


def _gather(tree: Tree, found: list[Array]) -> None:
    children = _children(tree)
    if children is None:
        found.append(tree)
        return
    for _, child in children:
        _gather(child, found)


def fill(tree: Tree, values: Iterator[Array]) -> Tree:
    """Make a tree of the same shape whose leaves are taken from `values`, in order.

    >>> fill({"b": 2, "a": (1, {"c": 3})}, iter("xyz"))
    {'a': ('x', {'c': 'y'}), 'b': 'z'}
    """
    return filler(tree)(values)


def filler(tree: Tree) -> Callable[[Iterator[Array]], Tree]:
    """Return `fill` for trees of this shape: looking at the shape is done once."""
    kind = type(tree)
    if kind is tuple or kind is list:
        parts = [filler(child) for child in tree]
        return lambda values: kind([part(values) for part in parts])
    names = sorted(tree) if kind is dict else _fields(kind)
    if names is None:
        return next
    children = [(name, filler(tree[name] if kind is dict else getattr(tree, name))) for name in names]
    if kind is dict:
        return lambda values: {name: child(values) for name, child in children}
    return lambda values: kind(**{name: child(values) for name, child in children})


def map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to each leaf, or to the leaves of several trees of one shape side by side.

    >>> map(lambda a, b: a + b, {"x": 1, "y": (2,)}, {"x": 10, "y": (20,)})
    {'x': 11, 'y': (22,)}
    """
    kind = type(tree)
    # Spelt out for the common shapes: on the live server this runs for every check-in.
    if kind is dict:
        if others:
            return {key: map(function, child, *[other[key] for other in others]) for key, child in tree.items()}
        return {key: map(function, child) for key, child in tree.items()}
    if kind is tuple or kind is list:
        if others:
            return kind([map(function, *children) for children in zip(tree, *others, strict=True)])
        return kind([map(function, child) for child in tree])
    names = _fields(kind)
    if names is None:
        return function(tree, *others)
    return kind(**{name: map(function, *[getattr(each, name) for each in (tree, *others)]) for name in names})


def map_paths(function: Callable[..., Any], tree: Tree, *others: Tree, prefix: str = "") -> Tree:
    """As `map`, with the leaf's path as the first argument, behind a prefix where one is given."""
    children = _children(tree)
    if children is None:
        return function(prefix, tree, *others)
    aside = [dict(_children(other) or ()) for other in others]
    made = {}
    for name, child in children:
        path = f"{prefix}/{name}" if prefix else name
        made[name] = map_paths(function, child, *(other[name] for other in aside), prefix=path)
    if isinstance(tree, dict):
        return {key: made[str(key)] for key in tree}
    if isinstance(tree, tuple | list):
        return type(tree)(made.values())
    return dataclasses.replace(tree, **made)


def cut(vector: Array, like: Tree) -> Tree:
    """Cut a vector into the shapes of a tree, in the order of its leaves.

    >>> import numpy as np
    >>> cut(np.arange(3), {"b": np.ones(1), "a": np.zeros((1, 2))})
    {'a': array([[0, 1]]), 'b': array([2])}
    """
    parts, end = [], 0
    for leaf in leaves(like):
        begin, end = end, end + math.prod(leaf.shape)
        parts.append(vector[begin:end].reshape(leaf.shape))
    return fill(like, iter(parts))


def size(tree: Tree) -> int:
    """Count the numbers in a tree of arrays.

    >>> import numpy as np
    >>> size({"w": np.zeros((3, 2)), "b": np.zeros(3)})
    9
    """
    return sum(int(leaf.size) for leaf in leaves(tree))
