"""Frozen records: configuration, and the values that cross a layer."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, dataclass_transform

from crowdml.core.ops import Array

Class = TypeVar("Class", bound=type)

TREE_RECORDS: list[type] = []
"""Records that hold arrays. The simulation driver registers them as trees; nobody else needs to know."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: Class) -> Class:
    """Make a class a frozen, keyword-only dataclass."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)  # type: ignore[return-value]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def tree_record(cls: Class) -> Class:
    """Make a class a `record` whose fields are arrays or trees of arrays."""
    made = record(cls)
    TREE_RECORDS.append(made)
    return made


@tree_record
class Batch:
    """Rows a device works on in one step. Masked rows count for nothing, so the shape can stay fixed.

    Attributes:
        rows: Features, shape (size, features).
        labels: Class numbers, shape (size,).
        mask: 1.0 for a real row, 0.0 for padding, shape (size,).
    """

    rows: Array
    labels: Array
    mask: Array
