"""Simulated trials as a test looks at them: their course, and whether two of them ended alike."""

from __future__ import annotations

import numpy as np

from crowdml.core import NUMPY, trees
from crowdml.simulation import Result
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import Timeline, make_timeline
from crowdml.task import Task


def course(task: Task) -> Timeline:
    """Work out the first trial of a task."""
    _, dataset = prepare(task)
    return make_timeline(task, dataset, task.build(NUMPY), np.random.default_rng([0, 0]))


def same_bits(left: Result, right: Result) -> bool:
    """Tell whether two results have the same parameters and measurements, to the last bit."""
    pairs = zip(trees.leaves(left.parameters), trees.leaves(right.parameters), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs) and all(
        np.array_equal(left.measured[name], right.measured[name]) for name in left.measured
    )
