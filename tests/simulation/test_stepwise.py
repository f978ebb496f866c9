"""An algorithm that commits only now and then: the compiled loop must wait exactly when the plain loop does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Algorithm
from crowdml.algorithms.contract import ServerPart, SpeedHints
from crowdml.algorithms.schedule import OnArrival
from crowdml.core import NUMPY, Broadcast, Ops, Report, record, trees
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import run_stepwise
from crowdml.simulation.timeline.timeline import make_timeline
from crowdml.task import Task

Make = Callable[..., Task]


@record
class Summing(ServerPart):
    """The server of crowd-sgd, but for a window that sums what it is given."""

    inner: Any
    ops: Ops

    def _empty(self, server: Any) -> Any:
        return trees.map(self.ops.xp.zeros_like, server.parameters)

    def init(self, coins: Any) -> Any:
        begun = self.inner.init(coins)
        return replace(begun, window=self._empty(begun))

    def row(self) -> Any:
        return self.inner.row()

    def check_out(self, server: Any) -> Broadcast:
        told: Broadcast = self.inner.check_out(server)
        return told

    def absorb(self, server: Any, row: Any, check_in: Any, staleness: Any) -> Any:
        gathered = server.window
        server, row = self.inner.absorb(server, row, check_in, staleness)
        return replace(server, window=trees.map(lambda old, new: old + new, gathered, server.window)), row

    def commit(self, server: Any) -> Any:
        server, measurements = self.inner.commit(server)
        return replace(server, window=self._empty(server)), measurements

    def report(self, server: Any) -> Report:
        shown: Report = self.inner.report(server)
        return shown


def waiting(algorithm: Algorithm, ops: Ops, every: int) -> Algorithm:
    """crowd-sgd that gathers `every` check-ins and steps with their sum."""
    assert isinstance(algorithm.schedule, OnArrival) and algorithm.schedule.alone
    return Algorithm(
        phases=(replace(algorithm.last, server=Summing(inner=algorithm.last.server, ops=ops)),),
        schedule=replace(algorithm.schedule, buffered=every),
        hints=SpeedHints(),
    )


@pytest.mark.parametrize("every", [2, 7])
@pytest.mark.parametrize("changes", [[], ["crowd.delays={ check-in = 200.0 }"]], ids=["fresh", "slow"])
def test_compiled_and_step_by_step_wait_alike(
    digits: Make, monkeypatch: pytest.MonkeyPatch, every: int, changes: list[str]
) -> None:
    plain_build = Task.build

    def build(task: Task, ops: Ops, hyper: Any = None) -> Algorithm:
        return waiting(plain_build(task, ops, hyper), ops, every)

    monkeypatch.setattr(Task, "build", build)
    task = digits("algorithm.rate.c=3.0", *changes)
    compiled = simulate(task, trials=2)
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY)
    for trial in range(2):
        timeline = make_timeline(task, dataset, algorithm, np.random.default_rng([0, trial]))
        assert 0 < timeline.commits.sum() < len(timeline)
        end = run_stepwise(algorithm, timeline, dataset, trial_seed(0, trial))
        assert end.server.version == timeline.commits.sum()
        w = end.server.parameters[0]["w"]
        assert np.abs(compiled.parameters[0]["w"][trial] - w).max() <= 1e-5 * np.abs(w).max()
