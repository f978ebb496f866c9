"""Chains: several transforms in a row, fitted and applied with bounded memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from crowdml.core.blas_threads import one_blas_thread
from crowdml.data.dataset import Dataset, Floats, Rows
from crowdml.data.transforms.transform import (
    BLOCK_NUMBERS,
    Bounds,
    Fitted,
    Transform,
    blocks_of,
    require_finite,
)

SMALL_BLOCK = 1 << 18
"""Numbers of a block where rows are written over, because memory counts."""

Allocate = Callable[[tuple[int, ...], Any], Any]
"""Makes an array by shape and type."""


def apply_all(transforms: Sequence[Transform], dataset: Dataset) -> Dataset:
    """Fit a chain on the training rows and apply it to training rows, test rows and rows held back.

    With no transforms at all the rows only become float32.
    """
    _, ready = fit_all(transforms, dataset)
    return ready


@one_blas_thread()  # the same bits on any number of cores, whose threads would wait for each other at work
def fit_all(
    transforms: Sequence[Transform],
    dataset: Dataset,
    public: Rows | None = None,
    allocate: Allocate = np.empty,
    *,
    in_place: bool = False,
) -> tuple[list[Fitted], Dataset]:
    """As `apply_all`, and also return each fitted transform, whose arrays a signed task carries.

    Args:
        transforms: The chain.
        dataset: What it is applied to.
        public: Rows to fit on instead of the training rows. They belong to nobody in the crowd.
        allocate: Makes the tables that come out, by shape and type, to be written block by block.
        in_place: Whether rows may be written over, where they keep their width: nobody needs them as they were.
    """
    fitted: list[Fitted] = []
    waiting: list[Fitted] = []
    held_back = dataset.validation_rows
    tables = [dataset.train_rows, dataset.test_rows, *([] if held_back is None else [held_back])]
    for transform in transforms:
        seen = tables[0] if public is None else public
        found = transform.restore(transform.learn(_through(waiting, seen)))
        fitted.append(dataclasses.replace(found, private_fit=transform.learns and public is None))
        waiting.append(found)
        if transform.costly:
            public = None if public is None else _settle(waiting, public)
            tables, waiting = [_settle(waiting, table, np.empty, in_place) for table in tables], []
    train, test, *rest = (_settle(waiting, table, allocate, in_place) for table in tables)
    ready = dataclasses.replace(
        dataset,
        train_rows=train,
        test_rows=test,
        validation_rows=rest[0] if rest else None,
        public_rows=None if public is None else _settle(waiting, public),
    )
    return fitted, ready


def fit_rows(transforms: Sequence[Transform], rows: Rows) -> list[Fitted]:
    """Fit a chain on rows that are declared public, for a signed task."""
    fitted: list[Fitted] = []
    for transform in transforms:
        fitted.append(transform.restore(transform.learn(_through(fitted, rows))))
    return fitted


def compose(fitted: Sequence[Fitted]) -> Callable[[Rows], Floats]:
    """Make one function of fitted transforms, as a device uses it on its own rows."""
    chain = tuple(fitted)
    return lambda rows: _settle(chain, rows)


def input_bound(transforms: Sequence[Transform], order: int, features: int | None = None) -> float | None:
    """Return a length that no row can exceed after the chain, or None if nothing is certain.

    Args:
        transforms: The chain.
        order: 1 for the sum of absolute values, 2 for Euclidean length.
        features: The number of columns before the chain, if it is known; some bounds need it.

    >>> from crowdml.data.transforms.whole_rows import Norm
    >>> input_bound([Norm(order=1, at_most=1.0)], order=2)
    1.0
    >>> input_bound([Norm(order=2, at_most=1.0)], order=1) is None
    True
    >>> input_bound([Norm(order=2, at_most=1.0)], order=1, features=64)
    8.0
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, not {order}")
    known = Bounds(features=features)
    for transform in transforms:
        known = transform.bounds(known)
    return known.l1 if order == 1 else known.l2


def _through(waiting: Sequence[Fitted], rows: Rows) -> Callable[[], Iterator[Rows]]:
    chain = tuple(waiting)

    def blocks() -> Iterator[Rows]:
        for block in blocks_of(rows):
            yield _apply(chain, block)

    return blocks


def _apply(chain: Sequence[Fitted], rows: Rows) -> Floats:
    # What overflows becomes infinite and is refused by name when the chain is through.
    with np.errstate(over="ignore", invalid="ignore"):
        for fitted in chain:
            rows = fitted.apply(rows)
        return rows.astype(np.float32, copy=False)


def _settle(chain: Sequence[Fitted], rows: Rows, allocate: Allocate = np.empty, in_place: bool = False) -> Floats:
    """Apply a chain to a whole table, block by block, into one array: the table itself where that may be."""
    if not len(rows):
        return _apply(chain, rows)
    result: Floats | None = None
    start = 0
    for block in blocks_of(rows, SMALL_BLOCK if in_place else BLOCK_NUMBERS):
        done = _apply(chain, block)
        require_finite("the transform", done)
        if result is None:
            usable = in_place and rows.dtype == np.float32 and rows.shape[1] == done.shape[1] and rows.flags.writeable
            result = rows if usable else allocate((len(rows), done.shape[1]), np.float32)
        result[start : start + len(done)] = done
        start += len(done)
    assert result is not None  # noqa: S101 - there was at least one block
    return result
