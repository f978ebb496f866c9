"""A server in this process, with tasks in every state and a crowd that has checked in, to look at the portal with.

Names and labels hold what a page must not take for its own: tags, quotes, scripts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crowdml.wire.signed_task import write_arrays
from tests.support.application import Makes
from tests.support.on_socket import OnSocket
from tests.support.served import Member

EVIL = "<script>alert(1)</script>"
LABELS = ["still", '<img src=x onerror="alert(2)">', "</svg><script>alert(3)</script>"]
SOUND = """
crowdml = 1
name = "walk"
objective = "Tell walking from standing"
[data]
columns = ["mean", "deviation", "steps"]
units = { mean = "g", deviation = "g", steps = "per second" }
labels = ["standing", "walking"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
bias = true
[algorithm]
kind = "crowd-sgd"
batch = 60
rate = { kind = "inverse-sqrt", c = 10.0 }
[privacy]
mode = "sound"
unit = "sample"
mechanism = "gaussian"
clip = 1.0
epsilon = 8.0
delta = 1e-5
max-uses = 10
statistics-epsilon = 1.0
"""
ODD = f"""
crowdml = 1
name = "odd"
objective = '{EVIL} “quoted” &amp; odd'
[data]
features = 3
labels = ['{LABELS[0]}', '{LABELS[1]}', '{LABELS[2]}']
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 4
rate = {{ kind = "inverse-sqrt", c = 10.0 }}
[privacy]
mode = "none"
"""
ROUNDS = """
crowdml = 1
name = "rounds"
objective = "Learn in rounds"
[data]
features = 3
labels = ["standing", "walking"]
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
per-round = 1
local-batch = 4
[privacy]
mode = "none"
"""


class Portal(OnSocket):
    """The server, with what tests ask of it."""

    def _begin(self) -> None:
        super()._begin()
        self.members: dict[str, Member] = {}

    def check_in(self, task: str, times: int, rows: int = 4) -> None:
        """Let the one device of a task check in so often."""
        device = self.members[task] = self.members.get(task) or self.device(task)
        for number in range(times):
            assert device.check_out().status_code == 200
            assert device.check_in(device.body(seed=number, rows=rows)).status_code == 200

    def measure(self, task: str) -> None:
        """Look at the public rows now."""
        self.app._coordinator.validations[task].measure()  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The server; tests may add check-ins to `rounds` alone."""
    with contextlib.closing(Makes(tmp_path_factory.mktemp("portal"))) as make:
        made = make(kind=Portal)
        assert isinstance(made, Portal)
        made.create(file=SOUND)
        made.create(file=ODD)
        draws = np.random.default_rng(0)
        public = {"rows": draws.normal(size=(50, 3)).astype(np.float32), "labels": np.arange(50, dtype=np.float32) % 2}
        body = {"file": ROUNDS, "changes": [], "draft": False, "public": write_arrays([public])[0]}
        assert made.as_operator("POST", "/v1/tasks", body).status_code == 201
        made.create("name=ended", file=ODD)
        made.create("name=waiting", file=SOUND, draft=True)
        made.check_in("walk", 25, rows=60)
        made.check_in("odd", 25)
        for _ in range(3):
            made.check_in("rounds", 1)
            made.measure("rounds")
        made.move("stopped", "ended")
        yield made
