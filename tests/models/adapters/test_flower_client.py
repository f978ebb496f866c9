"""A `NumPyClient` of the released Flower takes part in a crowd (`make test-flower`)."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml.device import Device
from crowdml.task import parse
from crowdml.task.user_models import start_changes
from tests.device.conftest import TASK, FakeServer

client = pytest.importorskip("flwr.client", reason="Flower is installed by make test-flower")

TERMS = (
    "model={ kind = 'own', name = 'flower' }",
    "algorithm={ kind = 'fedavg', per-round = 1, rate = { kind = 'constant', c = 1.0 } }",
    "privacy={ mode = 'sound', unit = 'device', epsilon = 20.0, clip = 1.0 }",
    "stop.max-releases=2",
)


def regression() -> Any:
    """An app as Flower's quick start writes them: data of its own, weights as a list of arrays."""

    class Regression(client.NumPyClient):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            generator = np.random.default_rng(3)
            self.x = generator.normal(size=(40, 3)).astype(np.float32)
            self.y = self.x @ np.array([0.2, -0.1, 0.3], np.float32)

        def get_parameters(self, config: dict[str, Any]) -> list[Any]:
            return [np.zeros(3, np.float32)]

        def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
            w = np.array(parameters[0])
            for _ in range(20):
                w -= 0.1 * self.x.T @ (self.x @ w - self.y) / len(self.y)
            return [w], len(self.y), {"loss": float(np.mean((self.x @ w - self.y) ** 2))}

        def evaluate(self, parameters: list[Any], config: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
            return float(np.mean((self.x @ parameters[0] - self.y) ** 2)), len(self.y), {}

    return Regression()


def test_a_client_of_flower_learns_as_a_device(tmp_path: Path) -> None:
    print(f"flwr {version('flwr')}")
    app = regression()
    loop = crowdml.TrainingLoop.of_flower(app)
    crowdml.save_start(parse(TASK), loop, tmp_path / "flower.safetensors")
    server = FakeServer(*TERMS, *start_changes(tmp_path / "flower.safetensors"), "privacy.epsilon=900.0")
    Device.join(server.invite(), tmp_path / "home", connect=server.connect, accept=lambda offer: True)
    before = app.evaluate([np.zeros(3, np.float32)], {})[0]
    with crowdml.Device(tmp_path / "home", connect=server.connect, model=loop) as device:
        summary = device.run(loop.placeholder(device.live.task))
    assert summary.used == 2
    assert app.evaluate([server.server.parameters[0]["array-000"]], {})[0] < 0.1 * before
