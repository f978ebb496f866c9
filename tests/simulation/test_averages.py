"""What a simulation tells about averages, and models of the devices' own."""

from collections.abc import Callable

import numpy as np
import pytest

from crowdml.algorithms import Task
from crowdml.core import NUMPY
from crowdml.simulation import simulate
from crowdml.simulation.beside import beside
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import make_timeline

FEDAVG = "algorithm={ kind = 'fedavg', per-round = 6, local-batch = 20 }"
LEARNED = [FEDAVG, "algorithm.averaging=learned", "algorithm.learned.steps=20", "data.public=200", "crowd.devices=6"]


def test_liars_lose_weight_and_the_result_says_so(digits: Callable[..., Task]) -> None:
    attack = "crowd.attack={ kind = 'label-flip', share = 0.3 }"
    task = digits(*LEARNED, attack, "crowd.passes=3")
    result = simulate(task, trials=1, seed=0)
    _, dataset = prepare(task)
    timeline = make_timeline(task, dataset, task.build(NUMPY), np.random.default_rng([0, 0]))
    told = result.to_json()["averages"][0]
    assert told["versions"] == 3 and told["used"] >= 1
    weights = {own["device"]: own["weights"][0] for own in told["last"]}
    liars = set(timeline.device[timeline.lies].tolist())
    assert len(liars) == 2 and sum(weights.values()) == pytest.approx(1.0, abs=1e-3)
    assert max(weights[own] for own in liars) < min(weight for own, weight in weights.items() if own not in liars)


def test_other_uses_of_public_rows_stand_beside_learned_weights(digits: Callable[..., Task]) -> None:
    found = beside(digits(*LEARNED, "crowd.passes=1"), trials=1, seed=0)
    assert [name.split(",")[0] for name in found] == ["public rows only", "plain average"]
    # 200 rows teach a softmax far more than guessing (0.9), and less than all rows do.
    assert all(errors.shape == (1,) and 0.02 < errors[0] < 0.3 for errors in found.values())
    assert beside(digits(FEDAVG, "crowd.devices=6"), trials=1, seed=0) == {}


def test_held_out_rows_are_nobodys_training_rows(digits: Callable[..., Task]) -> None:
    task = digits(FEDAVG, "crowd.devices=8", "crowd.rows=800", "crowd.personal={ steps = 5, held-out = 0.25 }")
    _, dataset = prepare(task)
    timeline = make_timeline(task, dataset, task.build(NUMPY), np.random.default_rng(0))
    held, owned = np.flatnonzero(timeline.held >= 0), np.flatnonzero(timeline.owner >= 0)
    assert len(held) == 200 and len(owned) == 600
    used = np.unique(np.concatenate([line[:count] for line, count in zip(timeline.rows, timeline.counts, strict=True)]))
    np.testing.assert_array_equal(used, owned)
    assert not set(held) & set(owned)
    for device, line, count in zip(timeline.device, timeline.rows, timeline.counts, strict=True):
        assert (timeline.owner[line[:count]] == device).all()


def test_models_of_ones_own_know_their_owners(digits: Callable[..., Task]) -> None:
    task = digits(
        FEDAVG,
        "crowd.devices=6",
        "crowd.passes=2",
        "crowd.partition={ kind = 'shards' }",
        "crowd.personal={ steps = 20, rate = 5.0, held-out = 0.2 }",
    )
    common, own = simulate(task, trials=1, seed=0).beside.values()
    # With few classes per device some steps of its own are worth more than ten points.
    assert own[0] < common[0] - 0.1
