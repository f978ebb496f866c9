"""Masked rounds over real HTTP on loopback: devices that drop out at random, and the same course without a network.

    python benchmarks/secagg/live.py [--kind fedsgd] [--devices 100] [--rounds 20] [--drop-out 0.3]

A server in a thread, every device in a thread of its own with its own folder and ledger. In each round a part of
the devices falls silent, each at a random stage. Afterwards the course is gone through again in plain NumPy: the same
survivors, the same coins, the versions that each began with, sums by addition. The model must come out equal in every
bit, so every sum was exact.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from crowdml.core import NUMPY, Batch, ZeroCoins, record, trees
from crowdml.device import Device
from crowdml.secure_aggregation.stages import STEPS
from crowdml.server.http.requests import Pace
from crowdml.server.setup.application import Access, create_app
from crowdml.server.setup.serving import Place, bind, make_server, require_identity
from crowdml.server.store import open_store
from crowdml.server.tasks.coordinator import Options
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.task.live_task import open_task
from crowdml.wire import SignedTask, message

TASK = """
crowdml = 1
name = "masked"
objective = "Tell three kinds of rows apart"
[data]
features = 20
labels = ["a", "b"]
transform = [{{ kind = "norm", order = 2, at-most = 1.0 }}]
[model]
kind = "logistic"
[algorithm]
{algorithm}
[privacy]
mode = "{mode}"
{terms}
[secure-aggregation]
enabled = true
drop-out = {allowed}
law = "{law}"
[stop]
max-versions = {rounds}
{limit}
"""
BARRIER = "devices = {devices}\nbarrier = {together}\nmax-delay = 4\nrho = 0.5"
KINDS = {
    "fedsgd": 'kind = "fedsgd"\nper-round = {together}\nmax-rows = {rows}',
    "admm": 'kind = "admm"\n' + BARRIER,
    "admm-sums": 'kind = "admm-sums"\n' + BARRIER,
    "consensus-newton": 'kind = "consensus-newton"\nper-round = {together}\nmax-rows = {rows}',
    "ridge": 'kind = "ridge"\nper-round = {together}\nmax-rows = {rows}',
}
"""Algorithms by name."""
PROMISE = 'mechanism = "gaussian"\nclip = 1.0\nepsilon = 8.0\ndelta = 1e-5\n'
ROWS = 12
SEED = trial_seed(7, 0)
FAST = Pace(per_second=1e6, burst=1_000_000)


@record
class Course:
    """What a run came to."""

    versions: int
    check_ins: int
    releases: int
    refused: int
    lost: dict[str, int]
    stale: int
    equal: bool
    seconds: float


def run(
    folder: Path,
    devices: int = 100,
    rounds: int = 20,
    drop_out: float = 0.3,
    allowed: float = 0.4,
    stage_s: float = 5.0,
    law: str = "discrete-gaussian",
    kind: str = "fedsgd",
    together: int | None = None,
    mode: str = "sound",
) -> Course:
    """Run a crowd, then check its course.

    Args:
        folder: Where server and devices keep everything.
        devices: How many.
        rounds: Versions that are made.
        drop_out: Part of the devices that falls silent in each round.
        allowed: Part that the terms allow to be lost.
        stage_s: Seconds that a stage waits for the silent.
        law: Law of the noise.
        kind: The algorithm.
        together: Devices behind a version; not given: all.
        mode: "sound", or "none".
    """
    text = task_text(kind, devices, together or devices, rounds, allowed, law, mode)
    crowd = Crowd(folder, text, devices, rounds, drop_out, stage_s)
    began = time.monotonic()
    try:
        crowd.work()
        seconds = time.monotonic() - began
        equal, versions, check_ins = crowd.check()
    finally:
        crowd.close()
    if crowd.errors:
        raise crowd.errors[0]
    return Course(
        versions=versions,
        check_ins=check_ins,
        releases=sum(summary.releases for summary in crowd.summaries),
        refused=sum(summary.refused for summary in crowd.summaries),
        lost={stage: list(crowd.fell.values()).count(stage) for stage in STEPS},
        stale=crowd.stale,
        equal=equal,
        seconds=seconds,
    )


def task_text(kind: str, devices: int, together: int, rounds: int, allowed: float, law: str, mode: str) -> str:
    """Write the task file."""
    most = 2 * rounds + 20
    whole = kind in ("admm", "admm-sums")
    promise = PROMISE + ('unit = "device"' if whole else f"max-uses = {most}")
    return TASK.format(
        algorithm=KINDS[kind].format(devices=devices, together=together, rows=ROWS),
        mode=mode,
        terms=promise if mode == "sound" else "",
        limit=f"max-releases = {most}" if whole else "",
        allowed=allowed,
        rounds=rounds,
        law=law,
    )


class Crowd:
    """A server and its devices."""

    def __init__(self, folder: Path, text: str, devices: int, rounds: int, drop_out: float, stage_s: float) -> None:
        """Start the server and make the task."""
        self.folder, self.devices, self.rounds = folder, devices, rounds
        (folder / "server").mkdir(parents=True)
        self.store = open_store(f"sqlite:///{folder / 'server' / 'crowdml.sqlite'}")
        require_identity(self.store, folder / "server")
        token = next((folder / "server").glob("*.token")).read_text().strip()
        options = Options(stage_s=stage_s, coins=ZeroCoins, patience_s=stage_s)
        app = create_app(self.store, options, Access(device_pace=FAST, stranger_pace=FAST, reader_pace=FAST))
        place = Place(port=0)
        listening = bind(place)
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.server = make_server(app, place)
        self._thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([listening])))
        self._thread.start()
        self.links = self._open(token, text)
        self._stages = self._stages_of_loss(drop_out)
        self._choosing = threading.Lock()
        self.silence: dict[tuple[int, int], int] = {}
        self.stale = 0
        self.fell: dict[tuple[int, int], str] = {}
        self.made: dict[int, int] = {}
        self.used: dict[tuple[int, int], int] = {}
        self.summaries: list[Any] = []
        self.errors: list[BaseException] = []

    def work(self) -> None:
        """Let every device take part until the task has ended."""
        threads = [threading.Thread(target=self._device, args=(at,)) for at in range(self.devices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Stop the server."""
        self.server.should_exit = True
        self._thread.join()

    def check(self) -> tuple[bool, int, int]:
        """Go through the course again without network and masks; tell whether the model is the same, bit by bit."""
        stored = self.store.task("masked")
        assert stored is not None
        live = open_task(SignedTask(text=stored.signed_text, signature=stored.signature, key=stored.key).open())
        assert live.masked is not None
        members: dict[int, list[tuple[int, int]]] = {version: [] for version in range(stored.version)}
        for device in self.store.devices(stored.id):
            for receipt in self.store.receipts(device.id, 0, 10_000):
                members[receipt.version - 1].append((device.slot, receipt.started))
        server, broadcasts, states = live.server.last.server.init(ZeroCoins()), list[Any](), dict[int, Any]()
        for version, joined in members.items():
            body = live.server_messages.check_out.encode(
                message(version, live.server.at(version).server.check_out(server))
            )
            broadcasts.append(live.messages.check_out.decode(body)["content"])
            found = [
                self._vector(live, broadcasts[started], version, slot, started, states) for slot, started in joined
            ]
            check_in = live.form(version).check_in(np.sum(found, axis=0), len(joined))
            part = live.server.at(version).server
            staleness = np.array([version - started for _, started in sorted(joined)], np.int32)
            each = staleness if live.server.schedule.waits else np.int32(0)
            server, _ = part.absorb(server, part.row(), check_in, each)
            server, _ = part.commit(server)
            self.stale += int(staleness.sum())
        final = live.state.decode(stored.server_state)
        shown, again = (trees.leaves(live.server.last.server.report(state).parameters) for state in (final, server))
        equal = all(np.array_equal(one, other) for one, other in zip(shown, again, strict=True))
        return equal, stored.version, stored.check_ins

    def _vector(self, live: Any, broadcast: Any, version: int, slot: int, started: int, states: dict[int, Any]) -> Any:
        """Work out again what a device has said: its integers and its noise."""
        rows, labels = _rows(slot)
        batch = Batch(rows=live.transform(rows), targets=labels.astype(np.int32), mask=np.ones(ROWS, np.float32))
        coins, phase = HashCoins(SEED, np.uint32(self.used[version, slot]), NUMPY), live.algorithm.at(started)
        state = states.get(slot, phase.begin())
        release, work = phase.device.step(broadcast, state.work, batch, coins)
        check_in, states[slot] = phase.finish(broadcast, release, replace(state, work=work), coins)
        integers, noise = live.form(started).vector(release, check_in)
        return integers if noise is None else integers + noise

    def _device(self, at: int) -> None:
        home = self.folder / f"device-{at}"
        try:
            member = Device.join(
                self.links[at], home, accept=lambda offer: True, accept_no_guarantee=lambda offer: True
            )
            rows, labels = _rows(member.slot)
            np.savez(home / "rows.npz", rows=rows, labels=labels)
            with Device(
                home,
                patience_s=300,
                coins=lambda: self._coins(member.slot),
                draw=lambda count: np.arange(count, dtype=np.uint64),
                silent=lambda version, stage: self._is_silent(member.slot, version, stage),
            ) as device:
                self.summaries.append(device.run(home / "rows.npz"))
        except BaseException as error:
            self.errors.append(error)

    def _coins(self, slot: int) -> HashCoins:
        self.made[slot] = self.made.get(slot, slot * 10_000) + 1
        return HashCoins(SEED, np.uint32(self.made[slot]), NUMPY)

    def _is_silent(self, slot: int, version: int, stage: str) -> bool:
        """Note which coins a device uses for a version, and tell whether it falls silent.

        Whoever reaches a chosen stage first falls silent there: a device chosen beforehand may be in no cohort.
        """
        at = STEPS.index(stage.split("-")[0])
        self.used[version, slot] = self.made[slot]
        with self._choosing:
            if (version, slot) not in self.silence and at in self._stages.get(version, ()):
                self._stages[version].remove(at)
                self.silence[version, slot] = at
                self.fell[version, slot] = STEPS[at]
        return at >= self.silence.get((version, slot), len(STEPS))

    def _stages_of_loss(self, drop_out: float) -> dict[int, list[int]]:
        """Choose for every round at which stages devices fall silent, one device for each."""
        generator = np.random.default_rng(11)
        lost = round(drop_out * self.devices)
        return {version: generator.integers(0, len(STEPS), lost).tolist() for version in range(self.rounds)}

    def _open(self, token: str, text: str) -> list[str]:
        with httpx.Client(base_url=self.address, headers={"authorization": f"Bearer {token}"}, timeout=60) as session:
            made = session.post("/v1/tasks", json={"file": text})
            made.raise_for_status()
            invites: list[str] = session.post("/v1/tasks/masked/invites", json={"count": self.devices}).json()[
                "invites"
            ]
            return invites


