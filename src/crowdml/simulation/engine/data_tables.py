"""Data tables: the rows that compiled programs are handed as arguments, whole or without their rare columns.

A program knows the shapes of its tables and nothing else of them, so one program serves many datasets. Lengths are
rounded up (`roomy`) and what is added is never read: a few more rows, check-ins or past versions need no new program.

Rows that are mostly zero are split by columns where that saves enough; `sparse_inputs` says how it works on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Algorithm
from crowdml.core import NUMPY, Array, trees
from crowdml.core.ops import Tree
from crowdml.core.records import tree_record
from crowdml.data import Dataset
from crowdml.models.layers.dense import Dense
from crowdml.simulation.prepare import measured_on
from crowdml.simulation.shared_rows import Lay, lay_here, roomy
from crowdml.task import Task

LEAST = 0.1
"""Share of the first layer's work that must be saved; below, rows stay whole."""

ENTRY, PER_OUTPUT = 600, 6
"""What it costs to add one number, in multiplications of a product: so many, and so many for each output. Between half
and twice of this the time is nearly the same."""

BEGIN = 200_000
"""What going through a batch number by number costs in any case, in multiplications of a product."""


@tree_record
class DataTables:
    """Rows and targets, shared by all replicas.

    Attributes:
        rows: Training rows: `whole`, or their split as `SparseInputs` names it.
        targets: Their targets.
        measured: Rows and targets to measure on, by the name of the measurement; empty where every trial has its own.
        everything: All rows whole, where every trial measures on some of its own; otherwise `()`.
    """

    rows: dict[str, Array]
    targets: Array
    measured: dict[str, tuple[Array, Array]]
    everything: Tree = ()


def make_tables(
    task: Task,
    dataset: Dataset,
    regularisation: npt.NDArray[np.float32],
    *,
    sparse: bool = True,
    own_rows: bool = False,
    lay: Lay = lay_here,
) -> DataTables:
    """Lay out the rows of a dataset for the programs of a task.

    Args:
        task: The task.
        dataset: Rows after transforms.
        regularisation: The strength of the regulariser in every replica.
        sparse: Whether rows may be split by columns, where that saves enough. It changes speed only.
        own_rows: Whether every trial measures on some of the training rows.
        lay: Lays out each table, such as in memory that processes share.
    """
    may_split = sparse and not regularisation.any() and _can_be_split(task.built)
    rows = (_split(task, dataset.train_rows) if may_split else None) or {"whole": dataset.train_rows}
    # What has an entry for every row is rounded up; columns have the length that the model needs.
    long = {"whole", "common_rows", "ends", "columns", "values"}
    measured: dict[str, Any] = {} if own_rows else measured_on(dataset)
    return DataTables(
        rows={name: lay(table, roomy(len(table)) if name in long else len(table)) for name, table in rows.items()},
        targets=lay(dataset.train_targets, roomy(len(dataset.train_targets))),
        measured=trees.map(lambda table: lay(table, len(table)), measured),
        everything=lay(dataset.train_rows, roomy(len(dataset.train_rows))) if own_rows and "whole" not in rows else (),
    )


def _can_be_split(algorithm: Algorithm) -> bool:
    """Tell whether a step moves no weight whose gradient is zero, and needs no more of the whole change than its parts.

    An integer release looks at all of the change. A device whose steps are not multiples of a gradient, or that
    remembers more than how often it did something, may move weights without a gradient.
    """
    phase = algorithm.last
    counters_only = all(np.issubdtype(np.asarray(leaf).dtype, np.integer) for leaf in trees.leaves(phase.device.init()))
    plain = phase.sanitiser.integers(1) is None and counters_only
    return algorithm.hints.in_parts and algorithm.hints.multiples and len(algorithm.phases) == 1 and plain


def _split(task: Task, rows: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[Any]] | None:
    """Split rows by columns; None where that saves too little."""
    first = next(iter(task.model_for(NUMPY).declared), None)
    if not isinstance(first, Dense):
        return None
    filled = np.count_nonzero(rows, axis=0) / len(rows)
    rare = (filled > 0) & (filled * (ENTRY + PER_OUTPUT * first.size) < first.size)
    common = filled > 0
    common[rare] = False
    if _saved(first.size, task.algorithm.local_batch, filled, common, rare) < LEAST:
        return None
    examples, columns = np.nonzero(rows[:, rare])
    # Where each column stands once both parts are side by side; behind them is one of zeros.
    place = np.full(rows.shape[1], common.sum() + rare.sum())
    place[common] = np.arange(common.sum())
    place[rare] = common.sum() + np.arange(rare.sum())
    return {
        "common": np.flatnonzero(common).astype(np.int32),
        "rare": np.flatnonzero(rare).astype(np.int32),
        "place": place.astype(np.int32),
        "common_rows": rows[:, common],
        "ends": np.searchsorted(examples, np.arange(len(rows) + 1)).astype(np.int32),
        "columns": columns.astype(np.int32),
        "values": rows[:, rare][examples, columns],
    }


def _saved(
    outputs: int,
    batch: int,
    filled: npt.NDArray[np.float64],
    common: npt.NDArray[np.bool_],
    rare: npt.NDArray[np.bool_],
) -> float:
    """Return the share of the first layer's two products, on one batch, that splitting saves."""
    whole = 2 * batch * outputs * len(filled)
    left = 2 * batch * outputs * int(common.sum())
    added = 2 * batch * float(filled[rare].sum()) * (ENTRY + PER_OUTPUT * outputs) + BEGIN
    return 1 - (left + added) / whole
