"""Random courses of sums, with losses at random stages and servers that are started anew in the middle.

    python -m tests.secure_aggregation.courses [COUNT] [SEED]

Every course must give the exact sum of its survivors, or none at all; after an attempt that a server forgot, a new one
with fresh keys must do so. Tests go through a few courses, this command through as many as you like.
"""

from __future__ import annotations

import sys

import numpy as np

from crowdml.core import BadInput
from crowdml.secure_aggregation import SumAborted, SumTerms, bits_for
from crowdml.secure_aggregation.stages import MASKED, STEPS
from tests.support.rehearsal import NEVER, Members, Rehearsal

MEMBERS = Members("courses")


def course(generator: np.random.Generator, most: int) -> str:
    """Go through one course; return how it ended."""
    members = int(generator.integers(3, most + 1))
    least = int(generator.integers(max(3, 6 * members // 10), members + 1))
    corrupt, size = int(generator.integers(0, max(1, least // 6))), int(generator.integers(1, 40))
    try:
        terms = SumTerms(
            task="courses",
            size=size,
            bits=bits_for(members, 1000),
            largest=1000,
            invited=members,
            least=least,
            corrupt=corrupt,
        )
    except BadInput:
        return "refused"
    slots = sorted(generator.choice(10 * most, members, replace=False).tolist())
    for slot in slots:
        MEMBERS.acquaint(slot)
    count = min(members, int(generator.integers(0, members - least + 3)))
    lost = {int(slot): int(generator.integers(0, NEVER)) for slot in generator.choice(slots, count, replace=False)}
    vectors = {slot: generator.integers(-1000, 1001, size) for slot in slots}
    restart = int(generator.integers(0, 3 * NEVER))
    attempts = 1 + (restart < NEVER)
    for attempt in range(1, attempts + 1):
        crowd = Rehearsal(terms, MEMBERS, slots, lost, attempt=attempt)
        try:
            if attempt < attempts:
                _go_until(crowd, restart, vectors)
                continue
            found = crowd.run(vectors)
        except SumAborted:
            return "given up"
        assert len(found.survivors) >= least
        assert set(found.survivors) <= {slot for slot in slots if lost.get(slot, NEVER) > STEPS.index(MASKED)}
        assert found.total.tolist() == np.sum([vectors[slot] for slot in found.survivors], axis=0).tolist()
    return "exact after a restart" if attempts > 1 else "exact"


def _go_until(
    crowd: Rehearsal, stage: int, vectors: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]
) -> None:
    """Take a sum as far as a stage; then the server forgets it."""
    steps = [crowd.greet, crowd.settle, crowd.exchange, lambda: crowd.upload(vectors), crowd.agree]
    for step in steps[:stage]:
        step()


def run(count: int, seed: int, most: int = 24) -> dict[str, int]:
    """Go through many courses; return how often each end came."""
    generator, ends = np.random.default_rng(seed), dict[str, int]()
    while sum(ends.values()) < count:
        end = course(generator, most)
        if end != "refused":  # terms that nobody would get to see
            ends[end] = ends.get(end, 0) + 1
    return ends


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    print(run(given[0] if given else 1200, given[1] if len(given) > 1 else 1))
