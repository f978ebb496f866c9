"""Every registered recipe: compiled = step by step through bytes = plain NumPy.

A recipe is tested by being registered: its defaults must give a working task, and `references/` must hold its plain
formula. Tolerance 1e-5 relative: compiled arithmetic is ordered differently.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import RECIPES, Algorithm, Task, parse
from crowdml.algorithms.recipes import Recipe
from crowdml.core import NUMPY, trees
from crowdml.simulation import simulate
from crowdml.simulation.coins import trial_seed
from crowdml.simulation.matrices import numbers
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import Ended, run_stepwise
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
    "none, outages": ["crowd.outages={ every = 300.0, lasting = 400.0 }", "algorithm.buffer=40"],
    "paper": ["privacy.mode=paper", "privacy.epsilon=20.0"],
    "paper, slow": ["privacy.mode=paper", "privacy.epsilon=20.0", "crowd.delays={ request = 300.0 }"],
}
LOCAL, SLOW = "algorithm.local-steps=4", "crowd.delays={ request = 100.0, check-out = 200.0, check-in = 300.0 }"
CORRELATED = (
    "privacy.mode=paper",
    "privacy.mechanism=gaussian",
    "privacy.noise-sequence=banded",
    "privacy.noise-bands=3",
    "stop.max-releases=7",
)
SETTINGS |= {
    "steps, server batch": [LOCAL, "algorithm.server-batch=4"],
    "steps, slow, accepted": [LOCAL, SLOW, "algorithm.server-batch=3", "algorithm.stale=accept"],
    "steps, slow, weighted": [LOCAL, SLOW, "algorithm.server-batch=3", "algorithm.stale=weight"],
    "steps, slow, dropped": [LOCAL, SLOW, "algorithm.server-batch=3"],
    "steps by versions": [LOCAL, SLOW, "algorithm.stale=accept", "algorithm.rate={ kind = 'inverse', c = 10.0 }"],
    "steps by versions, weighted": [
        LOCAL,
        SLOW,
        "algorithm.server-batch=2",
        "algorithm.stale=weight",
        "algorithm.rate={ kind = 'inverse', c = 10.0, counter = 'versions' }",
    ],
    "no steps, slow, weighted": [
        "algorithm.local-steps=0",
        SLOW,
        "algorithm.server-batch=3",
        "algorithm.stale=weight",
        "algorithm.rate={ kind = 'inverse-sqrt', c = 30.0, counter = 'versions' }",
    ],
    "steps by check-ins": [
        LOCAL,
        SLOW,
        "algorithm.stale=accept",
        "algorithm.server-batch=3",
        "algorithm.rate={ kind = 'inverse-sqrt', c = 10.0, counter = 'check-ins' }",
    ],
    "steps by contacts": [LOCAL, "algorithm.rate={ kind = 'inverse-sqrt', c = 10.0, counter = 'device-contacts' }"],
    "steps, adagrad": [
        LOCAL,
        "algorithm.server-batch=2",
        "algorithm.rate={ kind = 'adagrad', c = 1.0, floor = 0.001, counter = 'local-steps' }",
    ],
    "steps, rmsprop": [
        LOCAL,
        SLOW,
        "algorithm.server-batch=2",
        "algorithm.stale=accept",
        "algorithm.rate={ kind = 'rmsprop', c = 0.1, decay = 0.8, floor = 0.001, counter = 'local-steps' }",
    ],
    "steps, noise": [LOCAL, "privacy.mode=paper", "privacy.mechanism=gaussian", "privacy.noise-scale=0.3"],
    "steps, noise of the whole message": [
        LOCAL,
        "privacy.mode=paper",
        "privacy.mechanism=k-norm",
        "privacy.noise-scale=3.0",
        "privacy.noise-unit=vector",
        "privacy.noise-sequence=geometric",
        "privacy.noise-factor=0.8",
    ],
    "steps, noise like the rate": [
        LOCAL,
        "algorithm.server-batch=2",
        "privacy.mode=paper",
        "privacy.noise-scale=0.3",
        "privacy.noise-sequence=rate",
    ],
    "steps, correlated noise": [LOCAL, "algorithm.server-batch=2", *CORRELATED, "privacy.noise-scale=0.3"],
    "no steps, correlated noise, paper": [
        "algorithm.local-steps=0",
        "algorithm.rate={ kind = 'inverse-sqrt', c = 30.0 }",
        *CORRELATED,
        "privacy.epsilon=20.0",
        "privacy.delta=1e-5",
    ],
    "rounds, correlated noise, paper": [
        "algorithm.per-round=4",
        *CORRELATED,
        "privacy.epsilon=20.0",
        "privacy.delta=1e-5",
    ],
    "no steps": [
        "algorithm.local-steps=0",
        "algorithm.server-batch=5",
        "algorithm.rate={ kind = 'inverse-sqrt', c = 30.0, counter = 'check-ins' }",
    ],
    "no steps, paper": [
        "algorithm.local-steps=0",
        "algorithm.server-batch=5",
        "algorithm.rate={ kind = 'inverse-sqrt', c = 30.0 }",
        "privacy.mode=paper",
        "privacy.epsilon=20.0",
    ],
    "epochs": ["algorithm.epochs=2", "algorithm.per-round=4", "algorithm.local-batch=16"],
    "epochs, uneven": [
        "algorithm.epochs=2",
        "algorithm.per-round=3",
        "crowd.partition={ kind = 'unbalanced', sigma = 0.7 }",
        "crowd.drop-out=0.3",
        "algorithm.rate={ kind = 'inverse-sqrt', c = 3.0, counter = 'local-steps' }",
    ],
    "one device a round": ["algorithm.per-round=1", "crowd.partition={ kind = 'unbalanced', sigma = 0.7 }"],
}
SPEEDS = "crowd.speeds={ sigma = 0.8, jitter = 0.4 }"
SETTINGS |= {
    "barrier": ["algorithm.barrier=5", "algorithm.max-delay=3", "algorithm.average-from=3", SPEEDS],
    "barrier, l1, uneven": [
        "algorithm.barrier=5",
        "algorithm.regulariser=l1",
        "algorithm.beta=0.3",
        SPEEDS,
        "crowd.partition={ kind = 'unbalanced', sigma = 0.7 }",
    ],
    "barrier, paper": [
        "algorithm.barrier=5",
        SPEEDS,
        "privacy.mode=paper",
        "privacy.mechanism=gaussian",
        "privacy.epsilon=20.0",
        "privacy.delta=1e-3",
    ],
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
    return [
        pytest.param(kind, changes, id=f"{kind}: {name}")
        for kind, recipe in RECIPES.items()
        for name, changes in SETTINGS.items()
        # ridge separates two labels: test_moments.py
        if not recipe.pooled and not recipe.sliced and kind != "ridge" and _fits(recipe, changes)
    ]


def _fits(recipe: Recipe, changes: list[str]) -> bool:
    """A setting is left out only where the recipe refuses it by its nature."""
    keys = " ".join(changes)
    if "algorithm." in keys and not all(
        change.partition("=")[0].removeprefix("algorithm.").replace("-", "_") in recipe.settings.model_fields
        for change in changes
        if change.startswith("algorithm.")
    ):
        return False
    whole = bool({"per_round", "barrier"} & set(recipe.settings.model_fields))
    waits = recipe.perturbs == "inputs" or whole
    if "barrier" in recipe.settings.model_fields and "barrier" not in keys and ("drop-out" in keys or "paper" in keys):
        return False
    if {"opening_uses", "newton_steps"} & set(recipe.settings.model_fields) and "barrier" not in keys and changes:
        return recipe.settings.model_fields.keys() >= {"opening_uses"} and keys.startswith("crowd.partition")
    # What is sent after local steps has no bound, so no ε can be claimed for it.
    steps = {"local_steps", "epochs"} & set(recipe.settings.model_fields) and "local-steps=0" not in keys
    # In rounds a device goes through its rows, unless noise is put into steps.
    counted = "per_round" in recipe.settings.model_fields and "local-steps" in keys and "noise-at" not in keys
    return not (waits and "delays" in keys) and not (steps and "epsilon" in keys) and not counted


def learnt(algorithm: Algorithm, ended: Ended, devices: int) -> Any:
    """The common model, or the models of all devices where each learns alone."""
    if not algorithm.of_device:
        return algorithm.parameters(ended.server)
    states = [ended.devices.get(device, algorithm.device_init()) for device in range(devices)]
    return trees.map(lambda *leaves: np.stack(leaves), *[algorithm.of_device(state) for state in states])


@pytest.mark.parametrize(("kind", "changes"), tasks())
def test_three_drivers_agree(kind: str, changes: list[str]) -> None:
    task: Task = parse(BASE.format(kind=kind), changes=changes)
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY, numbers(task))
    compiled = simulate(task, trials=TRIALS, seed=SEED)
    for trial in range(TRIALS):
        seed = trial_seed(SEED, trial)
        timeline = make_timeline(task, dataset, algorithm, np.random.default_rng([SEED, trial]))
        stepwise = learnt(algorithm, run_stepwise(algorithm, timeline, dataset, seed), task.crowd.devices)
        plain = reference(kind).run(task, dataset, timeline, seed)
        own = trees.map(lambda leaf, at=trial: leaf[at], compiled.parameters)
        assert np.abs(np.asarray(trees.leaves(plain)[0])).max() > 0.1, "nothing was learnt, so nothing is compared"
        assert_close(stepwise, plain, "step by step and plain")
        assert_close(own, plain, "compiled and plain")
        assert_close(own, stepwise, "compiled and step by step")
