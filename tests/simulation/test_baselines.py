"""What stands beside a result: averages, other uses of the same public rows, and models of the devices' own."""

from collections.abc import Callable

import pytest

from crowdml.simulation import simulate
from crowdml.simulation.baselines import public_baselines
from crowdml.task import Task
from tests.support.simulated import course

FEDAVG = "algorithm={ kind = 'fedavg', per-round = 6, local-batch = 20 }"
LEARNED = [FEDAVG, "algorithm.averaging=learned", "algorithm.learned.steps=20", "data.public=200", "crowd.devices=6"]


def test_liars_lose_weight_and_the_result_says_so(digits: Callable[..., Task]) -> None:
    attack = "crowd.attack={ kind = 'label-flip', share = 0.3 }"
    task = digits(*LEARNED, attack, "crowd.passes=3")
    result = simulate(task, trials=1, seed=0)
    timeline = course(task)
    average = result.to_json()["averages"][0]
    assert average["versions"] == 3 and average["used"] >= 1
    weights = {entry["device"]: entry["weights"][0] for entry in average["last"]}
    liars = set(timeline.device[timeline.lies].tolist())
    assert len(liars) == 2 and sum(weights.values()) == pytest.approx(1.0, abs=1e-3)
    assert max(weights[device] for device in liars) < min(
        weight for device, weight in weights.items() if device not in liars
    )


def test_other_uses_of_public_rows_stand_beside_learned_weights(digits: Callable[..., Task]) -> None:
    found = public_baselines(digits(*LEARNED, "crowd.passes=1"), trials=1, seed=0, simulate=simulate)
    assert [name.split(",")[0] for name in found] == ["public rows only", "plain average"]
    # 200 rows teach a softmax far more than guessing (0.9), and less than all rows do.
    assert all(errors.shape == (1,) and 0.02 < errors[0] < 0.3 for errors in found.values())
    assert public_baselines(digits(FEDAVG, "crowd.devices=6"), trials=1, seed=0, simulate=simulate) == {}


def test_models_of_ones_own_know_their_owners(digits: Callable[..., Task]) -> None:
    task = digits(
        FEDAVG,
        "crowd.devices=6",
        "crowd.passes=2",
        "crowd.partition={ kind = 'shards' }",
        "crowd.personal={ steps = 20, rate = 5.0, held-out = 0.2 }",
    )
    common, personal = simulate(task, trials=1, seed=0).baselines.values()
    # With few classes per device some steps of its own are worth more than ten points.
    assert personal[0] < common[0] - 0.1
