"""Windows that keep each check-in: compiled = step by step through bytes.

Rules and attacks by themselves have other tests. Tolerance 1e-5 relative as elsewhere; learned weights go through 50
steps of Adam, whose quotients amplify rounding: 1e-3.
"""

import numpy as np
import pytest

from crowdml.core import NUMPY, trees
from crowdml.simulation import simulate
from crowdml.simulation.attacked import attack_of
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.prepare import numbers, prepare
from crowdml.simulation.stepwise import run_stepwise
from crowdml.simulation.timeline.timeline import make_timeline
from crowdml.task import parse

BASE = """
crowdml = 1
name = "parity"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }, { kind = "norm", order = 2, at-most = 1.0 }]
public = 200
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
per-round = 8
local-batch = 20
rate = { kind = "constant", c = 2.0 }
[privacy]
mode = "none"
[crowd]
devices = 10
passes = 4
curve = 2
"""
LOCAL = ["algorithm={ kind = 'local-sgd', local-steps = 3, server-batch = 5, stale = 'weight' }"]
FEDSGD = ["algorithm={ kind = 'fedsgd', per-round = 8 }"]
SLOW = "crowd.delays={ check-in = 200.0 }"
UNEVEN = ["crowd.partition={ kind = 'unbalanced', sigma = 0.7 }", "crowd.drop-out=0.2"]
SOUND = [
    "privacy={ mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-5, max-uses = 4 }",
    "privacy.owner-range=[1.0, 8.0]",
    "crowd.owner-epsilon={ values = [1.0, 8.0] }",
]
CASES: dict[str, tuple[list[str], float]] = {
    "median, uneven": (["robust.rule={ kind = 'median' }", *UNEVEN], 1e-5),
    "adaptive against the root set": (
        [*FEDSGD, "crowd.attack={ kind = 'adaptive', share = 0.4 }", "robust.rule={ kind = 'root-cosine' }"],
        1e-5,
    ),
    "local steps, stale, noise": (
        [*LOCAL, SLOW, "robust.rule={ kind = 'geometric-median' }", "crowd.attack={ kind = 'noise' }"],
        1e-5,
    ),
    "flipped labels, a mean": (["crowd.attack={ kind = 'label-flip', share = 0.3 }", "crowd.rows=900"], 1e-5),
    "learned, fine-tuned": (["algorithm.averaging=learned", "algorithm.finetune={ steps = 3 }", *UNEVEN], 1e-3),
    "learned, without constraint": (
        ["algorithm.averaging=learned", "algorithm.learned={ variant = 'unconstrained', gate = false, cap = 100.0 }"],
        1e-3,
    ),
    "owners with their own ε, inverse variance": ([*SOUND, "algorithm.averaging=inverse-variance"], 1e-4),
}
SEED = 3


@pytest.mark.parametrize("name", CASES)
def test_compiled_equals_step_by_step(name: str) -> None:
    changes, tolerance = CASES[name]
    task = parse(BASE, changes=changes)
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY, numbers(task))
    owners = [task.build(NUMPY, owner_epsilon=epsilon) for epsilon in task.crowd.owner_epsilon.values]
    timeline = make_timeline(task, dataset, algorithm, np.random.default_rng([SEED, 0]))
    compiled = simulate(task, trials=1, seed=SEED)
    attack = attack_of(task, NUMPY)
    ended = run_stepwise(algorithm, timeline, dataset, trial_seed(SEED, 0), owners=owners, attack=attack)
    of_trial = trees.map(lambda leaf: leaf[0], compiled.parameters)
    for left, right in zip(trees.leaves(of_trial), trees.leaves(ended.report.parameters), strict=True):
        assert np.abs(right).max() > 0.01, "nothing was learnt, so nothing is compared"
        assert np.abs(left - right).max() <= tolerance * np.abs(right).max()
