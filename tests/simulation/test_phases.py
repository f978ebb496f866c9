"""Algorithms of several phases: each runs for its versions, compiled and step by step alike."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from crowdml.algorithms import Algorithm, Phase
from crowdml.algorithms.rates import Rate
from crowdml.algorithms.recipe import Parts
from crowdml.algorithms.recipes import RECIPES
from crowdml.algorithms.recipes.federated import fedsgd
from crowdml.core import trees
from crowdml.privacy import Releases
from crowdml.simulation import simulate
from crowdml.simulation.engine.chunks import cut_chunks
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.task import Task
from tests.support.simulated import course

Make = Callable[..., Task]
ROUNDS = ("algorithm={ kind = 'fedsgd', per-round = 4, rate = { kind = 'constant', c = 1.0 } }", "crowd.devices=8")
EARLIER = (2, 3)


def three_phases(parts: Parts) -> Algorithm:
    """fedsgd whose first two versions step at a tenth of the rate, and the next three backwards."""
    built = fedsgd.build(parts)

    def scaled(factor: float, versions: int) -> Phase:
        rate = built.last.server.optimiser  # type: ignore[attr-defined]

        def step(memory, update, count):  # type: ignore[no-untyped-def]
            return rate.step(memory, trees.map(lambda leaf: leaf * np.float32(factor), update), count)

        server = replace(built.last.server, optimiser=Rate(init=rate.init, step=step))  # type: ignore[type-var]
        return replace(built.last, server=server, versions=versions)

    return replace(built, phases=(scaled(0.1, EARLIER[0]), scaled(-1.0, EARLIER[1]), built.last))


@pytest.fixture
def in_three_phases(digits: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Tasks whose fedsgd has three phases."""

    def releases(settings: Any) -> Releases:
        return replace(fedsgd.FEDSGD.releases(settings), phases=3)

    recipe = replace(fedsgd.FEDSGD, build=three_phases, releases=releases)
    monkeypatch.setitem(RECIPES._entries, "fedsgd", recipe)
    return lambda *changes: digits(*ROUNDS, *changes)


@pytest.mark.parametrize("trials", [1, 3])
def test_compiled_and_step_by_step_go_through_the_same_phases(in_three_phases: Make, trials: int) -> None:
    task = in_three_phases("crowd.passes=6")
    compiled, stepwise = simulate(task, trials=trials), simulate_stepwise(task, trials=trials)
    for ours, plain in zip(jax.tree.leaves(compiled.parameters), jax.tree.leaves(stepwise.parameters), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5 * np.abs(plain).max())
    # Two points of the curve are the ends of the first two phases.
    assert len(compiled.samples) == 2 + 5
    assert np.abs(compiled.parameters[0]["w"]).max() > 0.01


def test_every_phase_counts(in_three_phases: Make, digits: Make) -> None:
    """Without its earlier phases the model is another one."""
    phased, plain = simulate(in_three_phases("crowd.passes=6")), course(in_three_phases("crowd.passes=6"))
    assert int(plain.commits.sum()) > sum(EARLIER)
    assert phased.measured["test_error"][1, 0] > 0.8, "the second phase runs away from the minimum"
    assert phased.test_error < 0.5


def test_a_run_may_end_within_an_earlier_phase(in_three_phases: Make) -> None:
    task = in_three_phases("stop.max-versions=3")
    compiled, stepwise = simulate(task), simulate_stepwise(task)
    np.testing.assert_allclose(compiled.parameters[0]["w"], stepwise.parameters[0]["w"], rtol=1e-5, atol=1e-7)


def test_what_a_phase_makes_is_a_chunk_by_itself(in_three_phases: Make) -> None:
    timeline = course(in_three_phases("crowd.passes=6"))
    chunks = cut_chunks([timeline, timeline], 5, EARLIER)
    assert chunks.ends[:2].tolist() == [[2 * 4] * 2, [5 * 4] * 2]
    assert [chunks.phase(number) for number in range(len(chunks))] == [0, 1, 2, 2, 2, 2, 2]
    assert (np.diff(chunks.ends, axis=0) >= 0).all() and chunks.ends[-1, 0] == len(timeline)
