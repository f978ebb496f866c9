"""A cheating server over real HTTP: real devices, with ledgers and threads of their own, give no vector away.

The server carries out an attack in each of its first attempts, then the operator stops the task. Devices that have
forgotten what the first version did not check are read in every integer: the attacks do work.
"""

from __future__ import annotations

import runpy
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from crowdml.core.errors import TermsViolated
from crowdml.secure_aggregation import SumDevice, SumServer
from tests.support.cheating import CheatingServer, FewNeighbours, Plan, TwoSets, as_at_first

LIVE = Path(__file__).parents[2] / "benchmarks" / "secagg" / "live.py"


class Seen:
    """What devices have masked, and what the cheating attempts came to."""

    def __init__(self, plans: list[Plan], monkeypatch: Any) -> None:
        self.plans, self.cheats = plans, list[CheatingServer]()
        self.masked: dict[tuple[int, int], Any] = {}
        self.over = threading.Event()
        monkeypatch.setattr("crowdml.server.tasks.secure_rounds.SumServer", self.server)
        honest, seen = SumDevice.mask, self.masked

        def mask(device: SumDevice, mail: Any, vector: Any, noise: Any = None) -> bytes:
            seen[device._attempt, device._slot] = vector if noise is None else vector + noise
            return honest(device, mail, vector, noise)

        monkeypatch.setattr(SumDevice, "mask", mask)

    def server(self, *given: Any) -> SumServer:
        if len(self.cheats) == len(self.plans):
            return SumServer(*given)
        self.cheats.append(CheatingServer(*given))
        self.cheats[-1].plan = self.plans[len(self.cheats) - 1]
        return self.cheats[-1]

    def victims(self) -> list[bool]:
        """Tell for each attack whether it has read its victim's vector."""
        found = []
        for cheat in self.cheats:
            slot = cheat.roster.slots[cheat.plan.target[0]]
            right = self.masked.get((cheat.attempt, slot))
            found.append(cheat.recovered is not None and bool((cheat.recovered == right).all()))
        return found


def course(folder: Path, members: int, plans: list[Plan], monkeypatch: Any) -> tuple[Seen, Any]:
    live = runpy.run_path(str(LIVE))
    seen = Seen(plans, monkeypatch)
    text = live["task_text"]("fedsgd", members, members, 1, 0.3, "discrete-gaussian", "sound")
    # Who is late in a stage is no member: forty devices of one process need longer on a busy machine.
    crowd = live["Crowd"](folder, text, members, 1, 0.0, 2.0 if members < 40 else 4.0)
    token = next((folder / "server").glob("*.token")).read_text().strip()
    watching = threading.Thread(target=stop_after, args=(seen, crowd.address, token))
    watching.start()
    try:
        crowd.work()
    finally:
        crowd.close()
        watching.join()
    return seen, crowd


def stop_after(seen: Seen, address: str, token: str) -> None:
    """Stop the task when the last attack is over: devices that were shown too much would wait for ever."""
    while len(seen.cheats) < len(seen.plans) or seen.cheats[-1].stage != "done":
        seen.over.wait(0.05)
    httpx.patch(f"{address}/v1/tasks/masked", headers={"authorization": f"Bearer {token}"}, json={"state": "stopped"})


@pytest.mark.parametrize(
    ("members", "plans"),
    [
        (10, [TwoSets(), FewNeighbours(told=False)]),
        (10, [FewNeighbours(told=True)]),
        (40, [TwoSets(), FewNeighbours(told=False)]),
        (40, [FewNeighbours(told=True)]),
    ],
    ids=["10, two sets, then mail withheld", "10, few named", "40, two sets, then mail withheld", "40, few named"],
)
def test_no_vector_is_read_over_http(members: int, plans: list[Plan], tmp_path: Path, monkeypatch: Any) -> None:
    seen, crowd = course(tmp_path, members, plans, monkeypatch)
    assert seen.victims() == [False] * len(plans)
    # Devices that were shown what only a cheating server shows have ended, and say why.
    assert crowd.errors
    assert all(isinstance(error, TermsViolated) for error in crowd.errors)
    assert len(crowd.summaries) == members - len(crowd.errors)


@pytest.mark.parametrize(
    "plans", [[TwoSets(), FewNeighbours(told=False)], [FewNeighbours(told=True)]], ids=["two sets, then mail", "named"]
)
def test_devices_as_at_first_are_read_over_http(plans: list[Plan], tmp_path: Path, monkeypatch: Any) -> None:
    as_at_first(monkeypatch)
    seen, _ = course(tmp_path, 10, plans, monkeypatch)
    assert seen.victims() == [True] * len(plans)
