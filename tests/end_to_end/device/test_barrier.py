"""ADMM between a server's process and devices, one of them a process too: whoever is ready makes up a version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as read_tensors

from crowdml.data import load
from crowdml.device import Device

EXAMPLE = Path(__file__).parents[3] / "examples" / "secagg-admm.toml"
DEVICES, BARRIER, VERSIONS = 6, 4, 4
CHANGES = [f"algorithm.devices={DEVICES}", f"algorithm.barrier={BARRIER}", f"stop.max-versions={VERSIONS}"]


def test_devices_that_are_ready_make_up_a_version(server: Any, begin: Callable[..., Any], tmp_path: Path) -> None:
    digits, homes = load("digits"), list[Path]()
    server.ask("/v1/tasks", {"file": EXAMPLE.read_text(), "changes": CHANGES})
    server.task = task = "secagg-admm"
    for at in range(DEVICES):
        homes.append(tmp_path / str(at))
        Device.join(server.invite(), homes[-1], accept=lambda offer: True, accept_no_guarantee=lambda offer: True)
        np.savez(homes[-1] / "rows.npz", rows=digits.train_rows[at::DEVICES], labels=digits.train_targets[at::DEVICES])
    ended: dict[int, Any] = {}

    def run(at: int) -> None:
        with Device(homes[at]) as device:
            ended[at] = device.run(homes[at] / "rows.npz")

    process = begin("device", "run", "--home", str(homes[0]), "--rows", str(homes[0] / "rows.npz"))
    threads = [threading.Thread(target=run, args=(at,)) for at in range(1, DEVICES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    shown = server.ask(f"/v1/tasks/{task}")
    assert (shown["state"], shown["version"]) == ("stopped", VERSIONS)
    used = sum(summary.used for summary in ended.values()) + said.count("applied")
    assert used == shown["check_ins"] == VERSIONS * BARRIER

    weights = read_tensors(server.fetch(f"/v1/tasks/{task}/model"))["0/w"]
    wrong = np.argmax(digits.test_rows @ weights.T, axis=1) != digits.test_targets
    # A simulation of the same crowd errs on 5 to 8 % after as many versions; by chance it would be 90 %.
    assert wrong.mean() < 0.2
