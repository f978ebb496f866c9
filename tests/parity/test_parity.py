"""Every registered recipe: compiled = step by step through bytes = plain NumPy.

A recipe is tested by being registered: its defaults must give a working task, and `references/` must hold its plain
formula. Tolerance 1e-5 relative: compiled arithmetic is ordered differently. In sound mode one rounding that falls the
other way changes everything after it: test_sound_recipes.py compares stage by stage.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import RECIPES, Algorithm, Recipe
from crowdml.algorithms.solitary import CountOnly
from crowdml.core import NUMPY, trees
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.prepare import numbers, prepare
from crowdml.simulation.stepwise import Ended, run_stepwise
from crowdml.simulation.timeline.timeline import make_timeline
from crowdml.task import Task, parse
from tests.support.two_labels import TWO_LABELS, odd_digits

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
    "rounds, noise": [
        "algorithm.epochs=1",
        "algorithm.per-round=4",
        "privacy.mode=paper",
        "privacy.mechanism=gaussian",
        "privacy.noise-scale=0.1",
    ],
    "momentum kept": [
        "algorithm.per-round=4",
        "algorithm.rate-memory=keep",
        "algorithm.rate={ kind = 'momentum', c = 1.0, momentum = 0.5 }",
        "algorithm.epochs=1",
    ],
    "momentum reset, uneven": [
        "algorithm.epochs=2",
        "algorithm.per-round=3",
        "algorithm.rate-memory=reset",
        "algorithm.rate={ kind = 'momentum', c = 1.0, momentum = 0.5 }",
        "crowd.partition={ kind = 'unbalanced', sigma = 0.7 }",
    ],
    "slow, buffered, server rate": [
        SLOW,
        "algorithm.buffer-size=3",
        "algorithm.server={ kind = 'constant', c = 0.5 }",
        "algorithm.stale=accept",
    ],
    "rounds, short clip": ["algorithm.per-round=4", "algorithm.first-clip=0.05", "algorithm.clip-rate=1.0"],
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


@pytest.fixture(autouse=True, scope="module")
def two_labels() -> Iterator[None]:
    with odd_digits():
        yield


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
    waits = recipe.releases(recipe.settings()).sends == "rows" or whole
    if "barrier" in recipe.settings.model_fields and "barrier" not in keys and ("drop-out" in keys or "paper" in keys):
        return False
    if (
        {"first_uses", "newton_steps", "floor"} & set(recipe.settings.model_fields)
        and "barrier" not in keys
        and changes
    ):
        return "max_rows" in recipe.settings.model_fields and keys.startswith("crowd.partition")
    if "paper" in keys and not recipe.releases(recipe.settings()).published:
        return False
    # What is sent after local steps has no bound, so no ε can be claimed for it.
    steps = {"local_steps", "epochs"} & set(recipe.settings.model_fields) and "local-steps=0" not in keys
    # In rounds a device goes through its rows, unless noise is put into steps.
    counted = "per_round" in recipe.settings.model_fields and "local-steps" in keys and "noise-at" not in keys
    return not (waits and "delays" in keys) and not (steps and "epsilon" in keys) and not counted


ROUNDS = ("none, uneven", "rounds, noise", "momentum reset, uneven")
ENOUGH = {
    "fedprox": ROUNDS,
    "fedavgm": ROUNDS,
    "fedadam": ROUNDS,
    "fedyogi": ROUNDS,
    "scaffold": ("none, uneven", "rounds, noise"),
    "ditto": ("none, uneven", "rounds, noise"),
    "dp-fedavg": ("none, uneven", "rounds, noise", "rounds, short clip"),
    "fedbuff": ("none, slow", "steps, noise", "slow, buffered, server rate"),
}
"""Settings of recipes that share all but a line with another one, which is compared in every setting."""
CASES = {
    f"{kind}: {name}": (kind, changes)
    for kind, recipe in RECIPES.items()
    for name, changes in SETTINGS.items()
    if name in ENOUGH.get(kind, SETTINGS) and _fits(recipe, changes)
}


REPEATED = {
    *(f"{kind}: momentum reset, uneven" for kind in ("fedprox", "fedavgm", "fedadam", "fedyogi")),
    *(f"local-sgd: {name}" for name in ("none", "none, slow", "none, slow, weighted", "none, uneven", "no steps")),
    *(f"local-sgd: {name}" for name in ("steps, slow, accepted", "steps, slow, weighted", "steps by versions")),
    *(f"crowd-sgd: {name}" for name in ("none", "none, slow")),
    *(f"{kind}: {name}" for kind in ("fedavg", "fedsgd") for name in ("none", "one device a round")),
    *(f"{kind}: none" for kind in ("admm", "admm-sums", "decentral", "central-sgd")),
}
"""Cases all of whose parts other cases have too, of the same recipe or of one that shares them: `make test-live` runs
these, since each is compiled by itself."""


def test_every_recipe_is_compared_in_every_mode_that_it_has() -> None:
    assert set(CASES) >= REPEATED, "a case that there is no more"
    kept = [case for name, case in CASES.items() if name not in REPEATED]
    compared = {(kind, "paper" if "privacy.mode=paper" in changes else "none") for kind, changes in kept}
    # Where nothing leaves a device there is nothing to add noise to.
    releases = {kind: recipe.releases(recipe.settings()) for kind, recipe in RECIPES.items()}
    noisy = {(kind, "paper") for kind, sent in releases.items() if sent.published and sent.sends != "nothing"}
    assert compared >= {(kind, "none") for kind in RECIPES} | noisy


def learnt(algorithm: Algorithm, ended: Ended, devices: int) -> Any:
    """The common model, or the models of all devices where each learns alone."""
    phase = algorithm.last
    if not isinstance(phase.server, CountOnly):
        return ended.report.parameters
    states = [ended.devices.get(device, phase.begin()) for device in range(devices)]
    return trees.map(lambda *leaves: np.stack(leaves), *[phase.device.model(state.work) for state in states])


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.live] * (case in REPEATED)) for case in CASES])
def test_three_drivers_agree(case: str) -> None:
    kind, changes = CASES[case]
    task: Task = parse(BASE.format(kind=kind), changes=[*TWO_LABELS.get(kind, []), *changes])
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY, numbers(task))
    compiled = simulate(task, trials=TRIALS, seed=SEED)
    for trial in range(TRIALS):
        seed = trial_seed(SEED, trial)
        timeline = make_timeline(task, dataset, algorithm, np.random.default_rng([SEED, trial]))
        stepwise = learnt(algorithm, run_stepwise(algorithm, timeline, dataset, seed), task.crowd.devices)
        plain = reference(kind).run(task, dataset, timeline, seed)
        of_trial = trees.map(lambda leaf, at=trial: leaf[at], compiled.parameters)
        assert np.abs(np.asarray(trees.leaves(plain)[0])).max() > 0.1, "nothing was learnt, so nothing is compared"
        assert_close(stepwise, plain, "step by step and plain")
        assert_close(of_trial, plain, "compiled and plain")
        assert_close(of_trial, stepwise, "compiled and step by step")
