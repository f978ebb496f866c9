"""Choosing the attack: one part for each kind of thing that a task gives away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crowdml.algorithms.recipe import Recipe, SlicedRecipe
from crowdml.audit.audit_report import Found
from crowdml.audit.promises import CONFIDENCE, TRIALS, audit_promise
from crowdml.core import BadInput, record
from crowdml.slicing.attacks import Transcript
from crowdml.task import Task


@record
class Options:
    """What whoever runs an audit chooses.

    Attributes:
        trials: Trials in each world.
        confidence: Of all bounds together.
        control: Whether half the noise is attacked beside.
        own_rows: Rows that a reader of sliced training has of its own.
        transcript: Sums that a live follower has recorded; None: they are simulated.
        seed: Where neighbours are looked for, and which rows are attacked.
        watch: Called with the share that is done, and with what is going on.
    """

    trials: int = TRIALS
    confidence: float = CONFIDENCE
    control: bool = True
    own_rows: int = 500
    transcript: Transcript | None = None
    seed: int = 0
    watch: Callable[[float, str], None] = lambda share, what: None


def run(task: Task, options: Options) -> Found:
    """Attack a task by the means that fit it."""
    for applies, attack in PARTS:
        if applies(task):
            return attack(task, options)
    raise BadInput(
        f'in mode "{task.privacy.mode}" nothing of "{task.algorithm.kind}" is attacked: it sends rows themselves',
        where="privacy.mode",
        hint='mode = "sound" for a promise, or mode = "none" to see what is read without one',
    )


def _is_sliced(task: Task) -> bool:
    return isinstance(task.recipe, SlicedRecipe)


def _leaks(task: Task, options: Options) -> Found:
    # Only here: training in pieces needs SciPy and more.
    from crowdml.audit.leak_meter import measure_leaks, read_transcript

    if options.transcript is not None:
        return read_transcript(task, options.transcript)
    return measure_leaks(task, seed=options.seed, own_rows=options.own_rows)


def _attack(options: Options) -> dict[str, Any]:
    """Return what an attack in two worlds is told."""
    return {name: getattr(options, name) for name in ("trials", "confidence", "seed", "control", "watch")}


def _is_promised(task: Task) -> bool:
    return task.calibrated.terms.promised


def _promise(task: Task, options: Options) -> Found:
    return audit_promise(task, **_attack(options))


def _is_claimed(task: Task) -> bool:
    return isinstance(task.recipe, Recipe) and task.calibrated.simulated and task.calibrated.last.adds_noise


def _claim(task: Task, options: Options) -> Found:
    from crowdml.audit.paper_claims import audit_paper

    return audit_paper(task, **_attack(options))


def _is_open(task: Task) -> bool:
    return isinstance(task.recipe, Recipe) and not task.calibrated.last.adds_noise


def _expose(task: Task, options: Options) -> Found:
    # Only here: a crowd is simulated, and JAX takes long to load.
    from crowdml.audit.exposure import expose

    options.watch(0.0, "reading check-ins")
    return expose(task, seed=options.seed)


PARTS: tuple[tuple[Callable[[Task], bool], Callable[[Task, Options], Found]], ...] = (
    (_is_sliced, _leaks),
    (_is_promised, _promise),
    (_is_claimed, _claim),
    (_is_open, _expose),
)
"""Which attack fits which task; the first that does is made."""
