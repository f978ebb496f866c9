"""Live = simulated: the same timeline and coins, once through real HTTP, server, store and ledgers, once step by step.

A check-out happens when the timeline says so, a check-in arrives in the timeline's order, and coins are those of the
simulation. In mode none the models agree to 1e-5; in sound mode integers are exact, so the models agree as well.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from safetensors.numpy import load as read_tensors

from crowdml.core import NUMPY, Batch, trees
from crowdml.data import Dataset
from crowdml.device import Device
from crowdml.device.calls import CheckOut
from crowdml.device.joining import join
from crowdml.device.rows.batches import Gathered
from crowdml.models import flatten
from crowdml.server.http.bounded_connection import BoundedProtocol
from crowdml.server.http.requests import Pace
from crowdml.server.setup.application import Access, create_app
from crowdml.server.setup.serving import TOKEN_FILE, Place, bind, require_identity
from crowdml.server.store import open_store
from crowdml.server.tasks.coordinator import Options
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import numbers, prepare
from crowdml.simulation.stepwise import run_stepwise
from crowdml.simulation.timeline.timeline import Timeline, make_timeline
from crowdml.task import Task, parse
from crowdml.task.averaging_terms import public_rows_needed
from crowdml.wire.signed_task import write_arrays

TASK = """
crowdml = 1
name = "parity"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{{ kind = "scale", by = 0.0625 }}, {{ kind = "norm", order = 2, at-most = 1.0 }}]
[model]
kind = "softmax"
regularisation = 0.001
[algorithm]
{algorithm}
[privacy]
{privacy}
[crowd]
devices = 8
{crowd}
"""
SLOW = "passes = 4\ndelays = { request = 100.0, check-out = 200.0, check-in = 300.0 }"
NONE, SOUND = (
    'mode = "none"',
    'mechanism = "gaussian"\nclip = 1.0\nepsilon = 20.0\ndelta = 1e-5\nmax-uses = 40\nstatistics-epsilon = 1.0',
)
STEPS = SOUND.rsplit("\n", 1)[0] + '\nnoise-at = "steps"'
CASES = {
    "crowd-sgd": ('kind = "crowd-sgd"\nbatch = 40', NONE, SLOW),
    "crowd-sgd, sound": ('kind = "crowd-sgd"\nbatch = 40', SOUND, SLOW),
    "local-sgd": (
        'kind = "local-sgd"\nlocal-steps = 4\nlocal-batch = 10\nserver-batch = 3\nstale = "weight"',
        NONE,
        SLOW,
    ),
    "fedavg": ('kind = "fedavg"\nper-round = 5\nlocal-batch = 20', NONE, "passes = 16"),
    "fedadam": ('kind = "fedadam"\nper-round = 5\nlocal-batch = 20', NONE, "passes = 16"),
    "fedprox, sound": (
        'kind = "fedprox"\nper-round = 5\nlocal-batch = 20\nmu = 0.1',
        SOUND.rsplit("\n", 1)[0],
        "passes = 16",
    ),
    "fedavg, sound steps": (
        'kind = "fedavg"\nper-round = 5\nlocal-batch = 20\nrate = { kind = "momentum", c = 1.0 }',
        STEPS,
        "passes = 16",
    ),
    "fedavg, sound steps, learned": (
        'kind = "fedavg"\nper-round = 5\nlocal-batch = 20\naveraging = "learned"\nlearned = { steps = 10 }',
        STEPS,
        "passes = 16",
    ),
    "fedavg of convolutions, sound steps, learned": (
        'kind = "fedavg"\nper-round = 5\nlocal-batch = 20\naveraging = "learned"\nlearned = { steps = 10 }',
        STEPS + "\nowner-range = [5.0, 40.0]",
        "passes = 16",
    ),
    "local-sgd, sound steps": (
        'kind = "local-sgd"\nlocal-steps = 4\nlocal-batch = 10\nserver-batch = 3\nstale = "weight"',
        STEPS,
        SLOW,
    ),
    "fedbuff": ('kind = "fedbuff"\nlocal-steps = 4\nlocal-batch = 10\nbuffer-size = 3', NONE, SLOW),
    "scaffold": ('kind = "scaffold"\nper-round = 5\nlocal-batch = 20\ndevices = 8', NONE, "passes = 16"),
    "scaffold, sound": (
        'kind = "scaffold"\nper-round = 5\nlocal-batch = 20\ndevices = 8',
        SOUND.rsplit("\n", 1)[0] + "\n[stop]\nmax-releases = 40",
        "passes = 16",
    ),
    "ditto": ('kind = "ditto"\nper-round = 5\nlocal-batch = 20', NONE, "passes = 16"),
    "dp-fedavg, sound": (
        'kind = "dp-fedavg"\nper-round = 5\nlocal-batch = 20\nfirst-clip = 0.5\nclip-rate = 1.0\nbit-share = 0.2',
        'mechanism = "gaussian"\nepsilon = 20.0\ndelta = 1e-5\nmax-uses = 40',
        "passes = 16",
    ),
    "fedavg, learned": (
        'kind = "fedavg"\nper-round = 5\nlocal-batch = 20\naveraging = "learned"\nlearned = { steps = 10 }',
        NONE,
        "passes = 16",
    ),
    "fedavg, learned without constraint": (
        'kind = "fedavg"\nper-round = 5\nlocal-batch = 20\naveraging = "learned"\n'
        'learned = { variant = "unconstrained", steps = 10, gate = false, cap = 1000.0 }',
        NONE,
        "passes = 16",
    ),
    "fedsgd, root set": (
        'kind = "fedsgd"\nper-round = 5\n[robust]\nrule = { kind = "root-cosine" }',
        NONE,
        "passes = 16",
    ),
    "fedsgd, sound": ('kind = "fedsgd"\nper-round = 5', SOUND.rsplit("\n", 1)[0], "passes = 16"),
}
WITH_PUBLIC_ROWS = (
    "fedavg of convolutions, sound steps, learned",
    "fedavg, sound steps, learned",
    "fedavg, learned",
    "fedavg, learned without constraint",
    "fedsgd, root set",
)
CONVOLUTIONS = """kind = "layers"
shape = [8, 8, 1]
layers = [{ kind = "convolution", size = 4, kernel = 3 }, { kind = "relu" }, { kind = "flatten" },
          { kind = "dense", size = 10 }]
