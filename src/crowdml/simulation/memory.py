"""Memory: an estimate before a run, and an error before the machine is exhausted."""

from __future__ import annotations

import os

from crowdml.algorithms import Algorithm
from crowdml.core import NUMPY, BadInput, trees
from crowdml.data import Dataset
from crowdml.simulation.chunks import Chunks
from crowdml.simulation.coins import HashCoins, trial_seed
from crowdml.simulation.prepare import measured_on

SHARE = 0.8
"""How much of the machine's memory a simulation may plan to use."""


def estimate(algorithm: Algorithm, dataset: Dataset, chunks: Chunks, devices: int) -> int:
    """Return the bytes a run needs at its peak, roughly: data, the events of a chunk, past versions, tables."""
    lanes, batch = len(chunks.timelines), chunks.width
    server = algorithm.init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    broadcast = trees.size(trees.map(NUMPY.xp.asarray, algorithm.check_out(server)))
    entries = trees.map(NUMPY.xp.asarray, (algorithm.row_init(), algorithm.device_init()))
    rows = dataset.train_rows.nbytes + sum(table.nbytes for table, _ in measured_on(dataset).values())
    numbers = chunks.length * lanes * (batch + 5) + lanes * (chunks.ring * broadcast + devices * trees.size(entries))
    distinct = {id(timeline): timeline for timeline in chunks.timelines}.values()
    timelines = sum(timeline.rows.nbytes + 40 * len(timeline) for timeline in distinct)
    return int(2 * rows + 2 * 4 * numbers + timelines)


def require(needed: int) -> None:
    """Refuse a run that needs more than the machine has."""
    available = available_bytes()
    if needed > SHARE * available:
        raise BadInput(
            f"this simulation needs about {needed / 2**30:.1f} GiB, of which {available / 2**30:.1f} GiB are available",
            hint="fewer trials, smaller delays (past versions are kept) or fewer devices need less",
        )


def available_bytes() -> int:
    """Return the memory that can still be used."""
    try:
        with open("/proc/meminfo") as table:
            lines = dict(line.split(":") for line in table)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
