"""Checks of a whole task: what no single key can tell, because two sections have to fit each other.

A section checks itself. Here everything is built once, for nothing, and what could not be kept, or would change
nothing, is refused with the key to blame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crowdml.algorithms.conformity import OUTSIDE
from crowdml.algorithms.recipe import Recipe, SlicedRecipe
from crowdml.core import BadInput
from crowdml.models import Own
from crowdml.models.adapters import adapt
from crowdml.task.averaging_terms import public_rows_needed
from crowdml.task.live_task import masked_forms
from crowdml.task.sections import CrowdSettings
from crowdml.task.task import USER_MODEL, Task
from crowdml.task.user_models import require_loop_terms


def check(task: Task) -> None:
    """Refuse a task that could not be run, or that would not do what it says."""
    _check_comparing(task)
    if isinstance(task.recipe, SlicedRecipe):
        _check_sliced(task)
    if isinstance(task.recipe, Recipe):
        task.require_conforming()
        task.built  # noqa: B018  what cannot be assembled is refused here
        require_loop_terms(task)
    else:
        task.calibrated  # noqa: B018  what cannot be kept is refused here
    _check_crowd(task)
    _check_sums(task)
    _check_uses(task)
    if task.privacy.noise_sequence != "iid" and not task.releases.sequences:
        raise BadInput(
            f"{task.algorithm.kind} adds the same noise to every message",
            where="privacy.noise-sequence",
            hint='leave it out, or use kind = "local-sgd" with local-steps = 0',
        )
    _check_averaging(task)
    _check_owners(task)
    _check_correlated(task)
    if task.stop.error_below is not None and task.calibrated.last.counts is None:
        raise BadInput(
            "no counts are sent, so the error cannot be estimated",
            where="stop.error-below",
            hint="give privacy.statistics-epsilon and algorithm.statistics = true, or leave error-below out",
        )


def with_model(task: Task, model: Any) -> Task:
    """Return the task with a model that is handed in, instead of the one of its file; checked as a file would be.

    Args:
        task: The task; the strength of its regulariser stays.
        model: A module of flax, equinox or PyTorch, or one of `crowdml.JaxModel`, `FlaxModel`, `EquinoxModel` and
            `TorchModel`.
    """
    adapted = adapt(model)
    # A name that no other model has: whatever is kept of a run is found again by it.
    name = f"in-memory-{adapted.serial}"
    OUTSIDE.add((USER_MODEL, name))
    held = Own(name=name, regularisation=task.model.regularisation).holding(adapted)
    made = task.model_copy(update={"model": held})
    check(made)
    return made


def _refuse_given(given: Mapping[str, Any], what: str, hint: str) -> None:
    """Refuse the first key of the crowd that was given."""
    for name in (name for name, value in given.items() if value):
        raise BadInput(what, where=f"crowd.{name}", hint=hint)


def _check_comparing(task: Task) -> None:
    """Refuse rules and attackers where a recipe never has several check-ins, before anything is built."""
    for where, asked in (("robust.rule", task.robust.asked), ("crowd.attack", bool(task.crowd.attack.byzantine(1)))):
        if asked and not task.recipe.gathers:
            raise BadInput(
                f"{task.algorithm.kind} never has several check-ins to compare",
                where=where,
                hint='use kind = "fedavg", "fedsgd", or "local-sgd" with a server-batch',
            )


def _check_sliced(task: Task) -> None:
    """Refuse terms and a crowd that pieces of a net know nothing of."""
    promised, settings = task.calibrated.terms.promised, task.algorithm
    for name in ("cut_noise", "upload_noise") if promised else ("label_epsilon",):
        if getattr(settings, name):
            raise BadInput(
                "sound mode works the noise out from epsilon"
                if promised
                else "labels are answered at random where samples are promised something",
                where=f"algorithm.{name.replace('_', '-')}",
                hint="leave it out" if promised else 'leave it out, or use mode = "sound" with epsilon and delta',
            )
    plain, names = CrowdSettings(), ("delays", "outages", "joining", "leaving")
    _refuse_given(
        {name: getattr(task.crowd, name) != getattr(plain, name) for name in names},
        f"groups of {task.algorithm.kind} wait for each of their devices: this changes nothing",
        "leave it out; drop-out takes devices out of turns, relay.loss-every loses them on the way",
    )


def _check_crowd(task: Task) -> None:
    """Refuse what would change nothing."""
    crowd, kind = task.crowd, task.algorithm.kind
    if not isinstance(task.recipe, SlicedRecipe):
        _refuse_given(
            {"relay": crowd.relay != CrowdSettings().relay},
            f"devices of {kind} send nothing to each other: this changes nothing",
            "leave it out; crowd.delays make messages travel",
        )
    schedule = task.schedule
    if not (schedule and schedule.invites):
        _refuse_given(
            {"rounds": crowd.rounds},
            f"{kind} has no rounds: nobody is invited to them",
            "crowd.passes (times the crowd goes through its rows), or stop.max-versions (end after so many versions)",
        )
    if not (schedule and schedule.whole):
        _refuse_given(
            {"speeds": crowd.speeds.sigma or crowd.speeds.jitter},
            f"devices of {kind} check in as their rows come: speeds change nothing",
            "leave them out; crowd.delays make messages travel",
        )
    if schedule and schedule.waits:
        _refuse_given(
            {"drop-out": crowd.drop_out},
            "a device whose check-in is lost would wait for ever",
            "leave it out; a low barrier and speeds show what slow devices do",
        )
    if schedule and schedule.whole:
        what, instead = f"devices of {kind} begin anew with each version", "crowd.speeds say how fast they are"
        if schedule.invites:
            what, instead = f"{kind} invites devices to rounds and waits for them", "drop-out loses check-ins"
        unused = {"outages": crowd.outages.lasting, "joining": crowd.joining, "leaving": crowd.leaving}
        _refuse_given(
            {"delays": crowd.delays.any} | unused, f"{what}: this changes nothing", f"leave it out; {instead}"
        )
    if task.releases.sends == "rows":
        _refuse_given(
            {"delays": crowd.delays.any},
            "a central server learns at its own pace: nothing it does is delayed",
            f"leave the delays out for {kind}",
        )


def _check_sums(task: Task) -> None:
    """Refuse sums that could wrap, or that no threshold can unmask."""
    if task.masking():
        masked_forms(task, task.built)
        if getattr(getattr(task.algorithm, "rate", None), "counter", "") == "check-ins":
            raise BadInput(
                "secure aggregation makes one step for all members of a sum: check-ins are not counted one by one",
                where="algorithm.rate.counter",
                hint='use counter = "versions"',
            )
    elif task.recipe.cohort_size and getattr(task.algorithm, "statistics", False):
        raise BadInput(
            "counts of a round are sent under secure aggregation only",
            where="algorithm.statistics",
            hint="add secure-aggregation.enabled = true, or leave statistics out",
        )


def _check_uses(task: Task) -> None:
    """Refuse a pass that the ledger could not cover."""
    covered, most = task.covered_passes, task.most_uses or 0
    if covered is not None and task.passes > covered:
        raise BadInput(
            f"pass {covered + 1} of {task.passes} is not covered: a sample may enter {most} release{'s' * (most > 1)}",
            where="crowd.rounds" if task.crowd.rounds else "crowd.passes",
            hint=f"{_longest(task, covered)}, or a larger privacy.max-uses and more noise",
        )


def _longest(task: Task, covered: int) -> str:
    """Return how long the crowd may learn, as the task says it."""
    if not task.crowd.rounds:
        return f"passes = {covered}"
    schedule = task.built.schedule
    return f"rounds = {max(1, covered * task.crowd.devices // (schedule.cohort * schedule.epochs))}"


def _check_averaging(task: Task) -> None:
    """Refuse weights and rules that cannot be had together, and such as need rows that nobody has."""
    by = getattr(task.algorithm, "averaging", None)
    if by in ("inverse-variance", "learned") and task.robust.rule.kind not in ("none", "mean"):
        raise BadInput(
            f"{task.robust.rule.kind} makes an update by itself: there is nothing left to weigh",
            where="robust.rule",
            hint='rule = { kind = "mean" } bounds check-ins before they are weighed',
        )
    if task.secure_aggregation.enabled and task.built.last.server.takes == "individuals":
        raise BadInput(
            "rules and weights compare check-ins one by one; under secure aggregation the server sees their sum alone",
            where="secure-aggregation.enabled",
            hint='leave it out, or leave out [robust], crowd.attack and averaging = "learned" or "inverse-variance"',
        )
    needed = public_rows_needed(task)
    if task.data.public < needed:
        raise BadInput(
            f"the server needs public rows, at least {needed}, with every label among them",
            where="data.public",
            hint=f"public = {max(needed, 500)} declares so many rows public; no device holds them",
        )


def _check_owners(task: Task) -> None:
    """Refuse what owners could not choose."""
    chosen = task.crowd.owner_epsilon
    try:
        for epsilon in chosen.values:
            task.calibrated.for_owner(epsilon)
    except BadInput as error:
        raise BadInput(error.what, where="crowd.owner-epsilon", hint=error.hint) from None
    if chosen.values and 0 in chosen.counts(task.crowd.devices):
        raise BadInput(
            f"some values fall to none of {task.crowd.devices} devices",
            where="crowd.owner-epsilon",
            hint="larger shares, or more devices",
        )


def _check_correlated(task: Task) -> None:
    """Refuse an ε for correlated noise where a device would draw the noise of a release again."""
    noise = task.calibrated.last
    if noise.wants_matrix is not None and noise.promises:
        _refuse_given(
            {"drop-out": task.crowd.drop_out, "delays": task.crowd.delays.any},
            "correlated noise has its matrix-mechanism bound only where every check-in is used",
            "leave it out, or give noise-scale instead of epsilon: then no ε is stated",
        )
