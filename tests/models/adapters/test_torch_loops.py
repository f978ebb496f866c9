"""A PyTorch training loop takes part in a crowd (`make test-torch`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml.device import Device
from crowdml.task import parse
from crowdml.task.user_models import start_changes
from tests.device.conftest import TASK, FakeServer

torch = pytest.importorskip("torch", reason="PyTorch is installed by make test-torch")

TERMS = (
    "model={ kind = 'own', name = 'loop' }",
    "algorithm={ kind = 'fedavg', per-round = 1, local-batch = 100, rate = { kind = 'constant', c = 1.0 } }",
    "privacy={ mode = 'sound', unit = 'device', epsilon = 900.0, clip = 10.0 }",
    "stop.max-releases=2",
)


def train(module: Any, rows: Any, targets: Any) -> None:
    """A loop as any PyTorch tutorial writes it."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    for _ in range(20):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(rows), targets).backward()
        optimiser.step()


def test_a_loop_of_pytorch_learns_as_a_device(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    loop = crowdml.TrainingLoop.of_torch(module, train)
    assert "1.running_mean" in loop.weights and "1.num_batches_tracked" not in loop.weights
    crowdml.save_start(parse(TASK), loop, tmp_path / "loop.safetensors")
    server = FakeServer(*TERMS, *start_changes(tmp_path / "loop.safetensors"))
    Device.join(server.invite(), tmp_path / "home", connect=server.connect, accept=lambda offer: True)
    rows = np.array([[0.1 * n, 0.5, -0.2 if n % 2 else 0.2] for n in range(8)], np.float32)
    labels = ["walking" if n % 2 else "standing" for n in range(8)]
    with crowdml.Device(tmp_path / "home", connect=server.connect, model=loop) as device:
        assert device.run((rows, labels)).used == 2
        shown = device.live.transform(rows)
    assert loop.predict is not None
    predicted = loop.predict(dict(server.server.parameters[0]), shown)
    assert np.mean(predicted == np.arange(8) % 2) >= 0.75
