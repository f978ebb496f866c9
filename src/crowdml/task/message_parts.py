"""What leaves a device with every check-in: each part, its length, and what protects it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.algorithms.recipe import SlicedRecipe
from crowdml.core import NUMPY, Array, Batch, record, trees
from crowdml.core.ops import ZeroCoins
from crowdml.privacy import Plan
from crowdml.privacy.sanitisers import Sanitiser
from crowdml.privacy.sanitisers.base import AS_IT_IS, CLEAR
from crowdml.privacy.sanitisers.correlated import MATRIX
from crowdml.task.live_task import first_cut_of
from crowdml.task.task import Task, first_sums_of
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
    "counts/rows": "how many rows were looked at",
    "counts/counted": "how many rows errors were counted over",
}
"""What else is sent, by its name; the task's target has words for the rest."""

ROW_COUNTS = ("counts/rows", "counts/counted")


@record
class MessagePart:
    """One part of a message that leaves a device.

    Attributes:
        name: Its name on the wire.
        what: What it is, in words.
        size_bytes: Its length.
        protection: Bound and noise, or "in clear".
        plainly: What protects it, in words for owners.
        counts_rows: Whether it says how many rows stand behind the message.
    """

    name: str
    what: str
    size_bytes: int
    protection: str
    plainly: str
    counts_rows: bool = False

    @property
    def clear(self) -> bool:
        """Whether whoever gets the message reads this part as it is."""
        return self.plainly == AS_IT_IS

    @property
    def size(self) -> str:
        """Its length for a reader.

        >>> MessagePart(name="version", what="", size_bytes=8, protection="in clear", plainly="").size
        '8 bytes'
        """
        if self.size_bytes < 1000:
            return f"{self.size_bytes} bytes"
        of_thousand = self.size_bytes < 1_000_000
        return f"{self.size_bytes / (1e3 if of_thousand else 1e6):.3g} {'kB' if of_thousand else 'MB'}"


def message_parts(task: Task, plan: Plan) -> tuple[MessagePart, ...]:
    """List the parts of a check-in: the leaves of a real one, of every phase."""
    recipe, sends = task.recipe, task.releases.sends
    if sends == "rows":
        return (
            MessagePart(
                name="rows",
                what=f"the rows and {task.target.noun}s themselves",
                size_bytes=4 * task.features,
                protection=plan.last.describe().get("rows", CLEAR),
                plainly=plan.last.plainly().get("rows", AS_IT_IS),
            ),
        )
    if sends == "nothing":
        return ()
    if isinstance(recipe, SlicedRecipe):
        return _of_a_group_member(task, plan)
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
    if not part.clear or part.name == "version":
        return part
    return replace(part, protection="masked", plainly="hidden by a mask: only a sum of many can be read")


def _of_a_group_member(task: Task, plan: Plan) -> tuple[MessagePart, ...]:
    """Name what a device of a sliced net sends; bytes are for one example, and for the upload after a pass."""
    model, settings, cut = task.model_for(NUMPY), task.algorithm, first_cut_of(task, plan)
    upload = round(4 * settings.theta * trees.size(model.zeros()))
    noisy, noise = cut.describe() if cut else {}, settings.upload_noise
    plainly = cut.plainly() if cut else {}
    if noise:
        clip = settings.upload_clip
        noisy["weights"] = f"at most {clip:g} in L2; gaussian noise of s.d. {noise * clip:.3g}, simulated"
        plainly["weights"] = "noise of a simulation, which protects nobody"
    elif plan.terms.promised:
        noisy["weights"] = "found from sums with noise and from answers, nothing else"
        plainly["weights"] = "made of what has noise already"
    sums = 4 * first_sums_of(model)
    sizes = {
        "sums": ("a dominator's sums of the first layer, to followers", sums),
        "slopes": ("slopes of these sums, back from followers", sums),
        "weights": ("a group's weights after a pass, to the server", upload),
    }
    return tuple(
        MessagePart(
            name=name,
            what=what,
            size_bytes=size,
            protection=noisy.get(name, "none"),
            plainly=plainly.get(name, AS_IT_IS),
        )
        for name, (what, size) in sizes.items()
    )


def _hyper(task: Task, plan: Plan) -> dict[str, Any]:
    """Return hyper-parameters for a look at shapes, so any matrix will do where noise is correlated."""
    return {**task.hyper(plan), MATRIX: np.ones((1, task.privacy.noise_bands or 1), np.float32)}


def _one(path: str, leaf: Array, sanitiser: Sanitiser, known: Mapping[str, str]) -> MessagePart:
    name = path.removeprefix("content/")
    described, plainly = sanitiser.describe(), sanitiser.plainly()
    if (key := name.split("/")[0]) == "update":
        what = UPDATE_PARTS.get("/".join(name.split("/")[1:2])) or UPDATES[sanitiser.use.stage]
    elif name == "weight":
        counted = "how many rows are behind the message" if sanitiser.weighs_rows else "always 1: devices count alike"
        key, what = name, f"how much the message counts: {counted}"
    else:
        key, what = name, known.get(name, name)
    return MessagePart(
        name=name,
        what=what,
        size_bytes=leaf.nbytes,
        protection=described.get(key, CLEAR),
        plainly=plainly.get(key, AS_IT_IS),
        counts_rows=name in ROW_COUNTS or (name == "weight" and sanitiser.weighs_rows),
    )
