"""Chunks: where a run is cut."""

from __future__ import annotations

from collections.abc import Callable

from crowdml.simulation.engine.chunks import cut_chunks, fixed_count
from crowdml.task import Task
from tests.support.simulated import course

Make = Callable[..., Task]


def test_chunks_end_at_commits_and_the_unfinished_window_is_left_out(digits: Make) -> None:
    task = digits("algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 5, server-batch = 7 }")
    found = course(task)
    assert len(found) % 7 == 0 and fixed_count(found) == 7
    chunks = cut_chunks([found, found], 5)
    assert chunks.per_commit == 7 and not (chunks.ends % 7).any() and chunks.ends[-1, 0] == len(found)
    assert chunks.events(0)[0].commits == ()
