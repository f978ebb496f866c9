"""A Ray cluster gives the same bits as this machine, and loses nothing with a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

import crowdml
from crowdml.core import BadInput
from crowdml.simulation import lanes, run, simulate
from crowdml.simulation.cluster import ray_crew as crews
from crowdml.simulation.cluster.hiring import hire
from crowdml.task import Task
from tests.simulation.cluster.conftest import Cluster
from tests.support.simulated import same_bits

pytestmark = [
    pytest.mark.live,
    pytest.mark.ray,
    pytest.mark.timeout(600),  # a cluster starts slowly on a busy machine
    pytest.mark.filterwarnings("default"),  # Ray's own warnings
]
Make = Callable[..., Task]
Crew = crews.RayCrew
STALE = "crowd.delays={ check-in = 300.0 }"
NOISE = ("privacy.mode=paper", "privacy.epsilon=50.0")


@pytest.fixture(scope="module")
def crew(cluster: Cluster) -> Iterator[Crew]:
    with hire(cluster.head) as found:
        assert isinstance(found, Crew)
        yield found


@pytest.fixture(autouse=True)
def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, however little the work."""
    monkeypatch.setattr(lanes, "CORES", 2)
    monkeypatch.setattr(lanes, "SHARED_WORK", 0.0)
    monkeypatch.setattr(run, "SHARED_SAMPLES", 0)


def test_the_same_bits_as_on_this_machine(digits: Make, crew: Crew) -> None:
    task = digits(STALE, *NOISE)
    seen: list[float] = []
    there = simulate(task, trials=3, engine="compiled", on=crew, watch=lambda share, error: seen.append(share))
    assert there.processes == 2 and seen == sorted(seen) and seen[-1] == 1.0 and len(seen) == 5
    assert same_bits(there, simulate(task, trials=3, engine="compiled"))


def test_the_cells_of_a_sweep_are_spread(digits: Make, crew: Crew) -> None:
    vary: dict[str, list[float]] = {"algorithm.batch": [10, 20], "algorithm.rate.c": [10.0, 30.0]}
    there = crowdml.compare(digits(), vary=vary, engine="compiled", on=crew)
    here = crowdml.compare(digits(), vary=vary, engine="compiled")
    assert list(there) == list(here) and len(here) == 4
    assert all(same_bits(there[label], here[label]) and there[label].processes == 2 for label in here)


def test_what_a_lost_worker_did_is_done_again(digits: Make, crew: Crew) -> None:
    before = [worker.process for worker in crew.workers]
    killed: list[int] = []

    def kill(share: float, error: float) -> None:
        if share > 0.3 and not killed:
            killed.append(crew.workers[0].process)
            os.kill(killed[0], signal.SIGKILL)

    task = digits(STALE, *NOISE)
    there = simulate(task, trials=3, engine="compiled", on=crew, watch=kill)
    assert killed and killed[0] in before and killed[0] not in [worker.process for worker in crew.workers]
    assert same_bits(there, simulate(task, trials=3, engine="compiled"))


def test_rows_that_no_store_holds_are_refused(digits: Make, crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "STORE_SHARE", 1e-6)
    with pytest.raises(BadInput, match=r"the rows take \d+ MiB, and the object store of a machine has 190 MiB"):
        simulate(digits(), trials=2, engine="compiled", on=crew)
    assert not any(worker.leased and not worker.broken for worker in crew.workers)


def test_what_only_this_process_knows_is_refused(digits: Make, crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "registered_here", lambda: True)
    with pytest.raises(BadInput, match="only this process knows"):
        simulate(digits(), trials=2, engine="compiled", on=crew)
