"""Trees: the order of leaves is JAX's, and mapping keeps the shape of the tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core import NUMPY, tree_record, trees
from crowdml.core.ops import squared_norm
from crowdml.simulation.engine.jax_ops import JAX

# isort: split
import jax


@tree_record
class Pair:
    """Fields are deliberately out of alphabetical order."""

    second: Any
    first: Any


NESTED = st.recursive(
    st.integers(-99, 99),
    lambda inner: st.one_of(
        st.dictionaries(st.text("abz-", min_size=1, max_size=3), inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(lambda one, two: Pair(second=one, first=two), inner, inner),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=80)
@given(NESTED)
def test_leaves_come_in_the_order_of_jax(tree: Any) -> None:
    assert trees.leaves(tree) == jax.tree.leaves(tree)


@settings(deadline=None, max_examples=80)
@given(NESTED)
def test_map_does_what_jax_does(tree: Any) -> None:
    assert trees.map(lambda leaf: leaf * 2 + 1, tree) == jax.tree.map(lambda leaf: leaf * 2 + 1, tree)
    assert trees.map(lambda a, b: a - 3 * b, tree, tree) == jax.tree.map(lambda a, b: a - 3 * b, tree, tree)


@settings(deadline=None, max_examples=80)
@given(NESTED)
def test_map_paths_gives_each_leaf_its_own_path(tree: Any) -> None:
    seen = trees.map_paths(lambda path, leaf: (path, leaf), tree)
    # The results are tuples themselves, so compare what was paired with what `paths` lists.
    pairs: list[tuple[str, Any]] = []
    trees.map_paths(lambda path, leaf: pairs.append((path, leaf)), tree)
    assert pairs == list(trees.paths(tree))
    assert len({path for path, _ in pairs}) == len(pairs)
    assert (seen == ("", tree)) if not isinstance(tree, dict | tuple | Pair) else True


def test_a_dict_is_walked_in_sorted_order_whatever_the_order_of_insertion() -> None:
    assert [path for path, _ in trees.paths({"b": 1, "a": {"d": 2, "c": 3}})] == ["a/c", "a/d", "b"]


def test_a_record_is_walked_in_the_order_of_its_fields() -> None:
    assert list(trees.paths(({"w": Pair(second=1, first=2)},))) == [("0/w/second", 1), ("0/w/first", 2)]


def test_others_are_matched_by_name_not_by_position() -> None:
    assert trees.map(lambda a, b: (a, b), {"x": 1, "y": 2}, {"y": 20, "x": 10}) == {"x": (1, 10), "y": (2, 20)}


def test_map_keeps_the_kind_of_container() -> None:
    made = trees.map(lambda leaf: leaf + 1, {"b": [1], "a": (2, Pair(second=3, first=4))})
    assert made == {"b": [2], "a": (3, Pair(second=4, first=5))}
    assert isinstance(made["b"], list) and isinstance(made["a"], tuple)
    assert list(made) == ["b", "a"]


def test_map_refuses_a_tree_that_lacks_a_leaf() -> None:
    with pytest.raises(KeyError):
        trees.map(lambda a, b: a + b, {"x": 1, "y": 2}, {"x": 1})


@pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
def test_squared_norm_is_over_all_leaves(ops: Any) -> None:
    tree = {"w": ops.xp.asarray([[3.0, 0.0]], dtype="float32"), "b": (ops.xp.asarray([4.0, 12.0], dtype="float32"),)}
    found = squared_norm(tree, ops)
    assert float(found) == 169.0
    assert found.dtype == np.float32


def test_size_counts_numbers_of_scalars_and_empty_arrays_too() -> None:
    assert trees.size({"a": np.float32(1), "b": (np.zeros((2, 3)), np.zeros((0, 5)))}) == 7
    assert trees.size(()) == 0
