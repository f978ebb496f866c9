"""The machine: replicas cut into one block per core, and a run refused that its memory cannot hold."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from crowdml.algorithms import Algorithm
from crowdml.core import NUMPY, BadInput, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.simulation.engine.chunks import Chunks
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import measured_on

Blocks = tuple[Any, ...]
"""One tree per core; leaves have the core's replicas as their first axis."""

MANY = 64 << 20
"""Bytes of rows from which on memory that was freed is worth giving back."""

SHARE = 0.8
"""How much of the machine's memory a simulation may plan to use."""


def cut(tree: Tree, count: int) -> Blocks:
    """Cut a tree whose leaves have replicas as their first axis into blocks."""

    def block(number: int) -> Tree:
        return trees.map(lambda leaf: leaf[number * (len(leaf) // count) :][: len(leaf) // count], tree)

    return tuple(block(number) for number in range(count))


def join(blocks: Blocks) -> Tree:
    """Put blocks together again, as NumPy arrays."""
    return trees.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *blocks)


def estimate_memory(algorithm: Algorithm, dataset: Dataset, chunks: Chunks, devices: int) -> int:
    """Return the bytes a run needs at its peak, roughly: data, the events of a chunk, past versions, tables."""
    replicas, batch = len(chunks.timelines), chunks.width
    phase = algorithm.last
    server = phase.server.init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    broadcast = trees.size(trees.map(NUMPY.xp.asarray, phase.server.check_out(server)))
    entries = trees.map(NUMPY.xp.asarray, (phase.server.row(), phase.begin()))
    rows = dataset.train_rows.nbytes + sum(table.nbytes for table, _ in measured_on(dataset).values())
    carried = chunks.ring * broadcast + devices * trees.size(entries)
    numbers = replicas * (chunks.length * (batch + 5) + carried)
    distinct = {id(timeline): timeline for timeline in chunks.timelines}.values()
    timelines = sum(timeline.rows.nbytes + 40 * len(timeline) for timeline in distinct)
    return int(2 * rows + 2 * 4 * numbers + timelines)


def require_memory(needed: int) -> None:
    """Refuse a run that needs more than the machine has."""
    available = available_bytes()
    if needed > SHARE * available:
        raise BadInput(
            f"this simulation needs about {needed / 2**30:.1f} GiB, of which {available / 2**30:.1f} GiB are available",
            hint="fewer trials, smaller delays (past versions are kept) or fewer devices need less",
        )


def give_back(dataset: Dataset) -> None:
    """Give memory that is no longer used back to the system, where rows are many.

    glibc keeps what arrays of a few megabytes leave behind, such as the orders of passes, for others of this process:
    but it is the workers that need memory next.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if dataset.train_rows.nbytes >= MANY and trim is not None:
        trim(0)


def available_bytes() -> int:
    """Return the memory that can still be used."""
    try:
        with open("/proc/meminfo") as table:
            lines = dict(line.split(":") for line in table)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
