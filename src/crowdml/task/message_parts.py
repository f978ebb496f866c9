"""What leaves a device with every check-in: each part, its length, and what protects it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.algorithms.recipe import SlicedRecipe
from crowdml.core import NUMPY, Array, Batch, record, trees
from crowdml.core.ops import ZeroCoins
from crowdml.privacy import Plan
from crowdml.privacy.sanitisers import Sanitiser
from crowdml.privacy.sanitisers.correlated import MATRIX
from crowdml.task.task import Task
from crowdml.wire import message

UPDATES = {
    "gradient": "the direction in which the model should move",
    "change": "how the device's work changed the model",
    "local": "how its local model, and its price for being different from the others, have changed",
    "moments": "products of a row's numbers with each other (ridge: with the target too), summed; sent first",
}
"""What an update is, by the name of its noise."""

UPDATE_PARTS = {
    "control": "how the device's control variate, a step of its own on average, has changed; bounded with the rest",
    "below": "whether the change was no longer than the clip that was broadcast; bounded with the rest",
}
"""What a part of an update is that is no part of a model, by its name."""

KNOWN = {
    "version": "which version the device started from",
    "weight": "how much the device counts: the rows behind it, or 1",
    "counts/rows": "how many rows were looked at",
    "counts/counted": "how many rows errors were counted over",
}
"""What else is sent, by its name; the task's target has words for the rest."""


@record
class MessagePart:
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


def message_parts(task: Task, plan: Plan) -> tuple[MessagePart, ...]:
    """List the parts of a check-in: the leaves of a real one, of every phase."""
    recipe, sends = task.recipe, task.releases.sends
    if sends == "rows":
        noise = plan.last.describe().get("rows", "in clear")
        return (
            MessagePart(
                name="rows",
                what=f"the rows and {task.target.noun}s themselves",
                size_bytes=4 * task.features,
                protection=noise,
            ),
        )
    if sends == "nothing":
        return ()
    if isinstance(recipe, SlicedRecipe):
        return _of_a_group_member(task)
    algorithm, nothing = task.build(NUMPY, _hyper(task, plan)), ZeroCoins()
    size = algorithm.schedule.batch
    batch = Batch(
        rows=np.zeros((size, task.features), np.float32),
        targets=np.zeros(size, task.target.dtype),
        mask=np.ones(size, np.float32),
    )
    known = KNOWN | {f"counts/{name}": words for name, words in task.target.counted.items()}
    server = algorithm.last.server
    broadcast, device, parts = server.check_out(server.init(nothing)), algorithm.last.begin(), list[MessagePart]()
    for phase in algorithm.phases:
        check_in, device = phase.contribute(broadcast, device, batch, nothing)
        sent = message(0, check_in)
        parts += [_one(path, np.asarray(leaf), phase.sanitiser, known) for path, leaf in trees.paths(sent)]
    found = tuple({part.name: part for part in parts}.values()) if len(algorithm.phases) == 1 else tuple(parts)
    return tuple(map(_hidden, found)) if task.masking() else found


def _hidden(part: MessagePart) -> MessagePart:
    """Say that what would be in clear is masked too: only its sum is seen."""
    clear = part.protection == "in clear" and part.name != "version"
    return replace(part, protection="masked") if clear else part


def _of_a_group_member(task: Task) -> tuple[MessagePart, ...]:
    """Name what a device of a sliced net sends; bytes are for one example, and for the upload after a pass."""
    model, settings = task.model_for(NUMPY), task.algorithm
    sums = next(layer.shape for layer in model.layers if layer.factors and not layer.mixes)
    first = 4 * math.prod(sums)
    upload = round(4 * settings.theta * trees.size(model.zeros()))
    return (
        MessagePart(
            name="sums",
            what="a dominator's sums of the first layer, to followers",
            size_bytes=first,
            protection=_simulated_noise(settings.cut_noise, settings.cut_clip),
        ),
        MessagePart(
            name="slopes", what="slopes of these sums, back from followers", size_bytes=first, protection="none"
        ),
        MessagePart(
            name="weights",
            what="a group's weights after a pass, to the server",
            size_bytes=upload,
            protection=_simulated_noise(settings.upload_noise, settings.upload_clip),
        ),
    )


def _simulated_noise(noise: float, clip: float) -> str:
    """Say what protects what a member of a group passes on."""
    return f"at most {clip:g} in L2; gaussian noise of s.d. {noise * clip:.3g}, simulated" if noise else "none"


def _hyper(task: Task, plan: Plan) -> dict[str, Any]:
    """Return hyper-parameters for a look at shapes, so any matrix will do where noise is correlated."""
    return {**task.hyper(plan), MATRIX: np.ones((1, task.privacy.noise_bands or 1), np.float32)}


def _one(path: str, leaf: Array, sanitiser: Sanitiser, known: Mapping[str, str]) -> MessagePart:
    name = path.removeprefix("content/")
    described = sanitiser.describe()
    if name.split("/")[0] == "update":
        part = UPDATE_PARTS.get("/".join(name.split("/")[1:2]))
        what, protection = part or UPDATES[sanitiser.use.stage], described["update"]
    else:
        what, protection = known.get(name, name), described.get(name, "in clear")
    return MessagePart(name=name, what=what, size_bytes=leaf.nbytes, protection=protection)
