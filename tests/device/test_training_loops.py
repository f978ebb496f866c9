"""Training loops of others: a Flower client and a PyTorch loop as what a device does between check-out and check-in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml.core import BadInput
from crowdml.task import parse
from crowdml.task.user_models import start_changes
from tests.device.conftest import TASK, FakeServer

TERMS = (
    "model={ kind = 'own', name = 'loop' }",
    "algorithm={ kind = 'fedavg', per-round = 1, rate = { kind = 'constant', c = 1.0 } }",
    "privacy={ mode = 'sound', unit = 'device', epsilon = 20.0, clip = 1.0 }",
    "stop.max-releases=3",
)


class Client:
    """The shape of a Flower NumPyClient: it knows nothing of crowdml, and keeps its data to itself."""

    def __init__(self, goal: float = 0.5) -> None:
        self.goal, self.configs, self.calls = goal, list[Any](), 0

    def get_parameters(self, config: dict[str, Any]) -> list[Any]:
        return [np.zeros((2, 3), np.float32), np.zeros(2, np.float32)]

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        self.calls += 1
        self.configs.append(config)
        return [array + np.float32(0.5) * (self.goal - array) for array in parameters], 12, {"loss": 0.1}


def served(loop: crowdml.TrainingLoop, tmp_path: Path, *changes: str) -> FakeServer:
    crowdml.save_start(parse(TASK), loop, tmp_path / "loop.safetensors")
    return FakeServer(*TERMS, *start_changes(tmp_path / "loop.safetensors"), *changes)


def test_a_flower_client_takes_part_and_pays(tmp_path: Path, join: Any) -> None:
    client = Client()
    loop = crowdml.TrainingLoop.of_flower(client, {"epochs": 2})
    server = served(loop, tmp_path)
    with crowdml.Device(join(server), connect=server.connect, model=loop) as device:
        summary = device.run(loop.placeholder(device.live.task))
    assert (summary.releases, summary.used, client.calls) == (3, 3, 3) and client.configs == [{"epochs": 2}] * 3
    assert 0 < summary.spent.epsilon <= 20.0
    learnt = server.server.parameters[0]
    assert set(learnt) == {"array-000", "array-001"} and np.abs(learnt["array-000"]).max() > 0


def test_what_is_sent_is_what_the_loop_has_changed(tmp_path: Path, join: Any) -> None:
    """Without a promise nothing is clipped: one round of a single device is one call of fit."""
    loop = crowdml.TrainingLoop.of_flower(Client(goal=40.0))
    server = served(loop, tmp_path, "privacy={ mode = 'none' }", "stop.max-releases=2")
    with crowdml.Device(join(server), connect=server.connect, model=loop) as device:
        device.run(loop.placeholder(device.live.task))
    np.testing.assert_allclose(server.server.parameters[0]["array-000"], np.full((2, 3), 30.0), rtol=1e-5)


def test_a_change_is_clipped_as_a_whole(tmp_path: Path, join: Any) -> None:
    loop = crowdml.TrainingLoop.of_flower(Client(goal=1e6))
    server = served(loop, tmp_path, "privacy.epsilon=900.0", "stop.max-releases=1")
    with crowdml.Device(join(server), connect=server.connect, model=loop) as device:
        device.run(loop.placeholder(device.live.task))
    learnt = np.concatenate([array.ravel() for array in server.server.parameters[0].values()])
    assert np.abs(learnt).sum() == pytest.approx(1.0, abs=0.1)


def test_a_loop_of_functions_sees_the_rows_of_the_device(tmp_path: Path, join: Any) -> None:
    seen = []

    def train(weights: Any, rows: Any, targets: Any) -> Any:
        seen.append((rows.shape, targets.dtype.kind, sorted(targets.tolist())))
        return {name: array + 1 for name, array in weights.items()}

    loop = crowdml.TrainingLoop(weights={"w": np.zeros(3, np.float32)}, train=train)
    server = served(loop, tmp_path, "algorithm.local-batch=100")
    rows = np.ones((5, 3), np.float32), ["standing", "walking", "walking", "standing", "walking"]
    with crowdml.Device(join(server), connect=server.connect, model=loop) as device:
        device.run(rows, releases=1)
    assert seen == [((5, 3), "i", [0, 0, 1, 1, 1])]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("privacy={ mode = 'sound', epsilon = 6.0, max-uses = 3, clip = 1.0 }", "nothing can be promised to single"),
        ("algorithm.rate={ kind = 'constant', c = 0.5 }", "takes its steps itself"),
        ("model.regularisation=0.1", "takes its steps itself"),
    ],
)
def test_terms_that_a_loop_cannot_keep_are_refused(tmp_path: Path, join: Any, change: str, said: str) -> None:
    loop = crowdml.TrainingLoop.of_flower(Client())
    server = served(loop, tmp_path, change)
    place = join(server)
    asked = len(server.requests)
    with pytest.raises(BadInput, match=said):
        crowdml.Device(place, connect=server.connect, model=loop)
    assert len(server.requests) == asked


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([np.zeros((2, 3), np.float32)], "returns 1 arrays"),
        ([np.zeros((2, 3), np.float32), np.full(2, np.nan, np.float32)], "not finite"),
        ([np.zeros((2, 4), np.float32), np.zeros(2, np.float32)], r"shape \[2, 4\]"),
        ([np.zeros((2, 3), np.int32), np.zeros(2, np.float32)], "is int32"),
    ],
)
def test_what_does_not_fit_is_not_sent(tmp_path: Path, join: Any, found: list[Any], said: str) -> None:
    client = Client()
    client.fit = lambda parameters, config: (found, 1, {})  # type: ignore[method-assign]
    loop = crowdml.TrainingLoop.of_flower(client)
    server = served(loop, tmp_path)
    with crowdml.Device(join(server), connect=server.connect, model=loop) as device:
        with pytest.raises(BadInput, match=said):
            device.run(loop.placeholder(device.live.task))
        assert device.releases == 0 and server.sent == []


def test_single_rows_are_never_bounded(tmp_path: Path) -> None:
    from crowdml.core import NUMPY, Batch

    loop = crowdml.TrainingLoop.of_flower(Client())
    task = parse(TASK)
    model = loop.build(3, task.target, NUMPY)
    batch = Batch(rows=np.ones((2, 3), np.float32), targets=np.zeros(2, np.int32), mask=np.ones(2, np.float32))
    with pytest.raises(BadInput, match="nothing is known of single rows"):
        model.gradients(model.zeros(), batch).rows()


def test_neither_library_is_imported() -> None:
    program = (
        "import sys, crowdml\n"
        "crowdml.TrainingLoop\n"
        "assert not {'flwr', 'torch', 'jax'} & set(sys.modules), sorted(sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr
