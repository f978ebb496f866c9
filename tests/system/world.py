"""A world: one server, some devices, a network, a disk and clocks, all from one seed; and its course from end to end.

First devices join. Then comes the storm: requests are lost, late and sent twice, processes are killed and stopped,
clocks are turned. Then it is calm, and everything that was begun must come to its end: a task whose devices wait for
ever is stuck, and that is as wrong as a receipt that is lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tests.system.courses import TASKS, Course, course_of
from tests.system.device_process import DeviceProcess
from tests.system.disk import Disk
from tests.system.history import History
from tests.system.network import Network, Weather
from tests.system.replay import replay
from tests.system.seeded import make_template, seeded
from tests.system.server_process import Headers, Server
from tests.system.timeline import Process, Stuck, Timeline

CALM_S = 7200.0
"""By then everything must have come to its end."""
Some = TypeVar("Some", bound="World")
DAY_S, DECADE_S = 86_400.0, 10 * 365 * 86_400.0


@dataclasses.dataclass(frozen=True)
class Report:
    """What a course came to.

    Attributes:
        seed: Which.
        kind: Of the task.
        violations: What must not have happened.
        digest: Of everything that happened.
        virtual_s: How long it took those who were in it.
        seconds: How long it took us: time of the processor.
        receipts: Check-ins that were used.
        requests: Sent.
        reads: Numbers that were shown, each compared with all before it.
        strikes: Processes that were struck.
        lives: Starts of the server.
        state: Of the task at its end.
    """

    seed: int
    kind: str
    violations: tuple[str, ...]
    digest: str
    virtual_s: float
    seconds: float
    receipts: int
    requests: int
    reads: int
    strikes: int
    lives: int
    state: str


class World:
    """Everything there is.

    Args:
        course: What is tried.
        folder: Where all files are.
        template: Files of a server that has not done anything yet.
    """

    def __init__(self, course: Course, folder: Path, template: Path) -> None:
        self.course, self.timeline, self.history = course, Timeline(), History()
        self.chance = Random(f"world of {course.seed}")
        self._owners: dict[Path, Process | None] = {}
        self.disk = Disk(self.timeline, self._owner)
        self.server = Server(
            folder / "server", self.timeline, self.disk, self._own("disk"), stage_s=15.0, patience_s=30.0
        )
        self.server.prepare(template)
        self.network = Network(self.timeline, self.server, self._own("network"), self.history)
        self.devices = [
            DeviceProcess(
                number,
                folder / f"device-{number}",
                self.timeline,
                self.network,
                self.disk,
                self.history,
                self._own(f"device {number}"),
                course.pause_s,
                self.row,
            )
            for number in range(course.devices)
        ]
        self.strikes = self.receipts = 0
        self.state = ""
        self._stormy = False
        self.server.collapsed = lambda: self._bury(self.server, self.chance.random() < 0.5)
        for device in self.devices:
            device.collapsed = lambda device=device: self._bury(device, self.chance.random() < 0.5)  # type: ignore[misc]

    @staticmethod
    def row(chance: Random) -> tuple[list[float], str]:
        """Draw a row with its label."""
        row = [chance.gauss(0.0, 1.0) for _ in range(3)]
        return row, "walking" if row[0] > 0 else "standing"

    def run(self) -> None:
        """Go through the course; what is wrong with it is in the history."""
        self.server.start()
        self._await(lambda: self.server.serving)
        made = self._ask("POST", "/v1/tasks", {"file": self.course.file or TASKS[self.course.kind]})
        self.links = self._ask("POST", "/v1/tasks/walk/invites", {"count": len(self.devices)})["invites"]
        assert made["state"] == "open"
        for device, link in zip(self.devices, self.links, strict=True):
            device.join(link)
        self._await(lambda: not any(device.alive for device in self.devices))
        self._storm()
        try:
            self._calm()
        except Stuck as stuck:
            self.history.violate(f"stuck: {stuck}; {self._standing()}")
        self._end()

    def _storm(self) -> None:
        course = self.course
        self.network.weather = dataclasses.replace(course.weather)
        self.server.slow_disk = course.slow_disk
        self._stormy = True
        for device in self.devices:
            device.run()
        end = self.timeline.now + course.storm_s
        self._read_on(end + 60.0)
        if course.strikes:
            self._strike_on(end)
        self.timeline.run_to(end)

    def _calm(self) -> None:
        self._stormy = False
        self.network.weather, self.server.slow_disk = Weather(), 0.0
        for process in (self.server, *self.devices):
            process.commits_left = None
        self.timeline.run(self._is_over, self.timeline.now + CALM_S)

    def _is_over(self) -> bool:
        return all(device.reason or device.mistakes for device in self.devices) and self.server.serving

    def _end(self) -> None:
        if self.server.serving:
            self.state = self._ask("GET", "/v1/tasks/walk")["state"]
            for path, who in self._routes():
                self._read(path, who)
            self.timeline.run_to(self.timeline.now + 60.0)
        both: list[Server | DeviceProcess] = [self.server, *self.devices]
        for process in both:
            self.history.violations += process.mistakes
            if process.alive:
                process.kill()
        self.receipts = self.history.check_end(self.server.path, [device.folder for device in self.devices])
        replay(self.server.path, self.history)

    # What strikes

    def _strike_on(self, end: float) -> None:
        def strike() -> None:
            if self.timeline.now < end:
                names = list(self.course.strikes)
                self._strike(self.chance.choices(names, [self.course.strikes[name] for name in names])[0])
                self.timeline.after(self.chance.expovariate(1 / self.course.strike_s), strike)

        self.timeline.after(self.chance.expovariate(1 / self.course.strike_s), strike)

    def _strike(self, what: str) -> None:
        self.strikes += 1
        self.history.note(self.timeline.now, what)
        if what == "cut the network":
            self.network.weather.outage_until = self.timeline.now + self.chance.uniform(1.0, 60.0)
            return
        process: Server | DeviceProcess = self.server if "server" in what else self.chance.choice(self.devices)
        if what.endswith("clock"):
            size = self.chance.choice((DAY_S, DECADE_S, 60.0))
            process.wall_s = self.chance.uniform(-size, size)
            return
        if not process.alive:
            return
        if what.endswith("commit"):
            process.commits_left, process.dies_before = self.chance.randint(1, 6), self.chance.random() < 0.5
            if process is self.server:
                self._die_slowly()
        elif what.startswith("stop"):
            process.stopped_until = self.timeline.now + self.chance.expovariate(1 / 15.0)
        else:
            self._bury(process, "power" in what, kill=True)

    def _die_slowly(self) -> None:
        """Let the server's disk be slow before it dies, and many read meanwhile: who sees what is never stored?"""
        self.server.slow_disk = 1.0
        for at in range(20):
            self.timeline.after(at * 0.7, lambda: self._read(*self.chance.choice(self._routes())))

    def _bury(self, process: Server | DeviceProcess, power: bool, kill: bool = False) -> None:
        """Leave what a dead process leaves, and let it start again."""
        if kill:
            process.die()
        process.bury(power=power)
        if process is self.server:
            self.server.slow_disk = self.course.slow_disk if self._stormy else 0.0
            self.history.check_stored(self.server.path)
        self.timeline.after(
            self.chance.uniform(0.5, 10.0 if process is self.server else 60.0), lambda: self._revive(process)
        )

    def _revive(self, process: Server | DeviceProcess) -> None:
        if isinstance(process, Server):
            process.start()
        else:
            process.run()

    # Who looks on

    def _routes(self) -> list[tuple[str, str]]:
        """Return everything that can be read, and as whom: the operator, or a device."""
        shown = "/v1/tasks/walk"
        public = ["/v1/tasks", shown, "/metrics", "/", "/tasks/walk"]
        public += [f"{shown}/{part}" for part in ("curve", "model", "devices", "statistics")]
        own = [f"{shown}/check-out", "/v1/devices/me", "/v1/devices/me/receipts", f"{shown}/model"]
        return [(path, "operator") for path in public] + [(path, "device 0") for path in own]

    def _read_on(self, end: float) -> None:
        def read() -> None:
            if self.timeline.now < end:
                self._read(*self.chance.choice(self._routes()))
                self.timeline.after(self.chance.expovariate(1 / 5.0), read)

        read()

    def _read(self, path: str, who: str) -> None:
        nothing: Any = lambda *_: None  # noqa: E731
        self.network.ask(who, "GET", path, self._bearer(who), b"", nothing, nothing)

    def _bearer(self, who: str) -> Headers:
        if who == "operator":
            token = self._operator
        else:
            found = json.loads(next(self.devices[0].folder.rglob("member.json")).read_text())
            token = found["token"]
        return [(b"authorization", f"Bearer {token}".encode())]

    @property
    def _operator(self) -> str:
        return self.server.token

    def _ask(self, method: str, path: str, content: Any = None) -> Any:
        """Ask as the operator, before or after the storm."""
        found: list[Any] = []
        headers: Headers = [*self._bearer("operator"), (b"content-type", b"application/json")]
        body = b"" if content is None else json.dumps(content).encode()
        self.network.ask("operator", method, path, headers, body, lambda *came: found.extend(came), found.append)
        self._await(lambda: bool(found))
        assert len(found) == 3 and found[0] in (200, 201), found
        return json.loads(found[2])

    def _await(self, until: Any) -> None:
        self.timeline.run(until, self.timeline.now + 600.0)

    def _owner(self, path: Path) -> Process | None:
        if path not in self._owners:
            processes = (process for process in (self.server, *self.devices) if path.is_relative_to(process.folder))
            self._owners[path] = next(processes, None)
        return self._owners[path]

    def _own(self, what: str) -> Random:
        return Random(f"{what} of {self.course.seed}")

    def _standing(self) -> str:
        waiting = [device.name for device in self.devices if not device.reason]
        return f"{', '.join(waiting)} wait; {self.history.answers.most_common(4)}"


