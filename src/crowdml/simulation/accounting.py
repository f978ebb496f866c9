"""What a simulated task claims to promise, and what it really adds up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdml.algorithms.recipe import Recipe
from crowdml.data import Dataset, Fitted
from crowdml.privacy import Cost, Plan
from crowdml.privacy.accounting import FILTER_NAMES, delta_problem
from crowdml.privacy.odds import odds_of
from crowdml.privacy.promise import gaussian_epsilon
from crowdml.simulation.prepare import columns_for, promised_units
from crowdml.simulation.timeline.timeline import Timeline
from crowdml.simulation.timeline.trial_crowd import rows_handed_out
from crowdml.task import Task
from crowdml.task.averaging_terms import warnings

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


def epsilon_so_far(task: Task, uses: Sequence[int], releases: Sequence[int], group: int) -> list[float]:
    """Return the smallest valid ε after so many uses of a sample, or releases of a device, whichever the terms protect.

    Where owners have chosen, it is that of the largest choice. Not a number where no ε can be stated.

    Args:
        task: The task.
        uses: Releases that a sample has entered, one for each point of a curve.
        releases: Releases that a device has made.
        group: Rows of a device in a release at most.
    """
    plan, chosen = task.calibrated.with_matrices(columns_for), task.crowd.owner_epsilon.values
    if chosen:
        plan = task.calibrated.for_owner(max(chosen))
    by_device = plan.terms.promised and plan.terms.unit == "device"
    counts = [int(count) for count in (releases if by_device else uses)]
    found = {count: plan.figure(count, group if by_device else None) if count else None for count in set(counts)}
    none = math.nan if plan.figure(1) is None else 0.0
    return [none if (figure := found[count]) is None else figure.epsilon for count in counts]


def pooled_report(task: Task, dataset: Dataset, seed: int) -> dict[str, Any]:
    """Return claim and corrected ε where devices hand over their rows once."""
    crowd, generator = task.crowd, np.random.default_rng([seed, 0])
    owner = crowd.partition.assign(dataset.train_bins, dataset.train_owners, crowd.devices, generator)
    return _report(task, releases=1, width=1, most_rows=int(np.bincount(owner).max()))


def sliced_report(task: Task) -> dict[str, Any]:
    """Say what is promised of sums and weights: nothing as they are, and what noise adds up to where there is some."""
    settings, delta = task.algorithm, task.privacy.delta or SLICED_DELTA
    if task.calibrated.terms.promised:
        # What is said of a whole device grows with its rows, and nothing limits these.
        return _of_plan(task.calibrated, 1, 1, 1) | {"device": None} | _summary(task, task.calibrated, 1)
    found: dict[str, Any] = {"mode": task.calibrated.terms.mode, "sample": None, "device": None, "paper_claim": None}
    told = "no formal guarantee: sums and weights leave devices as they are; crowdml audit measures what they tell"
    if settings.cut_noise:
        epsilon = gaussian_epsilon(2.0 / settings.cut_noise, delta)
        found["first_cut"] = {"epsilon": round(epsilon, 6), "delta": delta}
        told = (
            f"no formal guarantee for labels; for the rest of a row ε = {epsilon:.4g}, δ = {delta:g} towards "
            "everybody: it enters one release, the noisy sums of the first cut"
        )
    if settings.upload_noise:
        epsilon = gaussian_epsilon(2.0 * math.sqrt(task.passes) / settings.upload_noise, delta)
        found["upload"] = {"epsilon": round(epsilon, 6), "delta": delta}
        told += (
            f"; towards the server alone ε = {epsilon:.4g}, δ = {delta:g} for a whole device, over "
            f"{task.passes} uploads of its group"
        )
    return found | {"guarantee": told}


def _report(task: Task, releases: int, width: int, most_rows: int) -> dict[str, Any]:
    """Add up.

    A sample enters one release per pass, or every one of its device's where devices are invited with all their rows.
    A device is in all its releases, and replacing all its rows changes a batch in all its `width` places at once. Where
    noise is drawn once, as on rows, a device has `most_rows` of them in it.
    """
    plan = task.calibrated.with_matrices(columns_for)
    uses = releases if _whole(task) else min(task.passes, releases)
    group = most_rows if plan.last.once else width
    found = _of_plan(plan, uses, releases, group) | _summary(task, plan, releases)
    if plan.terms.unproven:
        found["unproven"] = plan.terms.unproven
    return _of_owners(task, found, uses, releases, group)


def _of_plan(plan: Plan, uses: int, releases: int, rows: int) -> dict[str, Any]:
    """Say what `uses` releases cost a sample, and all of them a device, beside what was promised or claimed."""
    terms, sample, device = plan.terms, plan.figure(uses), plan.figure(releases, rows)
    found: dict[str, Any] = {"mode": terms.mode}
    if terms.promised:
        found["unit"] = terms.unit
    found["sample"] = sample.to_json() if sample else None
    found["device"] = device.to_json() if device else None
    found["odds"] = {"sample": _of_100(plan.cost(uses)), "device": _of_100(plan.cost(releases, rows))}
    if terms.promised:
        limit = terms.limit
        found["promised"] = {"epsilon": limit.epsilon, "delta": limit.delta, "uses": terms.uses}
        found["enforced_by"] = FILTER_NAMES[limit.kind]
    found["paper_claim"] = {"epsilon": terms.claim.epsilon, "delta": terms.claim.delta} if terms.claim else None
    return found


def _of_100(cost: Cost | None) -> int | None:
    """Right guesses out of 100 at most; None where nothing limits them."""
    return odds_of(cost).of_100 if cost else None


def _summary(task: Task, plan: Plan, releases: int) -> dict[str, Any]:
    """Say noise and guarantee in words; what protects knows them, bound to its use where there is one."""
    if task.releases.sends == "nothing":
        return {"guarantee": "nothing leaves a device"}
    if not isinstance(task.recipe, Recipe):
        return plan.last.summary(releases, 1)
    algorithm = task.built
    return plan.last.bind(algorithm.last.sanitiser.use).summary(releases, algorithm.schedule.batch)


def _whole(task: Task) -> bool:
    """Tell whether any of a device's rows may be behind each of its releases."""
    return isinstance(task.recipe, Recipe) and task.rows_stay


