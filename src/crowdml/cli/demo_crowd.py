"""The crowd of the demo: a server process and device processes on this machine."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.algorithms import Task, load
from crowdml.cli.operator import Operator
from crowdml.core import NUMPY, CrowdError, trees
from crowdml.data import Dataset
from crowdml.data import load as load_dataset
from crowdml.data.transforms import fit_all

PATIENCE_S = 60.0
_CONTEXT = multiprocessing.get_context("forkserver")


class DemoFailed(CrowdError):
    """The demo could not be shown."""


class Crowd:
    """A server and its devices, all on loopback.

    Args:
        folder: Where everything is kept.
    """

    def __init__(self, folder: Path) -> None:
        """Start nothing yet."""
        self._folder = folder
        self._server: subprocess.Popen[bytes] | None = None
        self._devices: list[Any] = []
        self._results: Any = None
        self._began = time.monotonic()

    def __enter__(self) -> Crowd:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        for device in self._devices:
            device.terminate()
        if self._server is not None and self._server.poll() is None:
            self._server.terminate()
            self._server.wait()

    @property
    def address(self) -> str:
        """Address of the server."""
        return self._operator.address

    def open(self, file: Path, changes: Sequence[str]) -> None:
        """Start the server and open the task."""
        home = self._folder / "server"
        command = [sys.executable, "-m", "crowdml", "serve", "--home", str(home), "--port", "0"]
        log = (self._folder / "server.log").open("wb")
        # Its own group: Ctrl-C goes to the demo, which then ends the server itself.
        self._server = subprocess.Popen(command, stderr=log, start_new_session=True)  # noqa: S603  our own program
        self._wait_for_server(home)
        self._operator = Operator(None, home, None)
        self._changes = list(changes)
        self.task = load(file, changes)
        self._operator.ask("POST", "/v1/tasks", {"file": file.read_text(), "changes": self._changes})
        assert self.task.data.dataset is not None  # noqa: S101  the demo's task has one
        self._dataset = load_dataset(self.task.data.dataset)

    def join(self, devices: int) -> None:
        """Give every device its share of the images and let it join and work, each in a process of its own."""
        links = self._operator.ask("POST", f"/v1/tasks/{self.task.name}/invites", {"count": devices})["invites"]
        order = np.random.default_rng(0).permutation(len(self._dataset.train_labels))
        _CONTEXT.set_forkserver_preload(["crowdml.cli.demo_device"])
        self._results = _CONTEXT.SimpleQueue()
        for number, (link, own) in enumerate(zip(links, np.array_split(order, devices), strict=True)):
            rows = self._folder / f"rows-{number}.npz"
            np.savez(rows, rows=self._dataset.train_rows[own], labels=self._dataset.train_labels[own])
            home = self._folder / f"device-{number}"
            self._devices.append(_start(link, home, rows, self._results))

    def learning(self) -> Iterator[tuple[int, float]]:
        """Yield check-ins so far and the test error, until all devices have ended."""
        while any(device.is_alive() for device in self._devices):
            time.sleep(0.25)
            yield self._summary()["check_ins"], self.error()
        bad = [device.exitcode for device in self._devices if device.exitcode]
        if bad:
            raise DemoFailed(f"{len(bad)} of {len(self._devices)} devices ended with an error")

    def error(self) -> float:
        """Measure the present model on images that no device has."""
        from safetensors.numpy import load as read

        raw = self._operator.fetch("GET", f"/v1/tasks/{self.task.name}/model").content
        arrays = read(raw)
        model = self.task.model_for(NUMPY)
        parameters = trees.map_paths(lambda path, _leaf: arrays[path], model.zeros())
        ready = self._transformed()
        return float(np.mean(model.predict(parameters, ready.test_rows) != ready.test_labels))

    def outcome(self) -> dict[str, Any]:
        """Say what was learnt, what it cost, and what would have been learnt without noise."""
        summary = self._summary()
        spent = [self._results.get() for _ in self._devices]
        promised = [own for own in spent if own is not None]
        return {
            "accuracy": 1 - self.error(),
            "accuracy_without_noise": 1 - _without_noise(self.task),
            "spent": max(promised, key=lambda own: own["epsilon"]) if promised else None,
            "unit": self.task.privacy.unit,
            "devices": summary["devices"],
            "check_ins": summary["check_ins"],
            "version": summary["version"],
            "seconds": time.monotonic() - self._began,
        }

    def wait(self) -> None:
        """Wait until the owner of the terminal has seen enough."""
        assert self._server is not None  # noqa: S101  it was opened
        try:
            self._server.wait()
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    def _transformed(self) -> Dataset:
        if not hasattr(self, "_ready"):
            _, self._ready = fit_all(self.task.data.transform, self._dataset)
        return self._ready

    def _summary(self) -> dict[str, Any]:
        found: dict[str, Any] = self._operator.ask("GET", f"/v1/tasks/{self.task.name}")
        return found

    def _wait_for_server(self, home: Path) -> None:
        assert self._server is not None  # noqa: S101  just started
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self._server.poll() is None:
            if (home / "server.address").exists() and (home / "operator.token").exists():
                return
            time.sleep(0.05)
        log = (self._folder / "server.log").read_text(errors="replace").strip()
        raise DemoFailed(f"the server did not start: {log or 'it said nothing'}")


def _start(link: str, home: Path, rows: Path, results: Any) -> Any:
    from crowdml.cli.demo_device import run

    process = _CONTEXT.Process(target=run, args=(link, home, rows, results), daemon=True)
    process.start()
    return process


def _without_noise(task: Task) -> float:
    """Simulate the same crowd without noise and return its test error."""
    from crowdml.algorithms.task import Task as Settings
    from crowdml.privacy import PrivacySettings
    from crowdml.simulation import simulate

    plain = task.model_copy(update={"privacy": PrivacySettings(mode="none")})
    assert isinstance(plain, Settings)  # noqa: S101  model_copy keeps the type
    return simulate(plain, trials=1).test_error
