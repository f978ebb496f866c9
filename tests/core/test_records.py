"""Records are frozen, keyword-only, and those with arrays are known to the simulation."""

from __future__ import annotations

import dataclasses

import pytest

from crowdml.core import Batch, record, tree_record
from crowdml.core.records import on_tree_record


@record
class Point:
    """An example."""

    x: int
    y: int = 2


def test_a_record_is_frozen_keyword_only_and_compared_by_value() -> None:
    assert Point(x=1) == Point(x=1, y=2) != Point(x=1, y=3)
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(x=1).x = 3  # type: ignore[misc]


def test_only_tree_records_are_offered_to_the_simulation() -> None:
    offered: list[type] = []
    on_tree_record(offered.append)
    assert Batch in offered
    assert Point not in offered


def test_a_record_defined_after_jax_was_imported_is_a_tree_too() -> None:
    from crowdml.simulation.engine import jax_ops  # noqa: F401, I001  its import registers what there is

    import jax

    @tree_record
    class Late:
        """A plug-in's state."""

        parameters: float
        more: tuple[float, ...] = ()

    doubled = jax.tree.map(lambda leaf: 2 * leaf, Late(parameters=1.0, more=(2.0,)))
    assert doubled == Late(parameters=2.0, more=(4.0,))
    assert jax.tree.leaves(jax.jit(lambda state: state)(Late(parameters=3.0))) == [3.0]
