"""What a simulated task claims to promise, and what it really adds up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crowdml.algorithms import Task
from crowdml.core import NUMPY
from crowdml.data import Fitted
from crowdml.privacy import Promise
from crowdml.simulation.timeline import Timeline


def report(task: Task, timelines: Sequence[Timeline]) -> dict[str, Any]:
    """Return claim and corrected ε, for one sample and for one device, over the whole task.

    A sample enters one release per pass. A device is in all its releases, and replacing all its rows changes a batch
    in all its places at once.
    """
    plan = task.plan(task.model_for(NUMPY))
    if plan.gradient is None:
        return {
            "mode": plan.mode,
            "sample": None,
            "device": None,
            "paper_claim": None,
            "guarantee": "no formal guarantee",
        }
    releases = max(timeline.releases for timeline in timelines)
    per_sample = plan.spent(min(task.crowd.passes, releases))
    batch = timelines[0].rows.shape[1]
    return {
        "mode": plan.mode,
        "sample": _plain(per_sample.promise(plan.delta)),
        "device": _plain(plan.spent(releases).grouped(batch).promise(plan.delta)),
        "paper_claim": _plain(plan.claim) if plan.claim else None,
        "guarantee": "replace-one; simulated noise, so nothing is promised to anyone",
    }


def notes(task: Task, fitted: Sequence[Fitted]) -> tuple[str, ...]:
    """Name what the ε leaves out."""
    pairs = zip(task.data.transform, fitted, strict=True)
    private = [transform.kind for transform, found in pairs if found.private_fit]
    if private and task.privacy.mode != "none":
        return (f"{' and '.join(private)} fitted on the training rows: not accounted",)
    return ()


def _plain(promise: Promise) -> dict[str, float]:
    return {"epsilon": round(promise.epsilon, 6), "delta": promise.delta}
