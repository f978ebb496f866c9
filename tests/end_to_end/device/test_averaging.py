"""A real server and Python devices, one of which lies: learned weights and a robust rule, and a model of one's own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from crowdml.algorithms import Algorithm, DevicePart
from crowdml.core import Batch, Broadcast, CheckIn, Release, record, trees
from crowdml.device import Device

ALGORITHM = 'kind = "crowd-sgd"\nbatch = 10\nrate = { kind = "inverse-sqrt", c = 10.0 }\n'
LOCAL = """kind = "local-sgd"
server-batch = 4
local-steps = 2
stale = "accept"
"""
CHANGES = (('mode = "sound"', 'mode = "none"'), ("[stop]\nmax-releases = 400\n", ""))
HONEST, VERSIONS = ("one", "two", "three"), 3


class Crowd:
    """Three honest devices and one that sends its change turned round and enlarged."""

    def __init__(self, server: Any, folder: Path, rows: Path) -> None:
        self.server, self.folder, self.rows = server, folder, rows
        for name in (*HONEST, "liar"):
            Device.join(server.invite(), folder / name, accept=lambda _: True, accept_no_guarantee=lambda _: True)

    def learn(self) -> None:
        for _ in range(VERSIONS):
            for name in (*HONEST, "liar"):
                with Device(self.folder / name) as device:
                    if name == "liar":
                        device.live = dataclasses.replace(device.live, algorithm=lying(device.live.algorithm))
                    assert device.run(str(self.rows), releases=1).used == 1

    def wrong(self) -> int:
        """Count the rows that the model on the server gets wrong."""
        weights = load(self.server.fetch(f"/v1/tasks/{self.server.task}/model"))["0/w"]
        with np.load(self.rows) as found:
            return int(np.sum(np.argmax(found["rows"] @ weights.reshape(3, 2), axis=1) != found["labels"]))


@record
class Lying(DevicePart):
    """Does what a device does, and sends the opposite, twenty times as long."""

    honest: DevicePart

    def init(self) -> Any:
        return self.honest.init()

    def step(self, broadcast: Broadcast, work: Any, batch: Batch, coins: Any) -> tuple[Release, Any]:
        return self.honest.step(broadcast, work, batch, coins)

    def send(self, broadcast: Broadcast, work: Any, noisy: CheckIn) -> tuple[CheckIn, Any]:
        check_in, work = self.honest.send(broadcast, work, noisy)
        return dataclasses.replace(check_in, update=trees.map(lambda leaf: -20 * leaf, check_in.update)), work


def lying(algorithm: Algorithm) -> Algorithm:
    phase = dataclasses.replace(algorithm.last, device=Lying(honest=algorithm.last.device))
    return dataclasses.replace(algorithm, phases=(phase,))


@pytest.fixture
def crowd(server: Any, tmp_path: Path, rows: Path) -> Callable[..., Crowd]:
    def make(*changes: tuple[str, str], public: bool = False) -> Crowd:
        server.open(*CHANGES, *changes, **({"public": public_rows(rows)} if public else {}))
        return Crowd(server, tmp_path, rows)

    return make


def public_rows(rows: Path) -> dict[str, Any]:
    """Two hundred rows as the model sees them: no longer than 1."""
    with np.load(rows) as found:
        short = found["rows"] / np.maximum(1, np.linalg.norm(found["rows"], axis=1, keepdims=True))
        labels = found["labels"]
    return {"rows": np.tile(short, (5, 1)).astype(np.float32), "labels": np.tile(labels, 5).astype(np.float32)}


@pytest.mark.parametrize(("robust", "few"), [("", False), ('[robust]\nrule = { kind = "geometric-median" }\n', True)])
def test_a_rule_keeps_one_liar_from_turning_the_model_round(
    robust: str, few: bool, crowd: Callable[..., Crowd]
) -> None:
    """The first case shows that the lie is one: without a rule the model is wrong about nearly everything."""
    made = crowd((ALGORITHM, LOCAL + robust))
    made.learn()
    assert made.server.ask(f"/v1/tasks/{made.server.task}")["version"] == VERSIONS
    assert made.wrong() <= 4 if few else made.wrong() >= 30


def test_learned_weights_leave_a_liar_out_and_owners_adapt_the_model(
    crowd: Callable[..., Crowd], crowdml: Callable[..., Any], tmp_path: Path, rows: Path
) -> None:
    made = crowd(
        (ALGORITHM, LOCAL + 'averaging = "learned"\n'), ("features = 3", "features = 3\npublic = 200"), public=True
    )
    made.learn()
    shown = made.server.ask(f"/v1/tasks/{made.server.task}")["averaging"]
    assert shown["used"] >= 1 and np.argmin(shown["weights"]) == 3 and shown["weights"][3] < 0.05, shown
    assert made.wrong() <= 4

    made.server.ask(f"/v1/tasks/{made.server.task}", {"state": "stopped"}, "PATCH")
    mine = tmp_path / "mine.npz"  # an owner for whom the words mean the opposite
    with np.load(rows) as found:
        np.savez(mine, rows=found["rows"], labels=1 - found["labels"])
    command = (
        "device",
        "personal",
        "--rows",
        str(mine),
        "--home",
        str(tmp_path / "one"),
        "--steps",
        "30",
        "--rate",
        "5",
    )
    ran = crowdml(*command, "-o", str(tmp_path / "own.safetensors"), "--json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["version"] == VERSIONS and told["held_out"]["rows"] == 8
    assert told["held_out"]["common"] >= 6 and told["held_out"]["personal"] <= 2
    assert (tmp_path / "own.safetensors").stat().st_mode & 0o777 == 0o600
    assert "yours" in crowdml(*command, "-o", str(tmp_path / "own.onnx")).stdout
    refused = crowdml(*command, "-o", str(tmp_path / "own.pt"))
    assert refused.returncode == 2 and "ending" in refused.stderr
