"""A cheating server over real HTTP: real devices, with ledgers and threads of their own, give no vector away.

The server carries out an attack in each of its first attempts and is honest afterwards, so that the round ends. Devices
that have forgotten what the first version did not check are read in every integer: the attacks do work.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from crowdml.core.errors import TermsViolated
from crowdml.protocol.sums import SumDevice, SumServer
from tests.support.cheating import CheatingServer, FewNeighbours, Plan, TwoSets, as_at_first

LIVE = Path(__file__).parents[2] / "benchmarks" / "secagg" / "live.py"


class Seen:
    """What devices have masked, and what the cheating attempts came to."""

    def __init__(self, plans: list[Plan], monkeypatch: Any) -> None:
        self.plans, self.cheats = plans, list[CheatingServer]()
        self.masked: dict[tuple[int, int], Any] = {}
        monkeypatch.setattr("crowdml.server.sum_rounds.SumServer", self.server)
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
    crowd = live["Crowd"](folder, text.replace("[stop]", "attempts = 9\n[stop]"), members, 1, 0.0, 2.0)
    try:
        crowd.work()
    finally:
        crowd.close()
    return seen, crowd


@pytest.mark.parametrize("members", [10, 40])
def test_no_vector_is_read_and_the_round_ends_without_the_cheat(
    members: int, tmp_path: Path, monkeypatch: Any
) -> None:
    plans = [TwoSets(), FewNeighbours(told=True), FewNeighbours(told=False)]
    seen, crowd = course(tmp_path, members, plans, monkeypatch)
    assert seen.victims() == [False, False, False]
    assert crowd.store.task("masked").version == 1
    # Whoever was shown what only a cheating server shows has ended, and says so; the others went on without it.
    assert crowd.errors
    assert all(isinstance(error, TermsViolated) for error in crowd.errors)
    assert len(crowd.summaries) == members - len(crowd.errors)


def test_devices_as_at_first_are_read_over_http(tmp_path: Path, monkeypatch: Any) -> None:
    as_at_first(monkeypatch)
    seen, _ = course(tmp_path, 10, [TwoSets(), FewNeighbours(told=True), FewNeighbours(told=False)], monkeypatch)
    assert seen.victims() == [True, True, True]
