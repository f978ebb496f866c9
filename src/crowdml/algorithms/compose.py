"""Composing: the parts that several recipes put together in the same way, from their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crowdml.algorithms.aggregation.mean import Stale
from crowdml.algorithms.aggregation.update_matrix import Aggregation
from crowdml.algorithms.contract import Algorithm, DevicePart, SpeedHints, one_phase
from crowdml.algorithms.device_parts.gradient import Counting, Gradient
from crowdml.algorithms.device_parts.local_steps import SERVER_COUNTERS, LocalSteps
from crowdml.algorithms.rates import Rate
from crowdml.algorithms.recipe import Parts
from crowdml.algorithms.schedule import Schedule
from crowdml.algorithms.server_parts.step import ADD, Step, Tail
from crowdml.core import Array, BadInput, Tree, trees
from crowdml.privacy.sanitisers import LocalWork, Sanitiser


def gradients(
    parts: Parts,
    schedule: Schedule,
    *,
    stale: Stale = "accept",
    by_rows: bool = True,
    held_out: float = 0.0,
    counts: bool = True,
    optimiser: Rate | None = None,
    average_from: int | None = None,
) -> Algorithm:
    """Compose: devices send gradients, and the server steps.

    Args:
        parts: What the algorithm is assembled from; its settings have a `rate`.
        schedule: When devices and server meet.
        stale: What happens to check-ins that started from an old version.
        by_rows: Whether a device counts as much as it has rows.
        held_out: Share of rows that do not train and are counted instead.
        counts: Whether counts are sent, where the terms allow it.
        optimiser: Makes a step of a mean gradient; not given: the rate of the settings.
        average_from: The model is the mean of all versions from this one on.
    """
    rate = parts.settings.rate
    if rate.counter not in SERVER_COUNTERS:
        raise BadInput(
            f'without local steps the rate is the server\'s: it cannot count "{rate.counter}"',
            where="algorithm.rate.counter",
            hint='use counter = "versions" or "check-ins"',
        )
    counting = parts.counting() if counts else None
    sanitiser = bound_sanitiser(parts, "gradient", schedule, by_rows)
    device = Gradient(
        objective=parts.objective(),
        sanitiser=sanitiser,
        predict=parts.model.loss.predict,
        ops=parts.ops,
        counting=counting,
        held_out=held_out,
    )
    server = _step(parts, sanitiser, schedule, stale, counting, average_from)
    server = replace(
        server,
        optimiser=optimiser or rate.build(parts.hyper["rate"], parts.ops),
        regularisation=parts.hyper["regularisation"],
        tells=sanitiser.wants_count,
    )
    return one_phase(device, server, sanitiser, schedule, SpeedHints(apply_batch=server.apply_batch))


def local_steps(
    parts: Parts,
    schedule: Schedule,
    *,
    stale: Stale = "accept",
    by_rows: bool = False,
    through_rows: bool = True,
    proximal: Array | None = None,
    optimiser: Rate = ADD,
    reset: bool = False,
) -> Algorithm:
    """Compose: devices take local steps and send what has changed, and the server averages.

    Args:
        parts: What the algorithm is assembled from; its settings have `rate`, `local_batch` and `group`.
        schedule: When devices and server meet.
        stale: What happens to check-ins that started from an old version.
        by_rows: Whether a device counts as much as it has rows.
        through_rows: Whether a device goes through its rows in turn; False where it is told how many steps to take.
        proximal: μ of a pull back to the parameters checked out (FedProx); None: there is none.
        optimiser: Makes a step of the mean change; not given: the change is added as it is.
        reset: Whether what the devices' rate remembers begins anew with every check-out.
    """
    settings, ops = parts.settings, parts.ops
    counter, rate = settings.rate.counter, settings.rate.build(parts.hyper["rate"], ops)
    sanitiser = bound_sanitiser(parts, "change", schedule, by_rows)
    work = local_work(parts, schedule, through_rows=through_rows, proximal=proximal)
    device: DevicePart = LocalSteps(
        walk=sanitiser.walk(work),
        sanitiser=sanitiser,
        rate=rate,
        counter=counter,
        zeros=parts.model.zeros,
        ops=ops,
        reset=reset,
    )
    server = replace(_step(parts, sanitiser, schedule, stale), optimiser=optimiser, tells=counter in SERVER_COUNTERS)
    multiples = rate.factor is not None and proximal is None and not sanitiser.noise_in_steps
    hints = SpeedHints(in_parts=sanitiser.in_order, multiples=multiples, apply_batch=server.apply_batch)
    return one_phase(device, server, sanitiser, schedule, hints)


def local_work(
    parts: Parts,
    schedule: Schedule,
    *,
    rate: Rate | None = None,
    through_rows: bool = True,
    proximal: Array | None = None,
) -> LocalWork:
    """Say what local steps are, from settings with `rate`, `local_batch` and `group`.

    Args:
        parts: What the algorithm is assembled from.
        schedule: When devices and server meet.
        rate: Makes a step of a gradient; not given: the rate of the settings.
        through_rows: As in `local_steps`.
        proximal: As in `local_steps`.
    """
    settings, ops, c = parts.settings, parts.ops, parts.hyper["rate"]
    own = settings.rate.build(c, ops)
    return LocalWork(
        objective=parts.objective(),
        rate=rate or own,
        largest_rate=c,
        wide_factor=settings.rate.build(ops.wide(c), ops).factor if rate is None else None,
        counts_up=settings.rate.counter == "local-steps" or own.counts_updates,
        size=settings.local_batch,
        padded=schedule.whole,
        through_rows=through_rows,
        group=settings.group,
        proximal=proximal,
    )


def bound_sanitiser(
    parts: Parts, stage: str, schedule: Schedule, by_rows: bool, like: Callable[[], Tree] | None = None
) -> Sanitiser:
    """Bind the sanitiser, and refuse noise that would follow what it cannot.

    Args:
        parts: What the algorithm is assembled from.
        stage: Name of the draws of its noise.
        schedule: When devices and server meet.
        by_rows: Whether a device counts as much as it has rows.
        like: `like()`: zeros of the update's shape; not given: the model's.
    """
    rate, ops = parts.settings.rate, parts.ops
    one = ops.xp.float32(1)

    def rate_share(count: Array) -> Array:
        # The rate as a share of its constant: a power rate makes of 1 what it is at a count.
        return rate.build(one, ops).step((), one, count)[0]

    sanitiser = parts.sanitiser(stage, like=like, alone=schedule.alone, by_rows=by_rows, rate_share=rate_share)
    if sanitiser.wants_count and trees.leaves(rate.build(1.0, ops).init(ops.xp.float32(1))):
        raise BadInput(
            f'the rate "{rate.kind}" differs from number to number, so noise cannot follow it',
            where="privacy.noise-sequence",
            hint='use "iid" or "geometric", or a rate that depends on its counter alone',
        )
    return sanitiser


def _step(
    parts: Parts,
    sanitiser: Sanitiser,
    schedule: Schedule,
    stale: Stale,
    counting: Counting | None = None,
    average_from: int | None = None,
) -> Step:
    """Make the server part: the window that the settings ask for, and whatever is common to both ways of learning."""
    settings = parts.settings
    given = {name: getattr(settings, name) for name in ("learned", "finetune") if hasattr(settings, name)}
    aggregation = Aggregation(
        cohort_size=schedule.cohort,
        stale=stale,
        downhill=1 if sanitiser.use.stage == "change" else -1,
        robust=parts.robust,
        keep_each=parts.keep_each,
        model=parts.model,
        hyper=parts.hyper,
        ops=parts.ops,
        by=getattr(settings, "averaging", "size"),
        **given,
    )
    return Step(
        model=parts.model,
        sanitiser=sanitiser,
        optimiser=ADD,
        window=aggregation.window(),
        radius=parts.hyper["radius"],
        ops=parts.ops,
        tallies=settings.rate.counter == "check-ins" and not schedule.alone,
        counting=counting,
        refine=aggregation.refiner(),
        tail=Tail(begin=average_from, ops=parts.ops),
    )
