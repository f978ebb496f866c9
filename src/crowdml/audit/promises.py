"""Auditing a promise: neighbours searched, claims attacked one by one, the noise of whole check-ins measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.algorithms import Algorithm
from crowdml.algorithms.aggregation.public_rows import ROWS, TARGETS
from crowdml.audit.attack import Claim, Finding, attack
from crowdml.audit.audit_report import Audit
from crowdml.audit.bounds import Confidence
from crowdml.audit.canaries import one_run
from crowdml.audit.neighbours import Bench, Pair, search
from crowdml.audit.whole_check_ins import whole
from crowdml.audit.worlds import sends
from crowdml.core import NUMPY
from crowdml.core.ops import ZeroCoins
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy import Plan
from crowdml.privacy.cost import Cost
from crowdml.task import Task
from crowdml.task.averaging_terms import public_rows_needed

TRIALS = 20_000
CONFIDENCE = 0.99
NOISE_BOUNDS = 1
"""Statements about the noise of whole check-ins, which count in the family."""

Watch = Callable[[float, str], None]


def audit_promise(
    task: Task,
    *,
    trials: int = TRIALS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    control: bool = True,
    family: int = 1,
    watch: Watch = lambda share, what: None,
) -> Audit:
    """Attack the promise of a task whose noise is on the grid.

    Args:
        task: The task; unit, mechanism and recipe are its own.
        trials: Trials in each world, for each bound.
        confidence: Of all bounds together.
        seed: Says where neighbours are looked for; noise always comes from the operating system.
        control: Whether half the noise is attacked beside.
        family: Audits whose bounds are to hold together.
        watch: Called with the share that is done, and with what is going on.
    """
    began = time.perf_counter()
    plan, algorithm = task.calibrated, task.build(NUMPY, _handed(task))
    bench = Bench.of(task, algorithm, whole=plan.terms.unit == "device")
    watch(0.0, "looking for the worst neighbours")
    pair, apart = _worst(bench, seed, range(len(bench.seen)))
    watch(0.1, "working in both worlds")
    claims = claims_of(task, plan, algorithm, bench, pair)
    if len(bench.seen) > 1:
        # Neighbours that are worst for all phases together need not be for one release of the last.
        lasting = len(bench.seen) - 1
        *_, last = sends(bench, _worst(bench, seed, [lasting])[0], lasting + 1, DeviceCoins)
        claims[0] = replace(claims[0], course=(replace(last, times=1),))
    # Canaries need messages that are seen one by one; in a secure sum nobody scores them.
    with_canaries = plan.last.shared is None
    bounds = sum(len(claim.methods) for claim in claims) + NOISE_BOUNDS + with_canaries
    sure = Confidence(level=confidence, family=bounds * family)
    findings = list[Finding]()
    for number, claim in enumerate(claims):
        part = within(watch, claim.what, 0.15 + 0.7 * number / len(claims), 0.7 / len(claims))
        findings += attack(claim, trials, sure, control=control, watch=part)
    if with_canaries:
        watch(0.85, "canaries in one training")
        releases = _releases(task, plan)
        findings.append(one_run(bench, pair, releases, claims[0 if releases == 1 else 1].proven, sure.error))
    watch(0.95, "measuring the noise of whole check-ins")
    measured = whole(bench, pair, bench.seen[-1], sure.error)
    planted = whole(bench, pair, bench.seen[-1].weakened(), sure.error) if control else None
    watch(1.0, "done")
    shared = plan.last.shared
    return Audit(
        task=task.name,
        recipe=task.algorithm.kind,
        unit=plan.terms.unit,
        promised=(plan.terms.limit.epsilon, plan.terms.delta),
        apart=apart,
        findings=tuple(findings),
        measured=measured,
        confidence=confidence,
        family=bounds * family,
        seconds=time.perf_counter() - began,
        rests_on=shared.survivors if shared else 0,
        measured_control=planted,
    )


def within(watch: Watch, what: str, begin: float, width: float) -> Callable[[float], None]:
    """Return what is told of the progress of a part."""
    return lambda share: watch(begin + width * share, what)


def claims_of(task: Task, plan: Plan, algorithm: Algorithm, bench: Bench, pair: Pair) -> list[Claim]:
    """Say what is attacked: one release, all that a unit may enter, and their updates without the counts."""
    terms = plan.terms
    releases = _releases(task, plan)
    course = sends(bench, pair, releases, DeviceCoins)
    last = replace(course[0 if algorithm.remembers_rows else -1], times=1)
    each = plan.last.cost(1, terms.changing)
    total = plan.cost(releases, terms.changing)
    assert each is not None and total is not None  # noqa: S101  sound plans have a cost
    claims = [Claim(what="one release", course=(last,), cost=each, delta=terms.delta)]
    if releases > 1:
        claims.append(Claim(what=f"all {releases} releases", course=course, cost=total, delta=terms.delta))
    if last.counts and not claims[0].is_gaussian and last.seen.order == 2:
        updates = _updates(plan)
        claims.append(
            Claim(what="one release without its counts", course=(last,), cost=updates, delta=terms.delta, counted=False)
        )
    return claims


def _releases(task: Task, plan: Plan) -> int:
    """Return how many releases a unit enters at most."""
    return min(plan.terms.releases, task.stop.max_releases or plan.terms.releases)


def _updates(plan: Plan) -> Cost:
    """Return what the update of one release costs by itself."""
    found = replace(plan.last, counts=None).cost(1, plan.terms.changing)
    assert found is not None  # noqa: S101  sound plans have a cost
    return found


def _worst(bench: Bench, seed: int, phases: Sequence[int]) -> tuple[Pair, float]:
    """Search neighbours whose messages are as far apart as the proof allows."""
    pair, share = search(bench, apart_in(bench, phases), np.random.default_rng(seed))
    return pair, share ** (1 / bench.seen[-1].order)


def apart_in(bench: Bench, phases: Sequence[int]) -> Callable[[Pair], tuple[float, float]]:
    """Return what says how far apart neighbours are, over a release of each of these phases, and what that is worth."""
    allowed = sum(bench.seen[at].allowed(bench.whole) for at in phases)
    # Under Laplace noise a difference in one number is told more easily than the same one in many; under any it is told
    # sooner, above all where every number has the noise of many shares.
    dislike = 0.01 if bench.seen[-1].order == 1 or bench.seen[-1].shares > 1 else 0.001

    def apart(pair: Pair) -> tuple[float, float]:
        course = sends(bench, pair, len(bench.seen), ZeroCoins, pool=1)
        made = [course[at] for at in phases]
        share = sum(sent.apart() for sent in made) / allowed
        numbers = max(sent.updates[0].shape[1] for sent in made)
        return share, share - dislike * math.log2(numbers)

    return apart


def _handed(task: Task) -> dict[str, Any]:
    """Return what the server is given, with public rows that are made up: no promise rests on them."""
    handed: dict[str, Any] = dict(task.hyper(task.calibrated))
    if needed := public_rows_needed(task):
        drawn = np.random.default_rng(0)
        handed[ROWS] = drawn.uniform(-1.0, 1.0, (needed, task.features)).astype(np.float32)
        handed[TARGETS] = drawn.permutation(np.arange(needed) % len(task.data.labels)).astype(np.float32)
    return handed
