"""Recipes that need gradients alone take a model of the user's own: it learns what the same layers of ours do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml import Task
from crowdml.algorithms.recipes import RECIPES
from crowdml.core import NUMPY
from crowdml.core.ops import ZeroCoins
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.simulation.run import make_timelines
from crowdml.simulation.stepwise import run_stepwise
from crowdml.task.task_checks import with_model
from tests.support import user_models as same

ROOT = Path(__file__).parents[2]
MLP = "model={ kind = 'mlp', layers = [30], activation = 'relu', regularisation = 0.01 }"
RATE = "rate = { kind = 'constant', c = 0.1 }"
STEPS = f"local-steps = 2, local-batch = 5, {RATE}"
ROUNDS = f"per-round = 3, local-batch = 40, {RATE}"
GRADIENTS = {
    "crowd-sgd": f"batch = 20, {RATE}",
    "local-sgd": STEPS,
    "fedbuff": STEPS,
    "fedsgd": f"per-round = 3, {RATE}",
    **dict.fromkeys(("fedavg", "fedavgm", "fedadam", "fedyogi", "ditto", "scaffold", "dp-fedavg"), ROUNDS),
    "fedprox": f"mu = 0.1, {ROUNDS}",
}
"""Settings of the recipes that take such a model."""

MORE = {"admm", "admm-sums", "consensus-newton", "ridge", "local-fit"}
"""Recipes that look inside: `test_user_models.py` has their refusals."""

BASELINES = {"central-sgd", "decentral"}
"""What would be without a crowd: no device sends anything."""


def test_every_recipe_is_here_or_looks_inside() -> None:
    assert set(GRADIENTS) | MORE | BASELINES == set(RECIPES) and not set(GRADIENTS) & MORE


def test_the_page_names_them() -> None:
    page = (ROOT / "docs" / "how-to" / "use-your-own-model.md").read_text(encoding="utf-8")
    named = page.partition("Recipes that need gradients alone")[2].partition("\n\n")[0]
    takes, _, refuses = named.partition("look inside")
    assert all(f"`{kind}`" in takes for kind in GRADIENTS)
    assert all(f"`{kind}`" in refuses for kind in MORE)


def learnt(task: Task, start: Any) -> Any:
    """Learn from given weights in the loop that takes any algorithm, and return the parameters."""
    dataset, algorithm = prepare(task)[1], task.build(NUMPY)
    server = algorithm.last.server
    held = dataclasses.replace(server.init(ZeroCoins()), parameters=start)

    class Begun(type(server)):  # type: ignore[misc]
        def init(self, coins: Any) -> Any:
            return held

    phase = dataclasses.replace(algorithm.last, server=Begun(**vars(server)))
    (timeline,) = make_timelines(task, dataset, 1, 0)
    ended = run_stepwise(dataclasses.replace(algorithm, phases=(phase,)), timeline, dataset, trial_seed(0, 0))
    return ended.report.parameters


@pytest.mark.parametrize("kind", GRADIENTS)
def test_a_flax_mlp_walks_where_ours_walks(kind: str) -> None:
    made = Task.load(
        ROOT / "examples/digits.toml",
        [f"algorithm={{ kind = '{kind}', {GRADIENTS[kind]} }}", MLP, "crowd.passes=1", "crowd.devices=6"],
    )
    start = same.first(same.ours(features=64, hidden=30, classes=10))
    ours = same.linen_arrays(learnt(made, start))
    theirs = with_model(made, crowdml.FlaxModel(module=same.linen_mlp(30, 10)))
    (found,) = learnt(theirs, (same.linen_arrays(start),))
    begun = same.linen_arrays(start)
    for name, array in ours.items():
        assert np.abs(array - begun[name]).max() > 1e-3, "nothing was learnt"
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4)
