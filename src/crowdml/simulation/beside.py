"""Beside learned averaging: what else the same public rows could have done.

Learned weights need labelled public rows. Whoever has some may as well train on them alone, or fine-tune the crowd's
model on them; often that is the better use. So both are measured whenever weights are learnt.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Task
from crowdml.algorithms.minimising import minimise
from crowdml.algorithms.public import LABELS, ROWS, FinetuneSettings, Public
from crowdml.core import NUMPY, trees
from crowdml.simulation.coins import HashCoins, trial_seed
from crowdml.simulation.matrices import numbers
from crowdml.simulation.prepare import measured_errors, prepare
from crowdml.simulation.run import simulate

ALONE_STEPS, ALONE_RATE = 300, 0.01
FINETUNE_STEPS = 10


def beside(task: Task, *, trials: int, seed: int) -> dict[str, npt.NDArray[np.float64]]:
    """Return test errors by name, of shape (trials,); nothing where no weights are learnt."""
    if getattr(task.algorithm, "averaging", None) != "learned":
        return {}
    plain = "equal" if task.algorithm.kind == "local-sgd" else "size"
    tuned = FinetuneSettings(steps=task.algorithm.finetune.steps or FINETUNE_STEPS, rate=task.algorithm.finetune.rate)
    algorithm = task.algorithm.model_copy(update={"averaging": plain, "finetune": tuned})
    found = simulate(task.model_copy(update={"algorithm": algorithm}), trials=trials, seed=seed)
    return {
        "public rows only": np.array([public_only(task, seed, trial) for trial in range(trials)]),
        f"plain average, fine-tuned by {tuned.steps} steps": found.measured["test_error"][-1],
    }


def public_only(task: Task, seed: int, trial: int) -> float:
    """Train on the public rows alone, from the trial's first parameters, and return the test error."""
    own, model = numbers(task), task.model_for(NUMPY)
    public = Public(rows=own[ROWS], labels=own[LABELS].astype(np.int32), model=model, ops=NUMPY)
    begin = trees.joined(model.init(HashCoins(trial_seed(seed, trial), 0, NUMPY)), NUMPY)
    learnt = minimise(public.gradient, begin, ALONE_STEPS, ALONE_RATE, NUMPY)
    return measured_errors(task, trees.cut(learnt, model.zeros()), prepare(task)[1])["test_error"]
