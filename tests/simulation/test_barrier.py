"""An algorithm that commits only now and then: the compiled loop must wait exactly when the plain loop does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Algorithm, Task
from crowdml.core import NUMPY, Ops, trees
from crowdml.simulation import simulate
from crowdml.simulation.coins import trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import run_stepwise
from crowdml.simulation.timeline import make_timeline

Make = Callable[..., Task]


def waiting(algorithm: Algorithm, ops: Ops, every: int) -> Algorithm:
    """crowd-sgd that gathers `every` check-ins and steps with their sum."""
    zeros = trees.map(ops.xp.zeros_like, algorithm.parameters(algorithm.init(_Nothing(ops))))  # type: ignore[arg-type]

    def absorb(server: Any, row: Any, check_in: Any, stale: Any) -> Any:
        gathered = server.window
        server, row = algorithm.absorb(server, row, check_in, stale)
        return replace(server, window=trees.map(lambda old, new: old + new, gathered, server.window)), row

    def commit(server: Any) -> Any:
        server, measurements = algorithm.commit(server)
        return replace(server, window=zeros), measurements

    return replace(
        algorithm,
        always_ready=False,
        init=lambda coins: replace(algorithm.init(coins), window=zeros),
        absorb=absorb,
        ready=lambda counts: counts.received >= every,
        commit=commit,
    )


class _Nothing:
    def __init__(self, ops: Ops) -> None:
        self.uniform = lambda stage, shape: ops.xp.zeros(shape)


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
