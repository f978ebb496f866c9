"""Noise in every step, live: twenty devices learn MNIST's digits, beside fedsgd at the same ε.

    python -m benchmarks.private_steps.live

A server process, devices with ledgers and the operating system's entropy, all on loopback; the same file is simulated.
Rates and rows of a step were chosen on rows held back, by `crowdml compare examples/private-steps.toml --set
data.validation=10000 --vary algorithm.rate.c=3,8,16 --vary algorithm.local-batch=500,2500`, and so for fedsgd.
"""

from __future__ import annotations

import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from safetensors.numpy import load as read_tensors

from crowdml.core import NUMPY, trees
from crowdml.data import load
from crowdml.device import Device
from crowdml.device.joining import join
from crowdml.simulation import simulate
from crowdml.simulation.prepare import prepare
from crowdml.task import parse
from tests.support.process import Process

EXAMPLE = (Path(__file__).parents[2] / "examples" / "private-steps.toml").read_text(encoding="utf-8")
ALGORITHM = re.compile(r"\[algorithm\].*?\n(?=\[)", re.DOTALL)
FEDSGD = """[algorithm]
kind = "fedsgd"
per-round = 20
rate = { kind = "constant", c = 40.0 }

"""


def live(file: str, folder: Path) -> tuple[float, float, float]:
    """Run all devices against a server process; return accuracy, the largest ε of a ledger, and seconds."""
    task = parse(file)
    raw = load("mnist")
    with ExitStack() as stack:
        server = Process(folder)
        stack.callback(server.end)
        operator = {"authorization": f"Bearer {server.token}"}
        server.send("POST", "/v1/tasks", json={"file": file}, headers=operator).raise_for_status()
        invites = {"count": task.crowd.devices}
        links = server.send("POST", f"/v1/tasks/{task.name}/invites", json=invites, headers=operator).json()["invites"]
        homes = [folder / f"device-{slot}" for slot in range(len(links))]
        for link, home in zip(links, homes, strict=True):
            join(link, home, accept=lambda _: True)
        begun = time.monotonic()
        parts = np.array_split(np.random.default_rng(1).permutation(len(raw.train_rows)), len(homes))

        def take_part(number: int) -> float:
            with Device(homes[number]) as device:
                rows = (raw.train_rows[parts[number]], raw.train_targets[parts[number]])
                return device.run(rows).spent.epsilon

        with ThreadPoolExecutor(len(homes)) as pool:
            spent = max(pool.map(take_part, range(len(homes))))
        seconds = time.monotonic() - begun
        answer = server.send("GET", f"/v1/tasks/{task.name}/model", headers=operator)
        arrays = read_tensors(answer.raise_for_status().content)
    model = task.model_for(NUMPY)
    learnt = trees.map_paths(lambda path, _leaf: arrays[path], model.zeros())
    _, dataset = prepare(task)
    return float(np.mean(model.predict(learnt, dataset.test_rows) == dataset.test_targets)), spent, seconds


def main() -> None:
    """Run both, and print a table."""
    files = {"noise in steps": EXAMPLE, "fedsgd": ALGORITHM.sub(FEDSGD, EXAMPLE).replace('noise-at = "steps"\n', "")}
    print("              live accuracy   simulated   ε of ledgers   ε of the simulation   seconds live")
    for name, file in files.items():
        result = simulate(parse(file))
        with tempfile.TemporaryDirectory() as folder:
            accuracy, spent, seconds = live(file, Path(folder) / "server")
        simulated = result.privacy["sample"]["epsilon"]
        print(
            f"{name:15} {accuracy:12.4f} {1 - result.test_error:11.4f} {spent:14.4f} {simulated:21.4f} {seconds:14.0f}"
        )


if __name__ == "__main__":
    main()
