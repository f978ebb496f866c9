"""What leaves a device with every check-in: each part, its length, and what protects it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.algorithms.correlated import MATRIX
from crowdml.algorithms.task import Task
from crowdml.core import NUMPY, Array, Batch, record, trees
from crowdml.privacy import Plan
from crowdml.protocol import message

KNOWN = {
    "version": "which version the device started from",
    "samples": "how many rows are summed up",
    "rows": "how many rows were looked at",
    "counted": "how many rows errors were counted over",
    "errors": "how many of them the model got wrong",
    "labels": "how often each label occurs",
    "gradient": "the direction in which the model should move",
    "change": "how the device's own work changed the model",
    "dual": "how its price for being different from the others changed",
    "moments": "products of a row's numbers with each other (ridge: with the label too), summed; sent first",
    "weight": "how much the device counts",
}


@record
class Leaving:
    """One part of a message that leaves a device.

    Attributes:
        name: Its name on the wire.
        what: What it is, in words.
        size_bytes: Its length.
        protection: Bound and noise, or "in clear".
    """

    name: str
    what: str
    size_bytes: int
    protection: str


def leaving(task: Task, plan: Plan) -> tuple[Leaving, ...]:
    """List the parts of a check-in: the leaves of a real one."""
    if plan.inputs or task.recipe.perturbs == "inputs":
        noise = "in clear"
        if plan.inputs:
            noise = f"Laplace noise of scale {plan.inputs.row_scale:.3g}, labels kept with {plan.inputs.keep:.0%}"
        return (
            Leaving(name="rows", what="the rows and labels themselves", size_bytes=4 * task.features, protection=noise),
        )
    if task.recipe.perturbs == "nothing":
        return ()
    if task.recipe.sliced:
        return _leaving_a_group_member(task)
    algorithm, nothing = task.build(NUMPY, _hyper(task, plan)), _Nothing()
    server = algorithm.init(nothing)
    batch = Batch(
        rows=np.zeros((algorithm.batch, task.features), np.float32),
        labels=np.zeros(algorithm.batch, np.int32),
        mask=np.ones(algorithm.batch, np.float32),
    )
    broadcast, device, parts = algorithm.check_out(server), algorithm.device_init(), list[Leaving]()
    for stage in (algorithm.opening, algorithm):
        if stage is not None:
            release, device = stage.device_step(broadcast, device, batch, nothing)
            check_in = message(0, stage.sanitise(release, nothing))
            parts += [_one(path, np.asarray(leaf), plan) for path, leaf in trees.paths(check_in)]
    found = tuple({own.name: own for own in parts}.values())
    return tuple(map(_hidden, found)) if task.masking() else found


def _hidden(own: Leaving) -> Leaving:
    """Say that what would be in clear is masked too: only its sum is seen."""
    return replace(own, protection="masked") if own.protection == "in clear" and own.name != "version" else own


def _leaving_a_group_member(task: Task) -> tuple[Leaving, ...]:
    """Name what a device of a sliced net sends; bytes are for one example, and for the upload after a pass."""
    model, own = task.model_for(NUMPY), task.algorithm
    sums = next(own.shape for own in model.layers if own.factors and not own.mixes)
    first = 4 * math.prod(sums)
    upload = round(4 * own.theta * trees.size(model.zeros()))
    return (
        Leaving(
            name="sums",
            what="a dominator's sums of the first layer, to followers",
            size_bytes=first,
            protection=_simulated_noise(own.cut_noise, own.cut_clip),
        ),
        Leaving(name="slopes", what="slopes of these sums, back from followers", size_bytes=first, protection="none"),
        Leaving(
            name="weights",
            what="a group's weights after a pass, to the server",
            size_bytes=upload,
            protection=_simulated_noise(own.upload_noise, own.upload_clip),
        ),
    )


def _simulated_noise(noise: float, clip: float) -> str:
    """Say what protects what a member of a group passes on."""
    return f"at most {clip:g} in L2; gaussian noise of s.d. {noise * clip:.3g}, simulated" if noise else "none"


def _hyper(task: Task, plan: Plan) -> dict[str, Any]:
    """Return hyper-parameters for a look at shapes, so any matrix will do where noise is correlated."""
    own: dict[str, Any] = dict(task.hyper(plan))
    return own | {MATRIX: np.ones((1, plan.banded.bands), np.float32)} if plan.banded else own


def _one(path: str, leaf: Array, plan: Plan) -> Leaving:
    name = path.removeprefix("content/")
    word = next((word for word in name.split("/") if word in KNOWN), name)
    return Leaving(name=name, what=KNOWN.get(word, name), size_bytes=leaf.nbytes, protection=_protection(word, plan))


def _protection(word: str, plan: Plan) -> str:
    counts, correlated = plan.statistics, ", correlated over messages" if plan.banded else ""
    if word in ("errors", "labels") and plan.sound and plan.sound.update.shared and counts:
        law = plan.sound.update.law.name.replace("-", " ")
        return f"a share of {law} noise of scale {counts.error_scale:g}; then masked"
    if word == "errors" and counts and counts.error_scale:
        return f"discrete Laplace noise of scale {counts.error_scale:g}"
    if word == "labels" and counts and counts.label_scale:
        return f"discrete Laplace noise of scale {counts.label_scale:g}"
    if plan.sound and word in (plan.sound.sends, "moments"):
        own = plan.sound.opening if word == "moments" and plan.sound.opening else plan.sound.update
        grid = own.grid
        return (
            f"each {grid.per} clipped to {grid.radius:.3g} in L{grid.order}, rounded to {grid.levels} levels, checked; "
            f"{'a share of ' if own.shared else ''}{own.law.name.replace('-', ' ')} noise of scale {own.scale:g} levels"
            f"{'; then masked' if own.shared else ''}"
        )
    if word == "gradient" and plan.gradient:
        bound, law = plan.gradient.bound, plan.gradient.law.name
        return f"one example at most {bound.radius:.3g} in L{bound.order}; {law} noise{correlated}, simulated"
    if word in ("change", "dual") and plan.gradient:
        return f"made of a local model with {plan.gradient.law.name} noise, simulated"
    if word == "change" and plan.steps:
        return (
            f"in every step each row's gradient clipped at {plan.steps.radius:g}, gaussian noise of "
            f"{plan.steps.multiplier:.3g} times the sensitivity, simulated"
        )
    if word in ("gradient", "change") and plan.given:
        return f"{plan.given.law.name} noise of s.d. {plan.given.deviation:.3g}{correlated}, simulated"
    return "in clear"


class _Nothing:
    """Coins for a look at shapes: whatever is drawn is nothing."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Return a half."""
        return np.full(shape, 0.5, np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Return zeros."""
        return np.zeros(shape, np.float32)

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Return zeros."""
        return np.zeros(shape, np.int32)

    discrete_gaussian = discrete_laplace
    skellam = discrete_laplace

    def retry(self, number: Array) -> _Nothing:
        """Return the same."""
        return self
