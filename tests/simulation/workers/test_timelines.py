"""Timelines that workers make are those that this process makes, and what goes wrong is told as one process would."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.simulation import run, simulate
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import Timeline
from crowdml.simulation.workers import pool, timelines
from crowdml.task import Task
from tests.support.simulated import same_bits

Make = Callable[..., Task]
FEDAVG = "algorithm={ kind = 'fedavg', per-round = 4, local-batch = 8, rate = { kind = 'constant', c = 0.3 } }"


@pytest.fixture(scope="module")
def workers() -> Iterator[None]:
    """Two workers that have answered, so that this process leaves the work to them."""
    for worker in (leased := pool.lease(2)):
        worker.ask({"do": "rows", "layout": [], "tables": {"tuple": []}})
        worker.leased = False
    yield
    assert len(leased) == 2
    pool.close()


@pytest.fixture
def shared(workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDML_WORKERS", "2")
    monkeypatch.setattr(run, "in_processes", lambda *_: 2)
    monkeypatch.setattr(run, "SHARED_SAMPLES", 0)


def alike(one: Timeline, other: Timeline) -> bool:
    parts = [(one, other), (one.sent, other.sent)]
    return all(
        np.array_equal(value, getattr(second, name))
        for first, second in parts
        for name, value in vars(first).items()
        if name != "sent"
    )


@pytest.mark.parametrize(
    "changes",
    [
        ("crowd.delays={ check-in = 30.0 }", "crowd.drop-out=0.2"),
        (FEDAVG, "crowd.attack={ kind = 'sign', share = 0.2 }"),
        ("data.split={ train = 1000, test = 300 }",),
    ],
    ids=["delays and losses", "some lie", "a split for every trial"],
)
def test_the_same_whoever_makes_them(digits: Make, shared: None, changes: tuple[str, ...]) -> None:
    task = digits(*changes)
    dataset = prepare(task)[1]
    here = run.make_timelines(task, dataset, 5, 7)
    there = run.make_timelines(task, dataset, 5, 7, lanes=2)
    assert len(there) == 5 and all(map(alike, here, there))
    assert not alike(there[0], there[1])
    assert [type(line.releases) for line in there] == [int] * 5


def test_workers_that_are_ready_do_the_work(digits: Make, shared: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(*arguments: object) -> Timeline:
        raise AssertionError("made in this process")

    monkeypatch.setattr(run, "trial_timeline", here)
    task = digits()
    assert len(run.make_timelines(task, prepare(task)[1], 4, 0, lanes=2)) == 4


def test_a_run_is_the_same_with_and_without(digits: Make, shared: None, monkeypatch: pytest.MonkeyPatch) -> None:
    task = digits("crowd.delays={ check-in = 30.0 }")
    monkeypatch.setattr(run, "count_lanes", lambda *_: 2)
    apart = simulate(task, trials=3, engine="compiled")
    monkeypatch.setattr(run, "SHARED_SAMPLES", 1 << 60)
    assert same_bits(apart, simulate(task, trials=3, engine="compiled"))


def test_the_first_trial_that_fails_is_told(digits: Make, shared: None) -> None:
    task = digits("crowd.partition={ kind = 'dirichlet', alpha = 0.001 }")
    dataset = prepare(task)[1]
    with pytest.raises(BadInput) as here:
        run.make_timelines(task, dataset, 4, 0)
    with pytest.raises(BadInput) as there:
        run.make_timelines(task, dataset, 4, 0, lanes=2)
    assert str(there.value) == str(here.value) and "without a single row" in str(here.value)


def test_a_timeline_comes_back_as_it_was(digits: Make) -> None:
    task = digits()
    line = run.make_timelines(task, prepare(task)[1], 1, 0)[0]
    words, arrays = timelines.pack(line)
    assert len(arrays["counts"]) == 1, "all batches are as large: one number says it"
    assert alike(timelines.unpack(words, arrays), line)


def test_workers_that_were_ended_are_named(digits: Make, shared: None, monkeypatch: pytest.MonkeyPatch) -> None:
    task, lease = digits(), pool.lease

    def kill_leased(count: int) -> list[pool.Worker]:
        found = lease(count)
        for worker in found:
            os.kill(worker.process.pid, signal.SIGKILL)
        return found

    monkeypatch.setattr(pool, "lease", kill_leased)
    with pytest.raises(BadInput, match=r"a worker process has ended by itself \(signal 9\)"):
        run.make_timelines(task, prepare(task)[1], 3, 0, lanes=2)
    assert not any(worker.leased for worker in pool._workers)
