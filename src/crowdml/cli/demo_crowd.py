"""The crowd of the demo: a server process and device processes on this machine."""

from __future__ import annotations

import functools
import multiprocessing
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.cli import output
from crowdml.cli.operator import Operator
from crowdml.core import NUMPY, CrowdError, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.data import load as load_dataset
from crowdml.data.transforms import fit_all
from crowdml.task import Task, load

PATIENCE_S = 60.0
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

    def __enter__(self) -> Crowd:
        """Return the crowd, of which nothing runs yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all devices, then the server."""
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
        order = np.random.default_rng(0).permutation(len(self._dataset.train_targets))
        _CONTEXT.set_forkserver_preload([__name__, "crowdml.device.device", "crowdml.device.joining"])
        self._results = _CONTEXT.SimpleQueue()
        for number, (link, share) in enumerate(zip(links, np.array_split(order, devices), strict=True)):
            rows = self._folder / f"rows-{number}.npz"
            np.savez(rows, rows=self._dataset.train_rows[share], labels=self._dataset.train_targets[share])
            given = (link, self.home(number), rows, self._results)
            self._devices.append(_CONTEXT.Process(target=_work, args=given, daemon=True))
            self._devices[-1].start()

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


def _lines(home: Path) -> Path:
    return home.with_suffix(".txt")


def _work(link: str, home: Path, rows: Path, results: Any) -> None:
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


SLICED_DEVICES, SLICED_PASSES = 12, 5
SLICED_CHANGES = [
    "data.transform=[{kind='scale', by=0.0625}]",
    "model={kind='mlp', layers=[48, 24]}",
    "algorithm={kind='slicenet', pieces=3, dummies=2, batch=10, rate=0.5, decay=0.95, omega=2, cut-every=5}",
    "privacy={mode='none'}",
    f"stop={{max-releases={SLICED_PASSES}}}",
    f"crowd={{devices={SLICED_DEVICES}, passes={SLICED_PASSES}}}",
]
LONGEST_S = 300.0
POLL_S = 0.2
_TOLD = {
    "lost": "{members} is lost ({why})",
    "dominator lost": "its turn ends at the last cut, after batch {batch}",
    "waiting": "waits for members: {why}",
    "pass again": "begins the pass again: {why}",
    "shared": "has uploaded; {why}",
    "done": "is done",
}


def learn_in_slices(crowd: Crowd, file: Path) -> dict[str, Any]:
    """Let two groups learn, kill a follower on the way, and tell what happens."""
    with output.Progress("starting the server") as progress:
        crowd.open(file, SLICED_CHANGES)
        output.say(f"page: {crowd.address}/tasks/{crowd.task.name}")
        output.say("two groups of six: a dominator with its images, three followers with a piece each, two dummies")
        crowd.join(SLICED_DEVICES)
        story = _Story(crowd)
        killed: int | None = None
        begun = time.monotonic()
        while crowd.alive:
            if time.monotonic() - begun > LONGEST_S:
                raise DemoFailed("the groups do not end")
            time.sleep(POLL_S)
            shown = crowd.groups()
            story.tell(shown)
            done = sum(group["pass"] for group in shown) / (2 * SLICED_PASSES)
            progress.named(
                f"{len(shown)} groups, {sum(group['batches'] for group in shown)} batches", done, float("nan")
            )
            if killed is None and shown and shown[0]["pass"] >= 1 and shown[0]["stage"] == "running":
                killed = _kill_follower(crowd, shown[0])
        story.tell(crowd.groups())
    return _outcome(crowd, killed)


class _Story:
    """Says of every event once what happened."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._seen = set[tuple[int, float, str]]()
        self._attempts: dict[int, tuple[int, int]] = {}

    def tell(self, groups: list[dict[str, Any]]) -> None:
        """Say what is new."""
        for group in groups:
            for event in group["events"]:
                at = group["group"], event["time"], event["what"]
                if at in self._seen:
                    continue
                self._seen.add(at)
                self._one(group["group"], event)

    def _one(self, group: int, event: dict[str, Any]) -> None:
        said = _TOLD.get(event["what"], "").format(**event | {"members": " and ".join(event["members"])})
        if event["what"] == "go":
            before, self._attempts[group] = self._attempts.get(group), (event["turn"], event["batch"])
            if before and before[0] == event["turn"]:
                said = f"goes on from batch {event['batch']}: dominator {event['members'][0]}, "
                said += f"followers {', '.join(event['members'][1:])}"
        if said:
            output.say(f"group {group}, turn {event['turn']}: {said}")


def _kill_follower(crowd: Crowd, group: dict[str, Any]) -> int | None:
    """Kill the process that holds the group's second piece."""
    number = next((at for at, each in enumerate(group["members"], 1) if each["role"] == "follower 2"), None)
    for device in crowd.alive:
        if f"in group {group['group']}, as member {number}" in crowd.said(device):
            name = group["members"][(number or 1) - 1]["member"]
            output.say(f"now the process of {name}, which holds the second piece of group {group['group']}, is killed")
            crowd.kill(device)
            return device
    return None


def _outcome(crowd: Crowd, killed: int | None) -> dict[str, Any]:
    from safetensors.numpy import load as read

    from crowdml.device.device_home import Home
    from crowdml.device.slice_member import group_model

    errors: dict[str, float] = {}
    like = crowd.task.model_for(NUMPY).zeros()
    for device in range(SLICED_DEVICES):
        found = re.search(r"in group (\d+)", crowd.said(device))
        if device == killed or found is None or f"group {found[1]}" in errors:
            continue
        home = Home(crowd.home(device))
        arrays = read(group_model(home.folder(home.member())))
        parameters = trees.map_paths(lambda path, _, arrays=arrays: arrays[path], like)
        errors[f"group {found[1]}"] = crowd.wrong(parameters)
    shown = crowd.groups()
    accuracy = 1 - sum(errors.values()) / max(len(errors), 1)
    told = ", ".join(f"{group} {1 - error:.1%}" for group, error in sorted(errors.items()))
    output.show(
        f"[bold]accuracy on unseen digits   {accuracy:.1%}[/bold] ({told})",
        f"members lost                {sum(group['lost'] for group in shown)}; no batch that was under way is missing",
        "ε spent                     no formal guarantee",
    )
    pace = ", ".join(f"{group['batches_per_s'] or 0:.0f}" for group in shown)
    output.show(f"{pace} batches a second at the end, {crowd.seconds:.0f} s", style="dim")
    return {"accuracy": accuracy, "errors": errors, "groups": shown, "killed": killed, "seconds": crowd.seconds}