def _of_owners(task: Task, common: dict[str, Any], uses: int, releases: int, rows: int) -> dict[str, Any]:
    """Say what it is for each ε that owners have chosen; in all, for those who have chosen the largest."""
    chosen = task.crowd.owner_epsilon
    if not chosen.values:
        return common
    plans = [task.calibrated.for_owner(epsilon) for epsilon in chosen.values]
    reports = [_of_plan(plan, uses, releases, rows) for plan in plans]
    groups = [
        {
            "epsilon": epsilon,
            "devices": count,
            "noise": plan.noise,
            "sample": report["sample"],
            "device": report["device"],
        }
        for epsilon, count, plan, report in zip(
            chosen.values, chosen.counts(task.crowd.devices), plans, reports, strict=True
        )
    ]
    worst = reports[int(np.argmax(chosen.values))]
    return (
        common
        | {key: worst[key] for key in ("sample", "device", "odds", "promised", "enforced_by")}
        | {"owners": groups}
    )


def notes(task: Task, dataset: Dataset, fitted: Sequence[Fitted], timelines: Sequence[Timeline]) -> tuple[str, ...]:
    """Name what a reader of the figures must know: caveats of the data, what ε leaves out, devices never heard of."""
    found, plan = [dataset.note] if dataset.note else [], task.calibrated
    if task.data.split and task.data.split.seed is None:
        found.append("every trial splits all rows anew; the same trial of another curve has the same split")
    if task.data.validation:
        found.append(
            f"{task.data.validation} rows are held back from training: choose by their error, and report the test error"
        )
    rows, handed = len(dataset.train_targets), rows_handed_out(task, len(dataset.train_targets))
    if handed > rows:
        found.append(f"{handed} rows are handed out of {rows}: every copy counts as a sample of its own")
    pairs = zip(task.data.transform, fitted, strict=True)
    private = [transform.kind for transform, found in pairs if found.private_fit]
    if private and plan.last.adds_noise:
        found.append(f"{' and '.join(private)} fitted on the training rows: not accounted")
    public = [transform.kind for transform in task.data.transform if transform.learns and task.data.public]
    if public and plan.last.adds_noise:
        found.append(f"{' and '.join(public)} fitted on {task.data.public} public rows that no device holds")
    problem = delta_problem(task.privacy.delta, promised_units(task, dataset), task.privacy.unit)
    if problem and plan.promises and not plan.terms.promised:
        found.append(problem)
    found += warnings(task)
    silent = max((timeline.silent for timeline in timelines), default=0)
    if silent:
        why = "no round reached them" if task.built.schedule.invites else "they hold fewer rows than a batch needs"
        found.append(f"{silent} of {task.crowd.devices} devices never check in: {why}")
    return tuple(found)
