"""What a browser needs of a task beyond its file: bound, noise, schedule and messages as numbers, or why it stays out.

A Python device works its noise out from the terms. A browser does not: the operator signs what was worked out, and the
browser checks it, which is a small part of the work. It adds up by itself what so many releases with this bound and
this noise cost, and refuses a plan that does not keep the ε of the terms (`web/core`).

Most things a browser could do one day; what it cannot do today is refused in a sentence that ends "because …".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crowdml.algorithms.contract import Phase
from crowdml.algorithms.device_parts.gradient import Gradient
from crowdml.algorithms.device_parts.local_steps import LocalSteps
from crowdml.algorithms.schedule import OnArrival
from crowdml.privacy.noise.grid import GridMechanism
from crowdml.task.live_task import LiveTask
from crowdml.wire import Layout

ALGORITHMS = ("crowd-sgd", "local-sgd", "fedavg", "fedsgd")
MODELS = ("softmax", "logistic", "svm", "huber", "linear", "mlp")
TRANSFORMS = ("scale", "scale-columns", "norm", "standardise", "pca", "intercept", "fft", "one-hot")
RATES = ("constant", "inverse", "inverse-sqrt", "step", "exponential")
"""What the browser's engine has, each by its name in a task file."""

LAWS = ("discrete-laplace", "rounded-gaussian")
"""Noise for which it has an exact sampler."""


def browser_plan(live: LiveTask) -> dict[str, Any]:
    """Return what is signed for browsers: the plan, or `refused` with the reason."""
    refused = next(_refusals(live), None)
    if refused is not None:
        return {"refused": f"a phone may not join because {refused}"}
    phase = live.algorithm.last
    made = {
        "schedule": _schedule(live),
        "work": _work(live, phase),
        "weighs-rows": phase.sanitiser.weighs_rows,
        "alone": phase.sanitiser.use.alone,
        "messages": {
            "check-out": _header(live.messages.check_out),
            "check-in": _header(live.messages.check_in),
        },
    }
    counts = phase.sanitiser.counts
    counting = isinstance(phase.device, Gradient) and phase.device.counting is not None
    if counts is not None and counting:
        made["counts"] = {"errors": counts.errors, "spread": counts.spread}
    mechanism = phase.sanitiser.on_grid
    return made | (_promise(live, mechanism) if mechanism else {})


def _refusals(live: LiveTask) -> Iterator[str]:
    """Say whatever keeps browsers out."""
    task = live.task
    if task.data.words:
        yield "its rows have columns of words"
    if live.masked is not None:
        yield "its messages are added up under masks, which a browser cannot make yet"
    if task.algorithm.kind not in ALGORITHMS or len(live.algorithm.phases) != 1:
        yield f'a browser does not know the algorithm "{task.algorithm.kind}"'
        return
    if task.model.kind not in MODELS:
        yield f'a browser does not know the model "{task.model.kind}"'
    for transform in task.data.transform:
        if transform.kind not in TRANSFORMS:
            yield f'a browser does not know the transform "{transform.kind}"'
    if task.data.id is not None:
        yield "its rows are told apart by ids, which a browser does not keep"
    phase = live.algorithm.last
    if isinstance(phase.device, LocalSteps) and task.algorithm.rate.kind not in RATES:
        yield f'its devices follow the rate "{task.algorithm.rate.kind}", which a browser does not remember'
    mechanism = phase.sanitiser.on_grid
    has_sampler = mechanism.law.name in LAWS if mechanism else not phase.sanitiser.adds_noise
    if not has_sampler or not isinstance(phase.device, Gradient | LocalSteps):
        yield "a browser has no exact sampler for its noise"


def _schedule(live: LiveTask) -> dict[str, Any]:
    """Say how rows become a batch, and which versions are believed."""
    schedule, stop = live.algorithm.schedule, live.task.stop
    return {
        "whole": schedule.whole,
        "batch": schedule.batch,
        "epochs": schedule.epochs,
        "multiple": schedule.multiple,
        "most-rows": schedule.most_rows,
        "max-staleness": schedule.max_staleness if isinstance(schedule, OnArrival) else 0,
        "max-releases": stop.max_releases,
        "max-versions": stop.max_versions,
    }


def _work(live: LiveTask, phase: Phase) -> dict[str, Any]:
    """Say what a device does between check-out and check-in."""
    if isinstance(phase.device, Gradient):
        return {"kind": "gradient", "held-out": phase.device.held_out}
    settings = live.task.algorithm
    rate = settings.rate.model_dump(mode="json", by_alias=True)
    return {"kind": "steps", "rows": settings.local_batch, "rate": rate}


def _promise(live: LiveTask, mechanism: GridMechanism) -> dict[str, Any]:
    """Say bound, noise, and the sum that enforces."""
    terms, grid, stable = live.plan.terms, mechanism.grid, mechanism.stable
    made: dict[str, Any] = {
        "grid": {
            "order": grid.order,
            "size": grid.size,
            "radius": grid.radius,
            "levels": grid.levels,
            "limit": grid.limit,
            "per": grid.per,
        },
        "noise": {"law": mechanism.law.name, "scale": mechanism.scale},
        "terms": {"filter": terms.limit.kind, "uses": terms.uses, "rows": terms.rows},
    }
    if stable is not None:
        made["stable"] = {
            "moved": stable.moved,
            "rounding": stable.rounding,
            "row": stable.row,
            "part": stable.part,
            "steps": stable.steps,
        }
    return made


def _header(layout: Layout) -> str:
    """Return the header of a message as text, without the eight bytes of its length."""
    return layout.header[8:].decode("ascii")
