"""Baselines beside a result: what else the same rows could have done.

Learned weights need labelled public rows. Whoever has some may as well train on them alone, or fine-tune the crowd's
model on them; often that is the better use. So both are measured whenever weights are learnt. And where devices hold
rows out, the common model is measured on them beside each device's personal one: rows of the same owners that nobody
trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.aggregation.public_rows import ROWS, TARGETS, FinetuneSettings, Public, minimise
from crowdml.algorithms.solitary import personal_model
from crowdml.core import NUMPY, trees
from crowdml.core.ops import Tree, joined
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import measured_errors, numbers, prepare
from crowdml.simulation.result import Result
from crowdml.simulation.timeline.timeline import Timeline
from crowdml.task import Task

ALONE_STEPS, ALONE_RATE = 300, 0.01
FINETUNE_STEPS = 10

COMMON = "common model on rows that devices held out"
"""Name of the error that personal models are compared with."""


def public_baselines(
    task: Task, *, trials: int, seed: int, simulate: Callable[..., Result]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return test errors by name, of shape (trials,); nothing where no weights are learnt.

    Args:
        task: The task.
        trials: Repetitions.
        seed: That of the result beside which they stand.
        simulate: Runs the plain average: `crowdml.simulate`.
    """
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
    handed, model = numbers(task), task.model_for(NUMPY)
    public = Public(rows=handed[ROWS], targets=handed[TARGETS].astype(task.target.dtype), model=model, ops=NUMPY)
    begin = joined(model.init(HashCoins(trial_seed(seed, trial), 0, NUMPY)), NUMPY)
    learnt = minimise(public.gradient, begin, ALONE_STEPS, ALONE_RATE, NUMPY)
    return measured_errors(task, trees.cut(learnt, model.zeros()), prepare(task)[1])["test_error"]


def personal_errors(
    task: Task, dataset: Dataset, timelines: Sequence[Timeline], parameters: Tree, kept: Tree | None = None
) -> dict[str, npt.NDArray[np.float64]]:
    """Return errors on held-out rows by name, of shape (trials,); nothing where none are held out.

    Args:
        task: The task.
        dataset: Rows after transforms.
        timelines: Who holds which rows, trial by trial.
        parameters: The common models, with trials as the first axis.
        kept: Models that the algorithm keeps for each device, with trials and devices as the first axes; None where it
            keeps none, and the steps of `crowd.personal` make them.
    """
    if not task.crowd.personal.held_out:
        return {}
    found = [
        _of_trial(
            task,
            dataset,
            timeline,
            trees.map(lambda leaf, at=at: leaf[at], parameters),
            None if kept is None else trees.map(lambda leaf, at=at: leaf[at], kept),
        )
        for at, timeline in enumerate(timelines)
    ]
    steps = task.crowd.personal.steps
    if kept is not None:
        name = "each device's own model" + f", with {steps} steps more" * bool(steps)
    else:
        name = f"with {steps} steps of each device's own"
    return {label: np.array([pair[at] for pair in found]) for at, label in enumerate((COMMON, name))}


def _of_trial(task: Task, dataset: Dataset, timeline: Timeline, common: Tree, kept: Tree | None) -> tuple[float, float]:
    model, wrong, total = task.model_for(NUMPY), np.zeros(2), 0
    heard = set(timeline.device.tolist())
    for device in range(task.crowd.devices):
        held, rest = np.flatnonzero(timeline.held == device), np.flatnonzero(timeline.owner == device)
        rows, labels = dataset.train_rows[held], dataset.train_targets[held]
        # A device that was never invited has the common model alone.
        begun = common if kept is None or device not in heard else trees.map(lambda leaf, at=device: leaf[at], kept)
        mine = personal_model(model, begun, dataset.train_rows[rest], dataset.train_targets[rest], task.crowd.personal)
        total += len(held)
        for at, parameters in enumerate((common, mine)):
            measures = task.target.measures(model.predict(parameters, rows), labels, NUMPY) if len(held) else {}
            wrong[at] += float(measures["test_error"]) * len(held) if len(held) else 0.0
    return float(wrong[0] / total), float(wrong[1] / total)