def _rows(slot: int) -> tuple[Any, Any]:
    generator = np.random.default_rng([3, slot])
    labels = generator.integers(0, 2, ROWS)
    return (generator.random((ROWS, 20)) + np.eye(2, 20)[labels]).astype(np.float32), labels


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--drop-out", type=float, default=0.3)
    parser.add_argument("--kind", default="fedsgd", choices=KINDS)
    parser.add_argument("--together", type=int, help="devices behind a version")
    parser.add_argument("--mode", default="sound", choices=("sound", "none"))
    parser.add_argument("--law", default="discrete-gaussian")
    parser.add_argument("--stage-s", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        found = run(
            Path(folder),
            options.devices,
            options.rounds,
            options.drop_out,
            stage_s=options.stage_s,
            law=options.law,
            kind=options.kind,
            together=options.together,
            mode=options.mode,
        )
        print(
            f"{options.kind}, {options.devices} devices, {found.versions} masked rounds, {options.drop_out:.0%} silent "
            f"in each (by stage {found.lost}): {found.check_ins} of {found.releases} releases used, "
            f"{found.stale} versions of staleness in all, model "
            f"{'equal in every bit' if found.equal else 'DIFFERENT'} to the course without masks; "
            f"{found.seconds:.0f} s, {time.process_time() - began:.0f} s of CPU in all"
        )
        assert found.equal


if __name__ == "__main__":
    main()
