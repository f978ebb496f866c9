"""Every registered recipe: compiled = step by step through bytes = plain NumPy.

A recipe is tested by being registered: its defaults must give a working task, and `references/` must hold its plain
formula. Tolerance 1e-5 relative: compiled arithmetic is ordered differently.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import RECIPES, Task, parse
from crowdml.core import NUMPY, trees
from crowdml.simulation import simulate
from crowdml.simulation.coins import trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import run_stepwise
from crowdml.simulation.timeline import make_timeline

BASE = """
crowdml = 1
name = "parity"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{{ kind = "norm", order = 1, at-most = 1.0 }}]
[model]
kind = "softmax"
regularisation = 0.001
[algorithm]
kind = "{kind}"
[privacy]
mode = "none"
[crowd]
devices = 12
passes = 2
curve = 4
"""

SETTINGS = {
    "none": [],
    "none, slow": ["crowd.delays={ request = 100.0, check-out = 200.0, check-in = 300.0 }"],
    "none, slow, weighted": ["crowd.delays={ law = 'fixed', check-in = 250.0 }", "algorithm.stale=weight"],
    "none, uneven": ["crowd.partition={ kind = 'unbalanced', sigma = 0.7 }", "crowd.drop-out=0.2"],
    "paper": ["privacy.mode=paper", "privacy.epsilon=20.0"],
    "paper, slow": ["privacy.mode=paper", "privacy.epsilon=20.0", "crowd.delays={ request = 300.0 }"],
}
TRIALS, SEED = 2, 3


def reference(kind: str) -> Any:
    path = Path(__file__).parent / "references" / f"{kind.replace('-', '_')}.py"
    assert path.exists(), f"a registered recipe needs its plain formula in {path.name}"
    spec = importlib.util.spec_from_file_location(f"reference_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_close(left: Any, right: Any, what: str) -> None:
    for (path, a), (_, b) in zip(trees.paths(left), trees.paths(right), strict=True):
        scale = max(float(np.abs(b).max()), 1e-12)
        assert np.abs(np.asarray(a) - b).max() <= 1e-5 * scale, f"{what}: {path} differs"


def tasks() -> list[Any]:
    return [pytest.param(kind, changes, id=f"{kind}: {name}") for kind in RECIPES for name, changes in SETTINGS.items()]


@pytest.mark.parametrize(("kind", "changes"), tasks())
def test_three_drivers_agree(kind: str, changes: list[str]) -> None:
    task: Task = parse(BASE.format(kind=kind), changes=changes)
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY)
    compiled = simulate(task, trials=TRIALS, seed=SEED)
    for trial in range(TRIALS):
        seed = trial_seed(SEED, trial)
        timeline = make_timeline(task, dataset, algorithm, np.random.default_rng([SEED, trial]))
        stepwise = algorithm.parameters(run_stepwise(algorithm, timeline, dataset, seed).server)
        plain = reference(kind).run(task, dataset, timeline, seed)
        own = trees.map(lambda leaf, at=trial: leaf[at], compiled.parameters)
        assert np.abs(np.asarray(trees.leaves(plain)[0])).max() > 0.1, "nothing was learnt, so nothing is compared"
        assert_close(stepwise, plain, "step by step and plain")
        assert_close(own, plain, "compiled and plain")
        assert_close(own, stepwise, "compiled and step by step")
