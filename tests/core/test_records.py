"""Records are frozen, keyword-only, and those with arrays are known to the simulation."""

from __future__ import annotations

import dataclasses

import pytest

from crowdml.core import Batch, record
from crowdml.core.records import TREE_RECORDS


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
    assert Batch in TREE_RECORDS
    assert Point not in TREE_RECORDS