@contextlib.contextmanager
def made(course: Course, kind: type[Some]) -> Iterator[Some]:
    """A world of some kind, in which everything follows from the seed."""
    place = Path(tempfile.mkdtemp(prefix="crowdml-system-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108
    try:
        world = kind(course, place, _template())
        with seeded(course.seed, world.timeline, world.disk):
            yield world
            world.server.tidy_up()
    finally:
        shutil.rmtree(place)


def run_seed(seed: int, course: Course | None = None) -> Report:
    """Go through the course of a seed."""
    began = time.process_time()
    with made(course or course_of(seed), World) as world:
        try:
            world.run()
        except Exception:
            # Once a promise is broken, nothing that follows is certain; before, it is a mistake of ours.
            if not world.history.violations:
                raise
    history = world.history
    return Report(
        seed=seed,
        kind=world.course.kind,
        violations=tuple(history.violations),
        digest=history.digest,
        virtual_s=world.timeline.now,
        seconds=time.process_time() - began,
        receipts=world.receipts,
        requests=world.network.requests,
        reads=history.reads,
        strikes=world.strikes,
        lives=world.server.lives,
        state=world.state,
    )


_made: list[Any] = []


def _template() -> Path:
    """Return files of a server that has not done anything yet, made once."""
    if not _made:
        _made.append(tempfile.TemporaryDirectory(prefix="crowdml-template-"))
        make_template(Path(_made[0].name))
    return Path(_made[0].name) / "template"
