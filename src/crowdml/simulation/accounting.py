"""What a simulated task claims to promise, and what it really adds up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdml.algorithms import Task
from crowdml.algorithms.averaging_terms import warnings
from crowdml.core import NUMPY
from crowdml.data import Dataset, Fitted
from crowdml.privacy import Plan, Sound
from crowdml.privacy.accounting import FILTER_NAMES
from crowdml.privacy.banded import noise_of_sum, sensitivity_squared
from crowdml.privacy.meaning import delta_problem
from crowdml.privacy.private_steps import PrivateSteps
from crowdml.privacy.promise import gaussian_epsilon
from crowdml.privacy.reporting import LOSSES, RENYI, Figure, correlated_figure, paper_figure, sound_figure
from crowdml.simulation.matrices import columns_for
from crowdml.simulation.prepare import promised_units
from crowdml.simulation.timeline import Timeline

SLICED_DELTA = 1e-5
"""At which δ noise on sums and uploads is stated where the task gives none."""


def report(task: Task, timelines: Sequence[Timeline]) -> dict[str, Any]:
    """Return claim and corrected ε of a course of check-ins, for one sample and for one device, over the whole task."""
    return _report(
        task,
        releases=max(timeline.releases for timeline in timelines),
        width=max(timeline.rows.shape[1] for timeline in timelines),
        most_rows=max(timeline.most_rows for timeline in timelines),
    )


def pooled_report(task: Task, dataset: Dataset, seed: int) -> dict[str, Any]:
    """Return claim and corrected ε where devices hand over their rows once."""
    crowd, generator = task.crowd, np.random.default_rng([seed, 0])
    owner = crowd.partition.assign(dataset.train_labels, dataset.train_owners, crowd.devices, generator)
    return _report(task, releases=1, width=1, most_rows=int(np.bincount(owner).max()))


def sliced_report(task: Task) -> dict[str, Any]:
    """Say what is promised of sums and weights: nothing as they are, and what noise adds up to where there is some."""
    own, delta = task.algorithm, task.privacy.delta or SLICED_DELTA
    found: dict[str, Any] = {"mode": task.privacy.mode, "sample": None, "device": None, "paper_claim": None}
    told = "no formal guarantee: sums and weights leave devices as they are; crowdml audit measures what they tell"
    if own.cut_noise:
        epsilon = gaussian_epsilon(2.0 / own.cut_noise, delta)
        found["first_cut"] = {"epsilon": round(epsilon, 6), "delta": delta}
        told = (
            f"no formal guarantee for labels; for the rest of a row ε = {epsilon:.4g}, δ = {delta:g} towards "
            "everybody: it enters one release, the noisy sums of the first cut"
        )
    if own.upload_noise:
        epsilon = gaussian_epsilon(2.0 * math.sqrt(task.passes) / own.upload_noise, delta)
        found["upload"] = {"epsilon": round(epsilon, 6), "delta": delta}
        told += (
            f"; towards the server alone ε = {epsilon:.4g}, δ = {delta:g} for a whole device, over "
            f"{task.passes} uploads of its group"
        )
    return found | {"guarantee": told}


def _report(task: Task, releases: int, width: int, most_rows: int) -> dict[str, Any]:
    """Add up.

    A sample enters one release per pass, or every one of its device's where devices are invited with all their rows.
    A device is in all its releases, and replacing all its rows changes a batch in all its `width` places at once. Noise
    on rows is drawn once, and a device has `most_rows` of them.
    """
    plan = task.plan(task.model_for(NUMPY))
    uses = releases if task.build(NUMPY).whole else min(task.passes, releases)
    if not plan.promises:
        return {"mode": plan.mode, "sample": None, "device": None, "paper_claim": None} | _unpromised(task, plan)
    if plan.sound:
        return _of_owners(task, plan, _sound_report(plan, plan.sound, uses, releases, width), uses, releases, width)
    if plan.steps:
        return _steps_report(plan, plan.steps, releases)
    group = most_rows if plan.inputs else width
    return {
        "mode": plan.mode,
        "sample": _paper(plan, uses).to_json(),
        "device": _paper(plan, releases, group).to_json(),
        "paper_claim": {"epsilon": plan.claim.epsilon, "delta": plan.claim.delta} if plan.claim else None,
        "noise": _noise(task, plan),
        "guarantee": "replace-one; simulated noise, so nothing is promised to anyone",
    } | ({"unproven": task.recipe.paper.unproven} if task.recipe.paper else {})


def _steps_report(plan: Plan, steps: PrivateSteps, releases: int) -> dict[str, Any]:
    """Say what all steps behind so many releases cost one sample; a whole device is promised nothing."""
    by = LOSSES if steps.sampling == "poisson" else RENYI
    taken = f"each row with probability {steps.share:.4g}" if steps.sampling == "poisson" else f"{steps.batch} rows"
    clipped = "each layer by its share" if steps.by_layer else "as a whole"
    assert plan.claim is not None  # noqa: S101  a plan with private steps states an ε
    return {
        "mode": plan.mode,
        "sample": Figure(epsilon=steps.epsilon(releases), delta=steps.delta, by=by).to_json(),
        "device": None,
        "paper_claim": {"epsilon": plan.claim.epsilon, "delta": plan.claim.delta},
        "noise": (
            f"gaussian of {steps.multiplier:.4g} sensitivities in each of {steps.steps * releases} steps, which take "
            f"{taken}; one gradient is at most {steps.radius:.3g} in L2, clipped {clipped}"
        ),
        "steps": {
            "multiplier": steps.multiplier,
            "sampling": steps.sampling,
            "sampling_rate": steps.share,
            "count": steps.steps * releases,
        },
        "guarantee": f"{steps.adjacency}, one sample; simulated noise, so nothing is promised to anyone",
    }


def _paper(plan: Plan, uses: int, group: int = 1) -> Figure:
    """Return what `uses` releases add up to: one by one, or together where their noise is correlated."""
    if plan.banded is None:
        return paper_figure(plan, uses, group)
    return correlated_figure(plan, sensitivity_squared(columns_for(plan), uses), group)


def _unpromised(task: Task, plan: Plan) -> dict[str, str]:
    if task.recipe.perturbs == "nothing":
        return {"guarantee": "nothing leaves a device"}
    if plan.given is None:
        return {"guarantee": "no formal guarantee"}
    noise = f"{plan.given.law.name} of s.d. {plan.given.deviation:.3g} on each number of a message{_correlation(plan)}"
    return {"noise": noise, "guarantee": "no formal guarantee: for noise given by its s.d. no ε can be stated"}


def _correlation(plan: Plan) -> str:
    """Say what a matrix makes of the noise."""
    if plan.banded is None:
        return ""
    return (
        f", then correlated over a device's {plan.banded.releases} messages by a matrix of {plan.banded.bands} bands: "
        f"their sum has {noise_of_sum(columns_for(plan)):.3g} times that, where fresh noise has "
        f"{np.sqrt(plan.banded.releases):.3g} times"
    )


def _sound_report(plan: Plan, sound: Sound, uses: int, releases: int, width: int) -> dict[str, Any]:
    """Add up what a ledger would have charged: `uses` releases for a sample, all of them for a device."""
    grid, stable = sound.update.grid, sound.update.stable
    moved = f"; one sample moves it by at most {stable.bound:.3g}, as its steps are stable" if stable else ""
    return {
        "mode": "sound",
        "unit": sound.unit,
        "sample": sound_figure(sound, uses, plan.delta).to_json(),
        "device": sound_figure(sound, releases, plan.delta, width).to_json(),
        "promised": {"epsilon": sound.filter.epsilon, "delta": sound.filter.delta, "uses": sound.uses},
        "enforced_by": FILTER_NAMES[sound.filter.kind],
        "paper_claim": None,
        "noise": (
            f"{sound.update.law.name} of scale {sound.update.scale:g} levels on each integer; "
            f"one {grid.per} is at most {grid.radius:.3g} in L{grid.order}, by clipping, on {grid.levels} levels{moved}"
            f"{_shares(sound)}"
        ),
        "guarantee": "replace-one; simulated noise, so nothing is promised to anyone",
    }


def _shares(sound: Sound) -> str:
    """Say whose noise protects, where sums are masked."""
    shared = sound.update.shared
    return f"; in a masked sum at least {shared.survivors} honest devices add their shares" if shared else ""


def _of_owners(task: Task, plan: Plan, common: dict[str, Any], uses: int, releases: int, width: int) -> dict[str, Any]:
    """Say what it is for each ε that owners have chosen; in all, for those who have chosen the largest."""
    chosen = task.crowd.owner_epsilon
    if not chosen.values:
        return common
    plans = [plan.for_owner(epsilon) for epsilon in chosen.values]
    reports = [_sound_report(own, own.sound, uses, releases, width) for own in plans if own.sound]
    groups = [
        {
            "epsilon": epsilon,
            "devices": count,
            "noise": own.noise,
            "sample": report["sample"],
            "device": report["device"],
        }
        for epsilon, count, own, report in zip(
            chosen.values, chosen.counts(task.crowd.devices), plans, reports, strict=True
        )
    ]
    worst = reports[int(np.argmax(chosen.values))]
    return common | {key: worst[key] for key in ("sample", "device", "promised", "enforced_by")} | {"owners": groups}


def _noise(task: Task, plan: Plan) -> str:
    """Say how much noise a number gets, and where the bound comes from."""
    if plan.inputs:
        return (
            f"laplace of scale {plan.inputs.row_scale:.3g} on each feature; a label is kept with {plan.inputs.keep:.0%}"
        )
    assert plan.gradient is not None  # noqa: S101  the caller asked plan.promises
    bound = plan.gradient.bound
    algorithm = task.build(NUMPY)
    if algorithm.barrier:
        return (
            f"{plan.gradient.law.name} of scale {plan.gradient.noise:.3g} on each number of a sum, in equal parts from "
            f"{algorithm.barrier.least} devices; one sample is said to move it by {2 * bound.radius:.3g} in L2"
        )
    batch = algorithm.batch
    return (
        f"{plan.gradient.law.name} of scale {plan.gradient.noise / batch:.3g} on each coordinate of a mean of {batch} "
        f"rows; one gradient is at most {bound.radius:.3g} in L{bound.order}, "
        f"{'by clipping' if bound.clipped else 'by the model and the norm of a row'}{_correlation(plan)}"
    )


def notes(task: Task, dataset: Dataset, fitted: Sequence[Fitted], timelines: Sequence[Timeline]) -> tuple[str, ...]:
    """Name what a reader of the figures must know: caveats of the data, what ε leaves out, devices never heard of."""
    found = [dataset.note] if dataset.note else []
    if task.data.split and task.data.split.seed is None:
        found.append("every trial splits all rows anew; the same trial of another curve has the same split")
    if task.data.validation:
        found.append(
            f"{task.data.validation} rows are held back from training: choose by their error, and report the test error"
        )
    pairs = zip(task.data.transform, fitted, strict=True)
    private = [transform.kind for transform, found in pairs if found.private_fit]
    if private and task.privacy.mode != "none":
        found.append(f"{' and '.join(private)} fitted on the training rows: not accounted")
    public = [transform.kind for transform in task.data.transform if transform.learns and task.data.public]
    if public and task.privacy.mode != "none":
        found.append(f"{' and '.join(public)} fitted on {task.data.public} public rows that no device holds")
    problem = delta_problem(task.privacy, promised_units(task, dataset))
    if problem and task.privacy.mode == "paper":
        found.append(problem)
    found += warnings(task)
    silent = max((timeline.silent for timeline in timelines), default=0)
    if silent:
        why = "no round reached them" if task.build(NUMPY).rounds else "they hold fewer rows than a batch needs"
        found.append(f"{silent} of {task.crowd.devices} devices never check in: {why}")
    return tuple(found)
