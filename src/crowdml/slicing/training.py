"""A crowd of groups that learn side by side: turns within a group, sharing between groups (SliceNet, algorithm 1).

A pass of a group has a turn for every device, in which it is the dominator and the others hold the pieces, dealt out
anew. Devices beyond the pieces are dummies. A device that is away when a turn begins is replaced by a dummy; without
enough devices the turn does not take place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from crowdml.core import Array, BadInput, Batch, record, trees
from crowdml.core.ops import Tree
from crowdml.models import flatten
from crowdml.slicing.sharing import Floats, UploadNoise, Window, choose
from crowdml.slicing.stages import Indices


@record
class Turn:
    """One device's turn as dominator.

    Slicing is exact, so what is learnt does not depend on who holds which piece; when it is learnt does. A follower
    that is lost on the way is replaced by a dummy, and the group goes back to the last cut.

    Attributes:
        dominator: The device whose rows are used.
        followers: The device that holds each piece.
        dummies: Devices that stand by.
    """

    dominator: int
    followers: tuple[int, ...]
    dummies: tuple[int, ...]


def make_groups(devices: int, pieces: int, dummies: int, generator: np.random.Generator) -> list[Indices]:
    """Deal devices into groups of a dominator, `pieces` followers and at least `dummies` dummies, at random."""
    size = 1 + pieces + dummies
    if devices < size:
        raise BadInput(
            f"a group needs {size} devices, the crowd has {devices}",
            where="crowd.devices",
            hint=f"at least {size} devices, or fewer pieces",
        )
    return np.array_split(generator.permutation(devices), devices // size)


def turns(group: Indices, pieces: int, drop_out: float, generator: np.random.Generator) -> tuple[list[Turn], int]:
    """Shuffle a group until every device was dominator once. Returns the turns, and how many could not take place."""
    made, lost = [], 0
    for dominator in generator.permutation(group):
        others = generator.permutation(group[group != dominator])
        present = others[generator.random(len(others)) >= drop_out]
        away = generator.random() < drop_out
        if away or len(present) < pieces:
            lost += 1
            continue
        made.append(
            Turn(
                dominator=int(dominator),
                followers=tuple(present[:pieces].tolist()),
                dummies=tuple(present[pieces:].tolist()),
            )
        )
    return made, lost


Rows = tuple[Floats, Indices]
"""Rows and labels of one device."""

Gradient = Callable[[Tree, Batch, int, Indices], Tree]
"""The mean gradient over a batch of a device's rows, whose numbers come last: of a sliced net, or of a whole one."""


Course = Callable[[Turn, int], int]
"""How many batches of a turn count, of a dominator with so many rows: those up to the last cut, where it is lost."""


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
    group: Group,
    rows: Sequence[Rows],
    rules: Rules,
    rate: float,
    gradient: Gradient,
    generator: np.random.Generator,
    course: Course | None = None,
) -> Floats:
    """Let every device of a group be dominator once. Returns Σ|gradient| of each number: how much it matters."""
    matters = trees.map(np.zeros_like, group.parameters)
    made, lost = turns(group.devices, rules.pieces, rules.drop_out, generator)
    group.lost += lost
    for turn in made:
        order = generator.permutation(len(rows[turn.dominator][1]))
        if course is not None:
            order = order[: course(turn, len(order)) * rules.batch]
        train_turn(group, rows[turn.dominator], turn.dominator, order, rules.batch, rate, gradient, matters)
    return flatten(matters).astype(np.float32)


def train_turn(
    group: Group, rows: Rows, device: int, order: Indices, batch: int, rate: float, gradient: Gradient, matters: Tree
) -> None:
    """Let one device be dominator, with its rows in an order; Σ|gradient| of each weight is added to `matters`."""
    examples, labels = rows
    for begin in range(0, len(order), batch):
        numbers = order[begin : begin + batch]
        slopes = gradient(group.parameters, as_batch(examples[numbers], labels[numbers]), device, numbers)
        take_step(group.parameters, matters, slopes, np.float32(rate))
        group.steps += 1


def as_batch(rows: Floats, targets: Indices) -> Batch:
    """Return rows as a batch without padding."""
    return Batch(rows=rows, targets=targets, mask=np.ones(len(targets), np.float32))


def take_step(parameters: Tree, matters: Tree, gradient: Tree, rate: np.float32) -> None:
    """Take a step in place, and remember how far each weight's slope was from zero."""
    for layer, moved, slopes in zip(parameters, matters, gradient, strict=True):
        for name, slope in slopes.items():
            step(layer[name], slope, rate, name, moved[name])


def step(numbers: Array, slope: Array, rate: np.float32, name: str, matters: Array | None) -> None:
    """Take a step with one array in place; |gradient| of weights is added to `matters`."""
    slope = np.asarray(slope, np.float32)
    if name == "w" and matters is not None:
        matters += np.abs(slope)
    # Statistics of a batch normalisation move towards those of the batch, at most all the way.
    numbers -= min(rate, np.float32(1)) * slope if name in ("mean", "variance") else rate * slope


def share(
    group: Group,
    window: Window,
    matters: Floats,
    owners: Indices,
    rules: Rules,
    like: Tree,
    noise: UploadNoise | None,
    generator: np.random.Generator,
) -> None:
    """Upload what matters most to the server, then take over what enough groups have uploaded."""
    flat = flatten(group.parameters).astype(np.float32)
    if noise is not None:
        # What matters most depends on the rows; where an ε is stated, chance chooses.
        matters = generator.random(len(flat)).astype(np.float32)
    numbers = choose(matters, owners, rules.theta)
    values = flat[numbers]
    if noise is not None:
        values = noise.released(values, window.known(flatten(like))[numbers], generator)
    window.upload(numbers, values)
    numbers, values = window.download(rules.tau)
    flat[numbers] = values
    group.parameters = trees.map(np.array, trees.cut(flat, like))
