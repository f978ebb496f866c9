"""A real server and real devices that hold pieces of one net, each a process of its own that can be killed."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as read_model

from crowdml.core import NUMPY, trees
from crowdml.core.keys import SigningKey
from crowdml.core.ops import Tree
from crowdml.device.device_home import Home
from crowdml.device.slice_member import GROUP_MODEL
from crowdml.slicing import batch_gradients
from crowdml.slicing.live.dealing import row_order
from crowdml.slicing.training import Group, train_turn
from crowdml.task import Task, parse
from crowdml.task.live_task import sliced_net_of
from tests.support.server import Server

TASK = """
crowdml = 1
name = "pieces"
objective = "Tell three heaps apart"
[data]
features = 6
labels = ["a", "b", "c"]
[model]
kind = "mlp"
layers = [12, 8]
[algorithm]
kind = "slicenet"
pieces = 3
dummies = 2
balance = 2.0
batch = 5
rate = 0.3
decay = 0.9
cut-every = 4
[privacy]
mode = "none"
[stop]
max-releases = 2
"""
PATIENCE_S = 180.0
"""Long: a machine may have much else to do. Nothing is measured by it."""
_CONTEXT = multiprocessing.get_context("forkserver")


def _take_part(link: str, home: str, rows: str, lines: str, holds: tuple[int, int] | None, gate: str) -> None:
    """Join and run; a device process. At `holds` a dominator lets its batch in only once the gate is open."""
    from crowdml.device.device import Device
    from crowdml.device.joining import join
    from crowdml.slicing.live.member_machine import Member

    go_on = Member._next_batch

    def next_batch(member: Member) -> Any:
        while member._worker and (member._now[0], member._worker.batches) == holds and not Path(gate).exists():
            time.sleep(0.005)
        return go_on(member)

    Member._next_batch = next_batch  # type: ignore[method-assign, assignment]

    def tell(line: str) -> None:
        with open(lines, "a") as into:
            into.write(line + "\n")

    try:
        if link:
            join(link, home, accept=lambda offer: True, accept_no_guarantee=lambda offer: True, tell=tell)
        with Device(home, tell=tell) as device:
            tell(f"ended: {device.run(rows).reason}")
    except BaseException as error:
        tell(f"failed: {type(error).__name__}: {error}")
        raise


class SlicedCrowd:
    """A server with one sliced task, and its devices.

    Args:
        folder: Where everything is kept.
        devices: How many.
        text: The task file.
        rows: `rows(device)`: rows and labels of a device; not given: some of chance.
        options: Of the server.

    Attributes:
        holds: Turn and batch at which a group waits until `open_gate`, so that a slow test cannot come too late.
    """

    def __init__(
        self,
        folder: Path,
        devices: int,
        text: str = TASK,
        rows: Callable[[int], tuple[np.ndarray, np.ndarray]] | None = None,
        *options: str,
    ) -> None:
        self.folder, self.count, self.task = folder, devices, parse(text)
        (folder / "server").mkdir()
        self.server = Server(folder / "server", *options)
        try:
            self.server.ask("/v1/tasks", {"file": text})
        except OSError:
            self.server.kill()
            print((folder / "server" / "server.log").read_text())
            raise
        _CONTEXT.set_forkserver_preload(
            ["crowdml.device.device", "crowdml.device.joining", "crowdml.device.slice_member"]
        )
        self.rows = {device: (rows or chance_rows)(device) for device in range(devices)}
        self.processes: dict[int, Any] = {}
        self.holds: tuple[int, int] | None = None

    def __enter__(self) -> SlicedCrowd:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join()
        self.server.kill()

    @property
    def path(self) -> str:
        """Path of the task."""
        return f"/v1/tasks/{self.task.name}"

    def join(self) -> None:
        """Let all devices join and run."""
        links = self.server.ask(f"{self.path}/invites", {"count": self.count})["invites"]
        for device, link in enumerate(links):
            rows, labels = self.rows[device]
            np.savez(self.folder / f"rows-{device}.npz", rows=rows, labels=labels)
            self.start(device, link)

    def start(self, device: int, link: str = "") -> None:
        """Start a device's process, again if need be."""
        names = (link, str(self.home(device)), str(self.folder / f"rows-{device}.npz"), str(self.lines(device)))
        given = (*names, self.holds, str(self.folder / "gate"))
        self.processes[device] = _CONTEXT.Process(target=_take_part, args=given, daemon=True)
        self.processes[device].start()

    def open_gate(self) -> None:
        """Let a group that waits go on."""
        (self.folder / "gate").touch()

    def home(self, device: int) -> Path:
        """A device's folder."""
        return self.folder / f"device-{device}"

    def lines(self, device: int) -> Path:
        """What a device has said."""
        return self.folder / f"device-{device}.txt"

    def send(self, device: int, what: signal.Signals) -> None:
        """Send a signal to a device."""
        os.kill(self.processes[device].pid, what)

    def groups(self) -> list[dict[str, Any]]:
        """Return what the server shows of its groups."""
        found: list[dict[str, Any]] = self.server.ask(f"{self.path}/groups")["groups"]
        return found

    def wait_until(self, holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until something holds."""
        end = time.monotonic() + patience_s
        while not holds():
            assert time.monotonic() < end, f"{what}\n{self.told()}"
            time.sleep(0.05)

    def wait_for_end(self, devices: list[int] | None = None, patience_s: float = PATIENCE_S) -> None:
        """Wait until devices have ended by themselves."""
        chosen = list(self.processes) if devices is None else devices
        self.wait_until(
            lambda: not any(self.processes[device].is_alive() for device in chosen), "devices do not end", patience_s
        )
        for device in chosen:
            assert self.processes[device].exitcode == 0, self.told()

    def told(self) -> str:
        """Put together what everybody has said, for a test that failed."""
        said = [f"{device}: {path.read_text()}" for device in self.processes if (path := self.lines(device)).exists()]
        try:
            shown = str(self.groups())
        except OSError as error:
            shown = str(error)
        return "\n".join([*said, shown, (self.folder / "server" / "server.log").read_text()[-3000:]])

    def roles(self, group: int = 1) -> dict[str, int]:
        """Return which device has which role now; dummies are numbered."""
        shown = next(each for each in self.groups() if each["group"] == group)
        seats, made, dummies = self.seats(), dict[str, int](), 0
        for number, member in enumerate(shown["members"], start=1):
            role = member["role"]
            if role == "dummy":
                dummies += 1
                role = f"dummy {dummies}"
            made[role] = seats[group, number]
        return made

    def seats(self) -> dict[tuple[int, int], int]:
        """Return which device sits where: by group and number there, as it was told."""
        found = {}
        for device in self.processes:
            said = self.lines(device).read_text() if self.lines(device).exists() else ""
            for group, number in re.findall(r"in group (\d+), as member (\d+)", said):
                found[int(group), int(number)] = device
        return found

    def model(self, device: int) -> Tree:
        """Return the model of a device's group."""
        member = Home(self.home(device)).member()
        arrays = read_model((Home(self.home(device)).folder(member) / GROUP_MODEL).read_bytes())
        return trees.map_paths(lambda path, _: arrays[path], self.task.model_for(NUMPY).zeros())

    def order(self, device: int, turn: int) -> np.ndarray:
        """Return the order of a device's rows in a turn."""
        member = Home(self.home(device)).member()
        key: SigningKey = member.key
        secret = hashlib.sha256(b"crowdml row order\0" + key.secret + member.task_hash.encode()).digest()
        return row_order(secret, turn, len(self.rows[device][1]))

    def first(self) -> Tree:
        """Return the parameters that everybody begins with: ask before anything was uploaded."""
        arrays = read_model(self.server.fetch(f"{self.path}/model"))
        return trees.map_paths(lambda path, _: arrays[path], self.task.model_for(NUMPY).zeros())


def chance_rows(device: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw three heaps of rows; devices have different numbers of them."""
    generator = np.random.default_rng([7, device])
    labels = generator.integers(0, 3, 40 + 5 * (device % 3))
    centres = np.random.default_rng(7).normal(size=(3, 6))
    return (centres[labels] + 0.5 * generator.normal(size=(len(labels), 6))).astype(np.float32), labels


def trained(task: Task, first: Tree, turns: list[tuple[int, np.ndarray, np.ndarray]], size: int) -> Tree:
    """Train the same turns in a single process: turn, rows in their order, labels."""
    net, settings = sliced_net_of(task), task.algorithm
    group, matters = Group(np.arange(size), first), trees.map(np.zeros_like, first)
    for turn, rows, labels in turns:
        train_turn(
            group,
            (rows, labels),
            0,
            np.arange(len(labels)),
            settings.batch,
            settings.rate * settings.decay ** (turn // size),
            lambda parameters, batch, _, __: (
                batch_gradients(net, parameters, batch, micro_batches=settings.micro_batches).gradient
            ),
            matters,
        )
    return group.parameters
