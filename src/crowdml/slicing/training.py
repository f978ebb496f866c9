"""A crowd of groups that learn side by side: turns within a group, sharing between groups (SliceNet, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from crowdml.core import Batch, record, trees
from crowdml.core.ops import Tree
from crowdml.models import flatten, unflatten
from crowdml.slicing.groups import turns
from crowdml.slicing.sharing import Floats, UploadNoise, Window, choose
from crowdml.slicing.stages import Indices

Rows = tuple[Floats, Indices]
"""Rows and labels of one device."""

Gradient = Callable[[Tree, Batch, int, Indices], Tree]
"""The mean gradient over a batch of a device's rows, whose numbers come last: of a sliced net, or of a whole one."""


@record
class Rules:
    """How a crowd of groups learns.

    Attributes:
        pieces: Followers of a group.
        batch: Rows in a step.
        rate: Learning rate of the first pass.
        decay: Factor on the rate from each pass to the next.
        theta: Share of each device's weights that is uploaded after a pass.
        tau: A group takes over a number that more than this share of the window's uploads contains.
        drop_out: Probability that a device is away in a turn.
    """

    pieces: int
    batch: int
    rate: float
    decay: float
    theta: float
    tau: float
    drop_out: float


class Group:
    """A group's devices and its model."""

    def __init__(self, devices: Indices, parameters: Tree) -> None:
        """Begin with the server's parameters."""
        self.devices = devices
        self.parameters = trees.map(np.array, parameters)
        self.lost = 0
        self.steps = 0


def train_pass(
    group: Group, rows: Sequence[Rows], rules: Rules, rate: float, gradient: Gradient, generator: np.random.Generator
) -> Floats:
    """Let every device of a group be dominator once. Returns Σ|gradient| of each number: how much it matters."""
    matters = trees.map(np.zeros_like, group.parameters)
    made, lost = turns(group.devices, rules.pieces, rules.drop_out, generator)
    group.lost += lost
    for turn in made:
        examples, labels = rows[turn.dominator]
        order = generator.permutation(len(labels))
        for begin in range(0, len(order), rules.batch):
            own = order[begin : begin + rules.batch]
            batch = Batch(rows=examples[own], labels=labels[own], mask=np.ones(len(own), np.float32))
            _step(group.parameters, matters, gradient(group.parameters, batch, turn.dominator, own), np.float32(rate))
            group.steps += 1
    return flatten(matters).astype(np.float32)


def _step(parameters: Tree, matters: Tree, gradient: Tree, rate: np.float32) -> None:
    """Take a step in place, and remember how far each weight's slope was from zero."""
    for own, moved, slopes in zip(parameters, matters, gradient, strict=True):
        for name, slope in slopes.items():
            slope = np.asarray(slope, np.float32)
            if name == "w":
                moved[name] += np.abs(slope)
            # Statistics of a batch normalisation move towards those of the batch, at most all the way.
            own[name] -= min(rate, np.float32(1)) * slope if name in ("mean", "variance") else rate * slope


def share(
    group: Group,
    window: Window,
    matters: Floats,
    owners: Indices,
    rules: Rules,
    like: Tree,
    noise: UploadNoise | None = None,
    generator: np.random.Generator | None = None,
) -> None:
    """Upload what matters most to the server, then take over what enough groups have uploaded."""
    flat = flatten(group.parameters).astype(np.float32)
    if noise is not None and generator is not None:
        # What matters most depends on the rows; where an ε is stated, chance chooses.
        matters = generator.random(len(flat)).astype(np.float32)
    numbers = choose(matters, owners, rules.theta)
    values = flat[numbers]
    if noise is not None and generator is not None:
        values = noise.released(values, window.known(flatten(like))[numbers], generator)
    window.upload(numbers, values)
    numbers, values = window.download(rules.tau)
    flat[numbers] = values
    group.parameters = trees.map(np.array, unflatten(flat, like))
