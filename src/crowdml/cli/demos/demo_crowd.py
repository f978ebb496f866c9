"""The crowd of the demo: a server process and device processes on this machine."""

from __future__ import annotations

import functools
import multiprocessing
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.cli.operator import Operator
from crowdml.core import NUMPY, CrowdError, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.data import load as load_dataset
from crowdml.data.transforms import fit_all
from crowdml.task import Task, load
from crowdml.wire.signed_task import write_arrays

PATIENCE_S = 60.0
ENDING = tuple(signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if name in signal.Signals.__members__)
"""What ends the demo beside Ctrl-C; Windows has no SIGHUP."""
_CONTEXT = multiprocessing.get_context("forkserver")


class DemoFailed(CrowdError):
    """The demo's server did not start, or one of its devices failed."""


class Crowd:
    """A server and its devices, all on loopback.

    Args:
        folder: Where everything is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[bytes] | None = None
        self._devices: list[Any] = []
        self._results: Any = None
        self._began = time.monotonic()
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Crowd:
        """Return the crowd, of which nothing runs yet."""
        # Whoever closes the terminal, or kills the demo, means its server and its devices too.
        for each in ENDING:
            self._handlers[each] = signal.signal(each, _end)
        return self

    def __exit__(self, *_: object) -> None:
        """End all devices, then the server."""
        for each, before in self._handlers.items():
            signal.signal(each, before)
        for device in self._devices:
            device.terminate()
        if self._server is not None and self._server.poll() is None:
            self._server.terminate()
            self._server.wait()

    @property
    def address(self) -> str:
        """Address of the server."""
        return self._operator.address

    def open(self, file: Path, changes: Sequence[str], measured: bool = True) -> None:
        """Start the server and open the task.

        Args:
            file: The task file.
            changes: What is changed of it.
            measured: Whether the server is given the dataset's test rows, to measure the model on.
        """
        home = self._folder / "server"
        command = [sys.executable, "-m", "crowdml", "serve", "--home", str(home), "--port", "0"]
        log = (self._folder / "server.log").open("wb")
        # Its own group: Ctrl-C goes to the demo, which then ends the server itself.
        self._server = subprocess.Popen(command, stderr=log, start_new_session=True)  # noqa: S603  our own program
        self._wait_for_server(home)
        self._operator = Operator(None, home, None)
        self._changes = list(changes)
        self.task = load(file, changes)
        request: dict[str, Any] = {"file": file.read_text(), "changes": self._changes}
        if measured:
            # Images that no device has are public here: the page shows how well the model does on them.
            labels = self._transformed.test_targets.astype(np.float32)
            request["public"] = write_arrays([{"rows": self._transformed.test_rows, "labels": labels}])[0]
        self._operator.ask("POST", "/v1/tasks", request)

    def invite(self, count: int) -> list[str]:
        """Make links, each good for one device."""
        path = f"/v1/tasks/{self.task.name}/invites"
        links: list[str] = self._operator.ask("POST", path, {"count": count})["invites"]
        return links

    def start(self, work: Callable[..., None], given: Sequence[tuple[Any, ...]]) -> None:
        """Start devices, each in a process of its own: `work(its folder, *what it is given)`."""
        _CONTEXT.set_forkserver_preload([__name__, "crowdml.device.device", "crowdml.device.joining"])
        for number, more in enumerate(given):
            self._devices.append(_CONTEXT.Process(target=work, args=(self.home(number), *more), daemon=True))
            self._devices[-1].start()

    def watch(self) -> Iterator[dict[str, Any]]:
        """Yield how the task stands, for as long as the server runs."""
        while self._server is not None and self._server.poll() is None:
            if any(device.exitcode for device in self._devices):
                raise DemoFailed("a companion ended with an error")
            yield self._summary()
            time.sleep(0.5)
        raise DemoFailed("the server has ended")

    def join(self, devices: int) -> None:
        """Give every device its share of the images and let it join and work, each in a process of its own."""
        order = np.random.default_rng(0).permutation(len(self._dataset.train_targets))
        self._results = _CONTEXT.SimpleQueue()
        given = []
        for number, (link, share) in enumerate(zip(self.invite(devices), np.array_split(order, devices), strict=True)):
            rows = self._folder / f"rows-{number}.npz"
            np.savez(rows, rows=self._dataset.train_rows[share], labels=self._dataset.train_targets[share])
            given.append((link, rows, self._results))
        self.start(_work, given)

    def home(self, number: int) -> Path:
        """Folder of a device."""
        return self._folder / f"device-{number}"

    def said(self, number: int) -> str:
        """What a device has said so far."""
        path = _lines(self.home(number))
        return path.read_text() if path.exists() else ""

    def kill(self, number: int) -> None:
        """End a device's process at once, as a flat battery would."""
        self._devices[number].kill()

    @property
    def alive(self) -> list[int]:
        """Devices whose processes have not ended."""
        return [number for number, device in enumerate(self._devices) if device.is_alive()]

    def groups(self) -> list[dict[str, Any]]:
        """Ask the server how its groups stand, where devices hold pieces of one net."""
        found: list[dict[str, Any]] = self._operator.ask("GET", f"/v1/tasks/{self.task.name}/groups")["groups"]
        return found

    def wrong(self, parameters: Tree) -> float:
        """Measure a model on images that no device has."""
        predicted = self.task.model_for(NUMPY).predict(parameters, self._transformed.test_rows)
        return float(np.mean(predicted != self._transformed.test_targets))

    @property
    def seconds(self) -> float:
        """Seconds since the crowd was made."""
        return time.monotonic() - self._began

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

        arrays = read(self._operator.fetch("GET", f"/v1/tasks/{self.task.name}/model").content)
        model = self.task.model_for(NUMPY)
        parameters = trees.map_paths(lambda path, _leaf: arrays[path], model.zeros())
        return self.wrong(parameters)

    def outcome(self) -> dict[str, Any]:
        """Say what was learnt, what it cost, and what would have been learnt without noise."""
        summary = self._summary()
        spent = [self._results.get() for _ in self._devices]
        promised = [spending for spending in spent if spending is not None]
        return {
            "accuracy": 1 - self.error(),
            "accuracy_without_noise": 1 - _without_noise(self.task),
            "spent": max(promised, key=lambda spending: spending["epsilon"]) if promised else None,
            "unit": self.task.privacy.unit,
            "devices": summary["devices"],
            "check_ins": summary["check_ins"],
            "version": summary["version"],
            "seconds": self.seconds,
        }

    def wait(self) -> None:
        """Wait until the owner of the terminal has seen enough."""
        assert self._server is not None  # noqa: S101  it was opened
        try:
            self._server.wait()
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    @functools.cached_property
    def _dataset(self) -> Dataset:
        assert self.task.data.dataset is not None  # noqa: S101  the demo's task has one
        return load_dataset(self.task.data.dataset)

    @functools.cached_property
    def _transformed(self) -> Dataset:
        return fit_all(self.task.data.transform, self._dataset)[1]

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


def _end(number: int, _: Any) -> None:
    raise SystemExit(128 + number)


def _lines(home: Path) -> Path:
    return home.with_suffix(".txt")


def _work(home: Path, link: str, rows: Path, results: Any) -> None:
    """Be one device: join, work until everything is spent, and report ε. Runs in a process of its own."""
    from crowdml.device.device import Device
    from crowdml.device.joining import join

    # Ctrl-C goes to the demo, which ends its devices.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    join(link, home, accept=lambda _: True, accept_no_guarantee=lambda _: True)

    def tell(line: str) -> None:
        with _lines(home).open("a") as into:
            into.write(line + "\n")

    with Device(home, tell=tell) as device:
        releases = device.live.task.stop.max_releases
        summary = device.run(rows, releases=releases)
        promised = device.live.plan.terms.promised
    results.put({"epsilon": summary.spent.epsilon, "delta": summary.spent.delta} if promised else None)


def _without_noise(task: Task) -> float:
    """Simulate the same crowd without noise and return its test error."""
    from crowdml.privacy import PrivacySettings
    from crowdml.simulation import simulate

    return simulate(task.model_copy(update={"privacy": PrivacySettings(mode="none")}), trials=1).test_error
