"""The timeline of a trial: whose rows, which limits, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import make_timeline
from crowdml.task import Task
from tests.support.simulated import course

Make = Callable[..., Task]


def test_a_batch_belongs_to_one_device(digits: Make) -> None:
    task = digits("crowd.partition={ kind = 'shards' }")
    _, dataset = prepare(task)
    generator = np.random.default_rng(7)
    timeline = make_timeline(task, dataset, task.build(NUMPY), generator)
    owner = task.crowd.partition.assign(dataset.train_targets, None, 20, np.random.default_rng(7))
    assert (owner[timeline.rows] == timeline.device[:, None]).all()


def test_limits(digits: Make) -> None:
    timeline = course(digits("stop.max-releases=3", "stop.max-versions=50"))
    assert timeline.releases == 3 and len(timeline) == 50
    assert np.bincount(timeline.device).max() <= 3


def test_drop_outs_are_lost_but_spent(digits: Make) -> None:
    timeline = course(digits("crowd.drop-out=0.5"))
    assert timeline.releases == 14
    # 280 contacts, half kept: outside 80…200 has probability below 1e-12.
    assert 80 < len(timeline) < 200


def test_too_few_check_ins_for_a_commit(digits: Make) -> None:
    task = digits("algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 5, server-batch = 100000 }")
    with pytest.raises(BadInput, match="too few for a single commit"):
        course(task)
