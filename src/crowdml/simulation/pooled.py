"""Pooled training: the baseline that minimises the regularised risk over all rows at once."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from crowdml.core import Array
from crowdml.data import Dataset
from crowdml.privacy.sanitisers import Use
from crowdml.simulation import accounting
from crowdml.simulation.doubts import doubted
from crowdml.simulation.engine import require_platform
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.simulation.prepare import measured_errors, prepare
from crowdml.simulation.result import Result, Watcher, watched
from crowdml.simulation.timeline.trial_crowd import trial_split
from crowdml.task import Task


def simulate_pooled(task: Task, *, trials: int, seed: int, watch: Watcher | None = None) -> Result:
    """Train on all rows, perturbed where the terms say so, by L-BFGS.

    Without noise nothing in it is random, so one trial serves for all.
    """
    require_platform()
    fitted, dataset = prepare(task)
    sanitiser = task.calibrated.last.bind(Use(ops=JAX, scales={}, like=tuple, target=task.target))
    perturbed = "rows" in sanitiser.describe()
    splits = [trial_split(task, len(dataset.train_targets), trial) for trial in range(trials)]
    count = len(splits[0].train if splits[0] else dataset.train_targets)
    objective, compile_seconds = _compiled(task, dataset, count)
    began = time.perf_counter()
    learnt: list[Any] = []
    errors: dict[str, list[float]] = {}
    different = trials if perturbed or splits[0] else 1
    for trial, split in enumerate(splits[:different]):
        words = jnp.asarray(trial_seed(seed, trial))
        chosen = split.train if split else np.arange(len(dataset.train_targets))
        rows, labels = jnp.asarray(dataset.train_rows[chosen]), jnp.asarray(dataset.train_targets[chosen])
        rows, labels = sanitiser.rows(rows, labels, HashCoins(words, jnp.arange(len(rows)), JAX))
        learnt.append(_fit(task, objective, words, rows, labels))
        for name, error in measured_errors(task, learnt[-1], dataset, trial).items():
            errors.setdefault(name, []).append(error)
        if watch:
            watch((trial + 1) / different, float(np.mean(watched(errors))))
    copies = trials // different
    result = Result(
        task=task,
        seed=seed,
        trials=trials,
        samples=np.array([float(len(dataset.train_targets))]),
        measured={name: np.array([found * copies]) for name, found in errors.items()},
        parameters=jax.tree.map(lambda *leaves: np.stack(leaves * copies), *learnt),
        privacy=accounting.pooled_report(task, dataset, seed),
        updates=different,
        compile_seconds=compile_seconds,
        run_seconds=time.perf_counter() - began,
        notes=accounting.notes(task, dataset, fitted, ()),
        transforms=tuple(each.arrays for each in fitted),
    )
    return doubted(result, dataset)


def _fit(task: Task, objective: Any, words: Array, rows: Array, labels: Array) -> Any:
    first, shape = ravel_pytree(task.model_for(JAX).init(HashCoins(words, 0, JAX)))

    def risk(flat: Any) -> tuple[float, Any]:
        value, slope = objective(jnp.asarray(flat, jnp.float32), rows, labels)
        return float(value), np.asarray(slope, np.float64)

    options: Any = {"maxiter": task.algorithm.iterations, "maxcor": 20}
    found = minimize(risk, np.asarray(first, np.float64), jac=True, method="L-BFGS-B", options=options)
    return jax.tree.map(np.asarray, shape(jnp.asarray(found.x, jnp.float32)))


def _compiled(task: Task, dataset: Dataset, count: int) -> tuple[Any, float]:
    """Compile the regularised risk and its gradient as a function of flat parameters."""
    model = task.model_for(JAX)
    first, shape = ravel_pytree(model.zeros())
    strength = task.model.regularisation

    def risk(flat: Array, rows: Array, labels: Array) -> Array:
        parameters = shape(flat)
        weights = [layer["w"] for layer in parameters if "w" in layer]
        return jnp.mean(model.losses(parameters, rows, labels)) + 0.5 * strength * sum(jnp.sum(w * w) for w in weights)

    began = time.perf_counter()
    examples = first, jnp.zeros((count, dataset.features), jnp.float32), jnp.zeros(count, task.target.dtype)
    compiled = jax.jit(jax.value_and_grad(risk)).lower(*examples).compile()
    return compiled, time.perf_counter() - began
