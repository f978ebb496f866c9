"""Groups of real processes with noise on the first cut: the bits of a simulation with the same draws, charged once."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core import Batch, trees
from crowdml.core.ops import Tree
from crowdml.device.device_home import Home
from crowdml.device.owner_reports import ledger_report
from crowdml.device.task_memory import Memory
from crowdml.slicing.training import Group, train_turn
from crowdml.task.live_task import sliced_net_of
from tests.support.live_slices import TASK, SlicedCrowd, chance_rows

pytestmark = pytest.mark.live
MEMBERS = 6
SOUND = TASK.replace(
    '[privacy]\nmode = "none"',
    'cut-clip = 3.0\nlabel-epsilon = 1.0\n[privacy]\nmode = "sound"\nmechanism = "gaussian"\nepsilon = 40.0\n'
    "delta = 1e-6",
)
OPEN = TASK.replace('[privacy]\nmode = "none"', 'cut-clip = 3.0\ncut-noise = 0.2\n[privacy]\nmode = "none"')


class Kept:
    """What a device has kept of its rows, in the order of its rows."""

    def __init__(self, crowd: SlicedCrowd, device: int) -> None:
        home = Home(crowd.home(device))
        with closing(Memory(home.memory_path(home.member()))) as memory:
            self.columns, self.labels = memory.columns.read(np.arange(len(crowd.rows[device][1])))


def turns_of(crowd: SlicedCrowd) -> list[tuple[int, int, int]]:
    """Return turn, device and batches of every turn that was made."""
    shown, seats = crowd.groups()[0], crowd.seats()
    names = [member["member"] for member in shown["members"]]
    return [
        (event["turn"], seats[1, names.index(event["members"][0]) + 1], event["batch"])
        for event in shown["events"]
        if event["what"] == "turn"
    ]


def simulated(crowd: SlicedCrowd, first: Tree, turns: list[tuple[int, int, int]]) -> Tree:
    """Train the same turns as a simulation does, with what devices have drawn."""
    net, settings = sliced_net_of(crowd.task), crowd.task.algorithm
    group, matters = Group(np.arange(MEMBERS), first), trees.map(np.zeros_like, first)
    frozen = (*net.graph.before, net.graph.hidden[0].linear)
    for turn, device, batches in turns:
        kept = Kept(crowd, device)

        def gradient(parameters: Tree, batch: Batch, _: int, numbers: np.ndarray, kept: Kept = kept) -> Tree:
            made = net.gradients(parameters, batch, lambda sums: kept.columns[:, numbers]).gradient
            return tuple({} if at in frozen else layer for at, layer in enumerate(made))

        order = crowd.order(device, turn)[: batches * settings.batch]
        rate = settings.rate * settings.decay ** (turn // MEMBERS)
        rows = crowd.rows[device][0], kept.labels
        train_turn(group, rows, device, order, settings.batch, rate, gradient, matters)
    return group.parameters


def ledger_of(crowd: SlicedCrowd, device: int) -> dict[str, Any]:
    return ledger_report(Home(crowd.home(device)), compare=False)


def same(one: Tree, other: Tree) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(trees.leaves(one), trees.leaves(other), strict=True))


@pytest.mark.parametrize("text", [SOUND, OPEN], ids=["sound", "labels open"])
def test_a_group_learns_from_what_was_drawn_once_and_charged(tmp_path: Path, text: str) -> None:
    with SlicedCrowd(tmp_path, MEMBERS, text, chance_rows) as crowd:
        first = crowd.first()
        crowd.join()
        crowd.wait_for_end()
        turns = turns_of(crowd)
        assert len(turns) == 2 * MEMBERS, crowd.told()
        model = simulated(crowd, first, turns)
        assert all(same(model, crowd.model(device)) for device in range(MEMBERS)), crowd.told()
        assert model[0]["w"].tobytes() == first[0]["w"].tobytes()
        for device in range(MEMBERS):
            rows, report = len(crowd.rows[device][1]), ledger_of(crowd, device)
            spending, labels = report["tasks"]["pieces"], Kept(crowd, device).labels
            # Two passes, one release: it names every row once.
            assert [release["samples"] for release in report["releases"]] == [rows]
            assert spending["samples"] == {"used": rows, "used_up": rows, "most": 1} and not report["unsettled"]
            if text is SOUND:
                assert spending["guarantee"] == "sound" and 39 < spending["spent"]["epsilon"] <= 40
                assert not np.array_equal(labels, crowd.rows[device][1])
            else:
                assert spending["guarantee"] == "no formal guarantee" and spending["spent"] is None
                assert np.array_equal(labels, crowd.rows[device][1])


def test_a_killed_dominator_comes_back_with_the_same_draws_and_pays_nothing(tmp_path: Path) -> None:
    text = SOUND.replace("batch = 5", "batch = 1").replace("cut-every = 4", "cut-every = 10")
    with SlicedCrowd(tmp_path, MEMBERS, text, chance_rows) as crowd:
        first = crowd.first()
        crowd.holds = (1, 12)
        crowd.join()

        def well_under_way() -> bool:
            shown = crowd.groups()
            return bool(shown) and (shown[0]["turn"], shown[0]["stage"], shown[0]["batch"]) == (1, "running", 11)

        crowd.wait_until(well_under_way, "the second turn does not come")
        killed = crowd.roles()["dominator"]
        crowd.send(killed, signal.SIGKILL)
        crowd.processes[killed].join()
        crowd.open_gate()
        before, charged = Kept(crowd, killed), ledger_of(crowd, killed)["releases"]
        assert [release["samples"] for release in charged] == [len(crowd.rows[killed][1])]
        crowd.start(killed)
        crowd.wait_for_end()
        after = Kept(crowd, killed)
        assert before.columns.tobytes() == after.columns.tobytes() and np.array_equal(before.labels, after.labels)
        assert ledger_of(crowd, killed)["releases"] == charged
        turns = turns_of(crowd)
        assert killed in {device for turn, device, _ in turns if turn >= MEMBERS}, crowd.told()
        assert same(simulated(crowd, first, turns), crowd.model(killed)), crowd.told()