"""
SEED = trial_seed(7, 0)
WANTED = 100


class Injected:
    """Coins of the check-in that is being made."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> HashCoins:
        return HashCoins(SEED, self.number + 1, NUMPY)


@contextmanager
def serving(folder: Path, choose: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Run the real application on a real socket, in a thread; give its address and the operator's headers."""
    store = open_store(f"sqlite:///{folder}/server.sqlite")
    require_identity(store, folder)
    options = Options(coins=lambda: HashCoins(SEED, 0, NUMPY), choose=choose)
    app = create_app(store, options, Access(device_pace=Pace(per_second=1e6, burst=1 << 20)))
    listening = bind(Place(port=0))
    server = uvicorn.Server(uvicorn.Config(app, http=BoundedProtocol, lifespan="on", log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        token = (folder / TOKEN_FILE).read_text().strip()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", {"authorization": f"Bearer {token}"}
    finally:
        server.should_exit = True
        thread.join()


def reads(timeline: Timeline) -> list[int]:
    """Version that each check-in started from."""
    before = np.concatenate([[0], np.cumsum(timeline.commits)[:-1]])
    return [int(version) for version in before - timeline.staleness]


@pytest.mark.parametrize("name", CASES)
def test_a_live_run_equals_the_simulation(name: str, tmp_path: Path) -> None:
    algorithm_text, privacy, crowd = CASES[name]
    file = TASK.format(algorithm=algorithm_text, privacy=privacy, crowd=crowd)
    if name in WITH_PUBLIC_ROWS:
        file = file.replace("[model]", "public = 200\n[model]", 1)
    if "convolutions" in name:
        file = file.replace('kind = "softmax"\n', CONVOLUTIONS, 1)
    task = parse(file)
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY, numbers(task))
    timeline = make_timeline(task, dataset, algorithm, np.random.default_rng(3))
    ends = np.flatnonzero(timeline.commits) + 1
    timeline = _cut(timeline, int(ends[ends >= WANTED][0]))
    expected = flatten(run_stepwise(algorithm, timeline, dataset, SEED).report.parameters)

    read = reads(timeline)
    invited = {
        version: [int(d) for d, begun in zip(timeline.device, read, strict=True) if begun == version]
        for version in read
    }
    coins = Injected()
    with ExitStack() as stack:
        address, operator = stack.enter_context(serving(tmp_path, lambda version, slots: invited.get(version, [])))
        session = stack.enter_context(httpx.Client(base_url=address, headers=operator))
        session.post("/v1/tasks", json={"file": file} | _public(task, dataset)).raise_for_status()
        links = session.post("/v1/tasks/parity/invites", json={"count": task.crowd.devices}).json()["invites"]
        devices = []
        for slot, link in enumerate(links):
            home = tmp_path / f"device-{slot}"
            join(link, home, accept=lambda _: True, accept_no_guarantee=lambda _: True)
            devices.append(stack.enter_context(Device(home, coins=coins)))
        _run(devices, timeline, read, dataset, coins)
        shown = session.get("/v1/tasks/parity").json()
        arrays = read_tensors(session.get("/v1/tasks/parity/model").content)
    assert shown["check_ins"] == len(timeline) >= WANTED
    assert shown["version"] == int(timeline.commits.sum())
    found = flatten(trees.map_paths(lambda path, _leaf: arrays[path], task.model_for(NUMPY).zeros()))
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert np.abs(expected).max() > 0.1


def _public(task: Task, dataset: Dataset) -> dict[str, Any]:
    """What the operator sends along, where the server learns from public rows."""
    if not public_rows_needed(task):
        return {}
    assert dataset.public_rows is not None and dataset.public_targets is not None
    return {"public": write_arrays([{"rows": dataset.public_rows, "labels": dataset.public_targets}])[0]}


def _run(devices: list[Device], timeline: Timeline, read: list[int], dataset: Any, coins: Injected) -> None:
    """Let every device check out and check in when the timeline says so."""
    waiting: dict[int, CheckOut] = {}
    version = 0
    for number in range(len(timeline)):
        for later in range(number, len(timeline)):
            if read[later] == version and later not in waiting:
                waiting[later] = devices[int(timeline.device[later])]._check_out()
        coins.number = number
        device = devices[int(timeline.device[number])]
        chosen, count = timeline.rows[number], int(timeline.counts[number])
        mask = (np.arange(len(chosen)) < count).astype(np.float32)
        batch = Batch(rows=dataset.train_rows[chosen], targets=dataset.train_targets[chosen], mask=mask)
        checked_out = waiting.pop(number)
        assert checked_out.version == read[number]
        outcome = device._contribute(checked_out, Gathered(batch=batch, samples=np.unique(chosen[:count])))
        assert outcome.status == "applied"
        version += bool(timeline.commits[number])


def _cut(timeline: Timeline, end: int) -> Timeline:
    return replace(
        timeline,
        device=timeline.device[:end],
        rows=timeline.rows[:end],
        counts=timeline.counts[:end],
        staleness=timeline.staleness[:end],
        commits=timeline.commits[:end],
        samples=timeline.samples[:end],
    )
