"""Devices that learn alone: baselines in which nothing leaves a device, and a device's own model on top of the crowd's.

`Solitary` takes a step per batch, `Fit` fits all rows at once, and both tell nobody; their server only counts versions.
`personal_model` starts from what the crowd has learnt: the common model knows what all devices share, and a few steps
more adapt it to one owner's hand. All this costs no privacy: nobody but the owner sees what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.algorithms.contract import DevicePart, ServerPart
from crowdml.algorithms.device_parts.prox import Solve
from crowdml.algorithms.rates import Rate
from crowdml.core import Array, Batch, Broadcast, CheckIn, Coins, Ops, Release, Settings, record, tree_record, trees
from crowdml.core.ops import Tree, onto_ball
from crowdml.models import Model
from crowdml.privacy.sanitisers import Objective


@tree_record
class SolitaryState:
    """A device's model: parameters, what its rate remembers, and steps taken."""

    parameters: Tree
    memory: Tree
    steps: Array


@record
class Solitary(DevicePart):
    """One step per batch on a model of the device's own.

    Attributes:
        objective: The model.
        rate: The device's rate; it counts the device's steps.
        radius: The parameters stay in a ball of this radius.
        zeros: `zeros()`: parameters, all zero.
        ops: Array operations.
    """

    objective: Objective
    rate: Rate
    radius: Array
    zeros: Callable[[], Tree]
    ops: Ops

    def init(self) -> SolitaryState:
        """Begin with nothing: the first parameters come with the first check-out."""
        zero = self.zeros()
        return SolitaryState(parameters=zero, memory=self.rate.init(zero), steps=self.ops.xp.int32(0))

    def step(
        self, broadcast: Broadcast, work: SolitaryState, batch: Batch, coins: Coins
    ) -> tuple[Release, SolitaryState]:
        """Take a step."""
        xp = self.ops.xp
        # All devices begin with the parameters that the task began with.
        here = trees.map(
            lambda first, now: xp.where(work.steps == 0, first, now), broadcast.parameters, work.parameters
        )
        steps, rows = work.steps + xp.int32(1), xp.sum(batch.mask)
        total = self.objective.gradients(here, batch).total(batch.mask / xp.maximum(rows, xp.float32(1)))
        gradient = trees.map(lambda mean, common: mean + common, total, self.objective.regulariser(here))
        change, memory = self.rate.step(work.memory, gradient, steps)
        moved = trees.map(lambda old, new: old - new, here, change)
        after = SolitaryState(parameters=onto_ball(moved, self.radius, self.ops), memory=memory, steps=steps)
        return Release(update=(), rows=rows.astype(xp.int32)), after

    def model(self, work: SolitaryState) -> Tree:
        """Return the device's model."""
        return work.parameters


@record
class Fit(DevicePart):
    """A fit of the device's rows, as good as it can; nothing leaves the device."""

    solve: Solve
    zeros: Callable[[], Tree]
    ops: Ops

    def init(self) -> Tree:
        """Begin at zero."""
        return self.zeros()

    def step(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Fit, from the last fit on."""
        return Release(update=(), rows=batch.count(self.ops.xp)), self.solve(self.zeros(), work, batch)

    def model(self, work: Tree) -> Tree:
        """Return the fit."""
        return work


@tree_record
class CountState:
    """First parameters, and commits so far."""

    parameters: Tree
    version: Array


@record
class CountOnly(ServerPart):
    """First parameters for everybody, and nothing else."""

    model: Any
    ops: Ops

    def init(self, coins: Coins) -> CountState:
        """Begin."""
        return CountState(parameters=self.model.init(coins), version=self.ops.xp.int32(0))

    def absorb(self, server: CountState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[Tree, Tree]:
        """Learn nothing: there is nothing in it."""
        return server, row

    def commit(self, server: CountState) -> tuple[Tree, Tree]:
        """Count."""
        return replace(server, version=server.version + self.ops.xp.int32(1)), {}


class PersonalSettings(Settings):
    """Steps of a device's own, on top of the common model."""

    steps: int = Field(0, ge=0, description="steps each device takes for itself at the end; 0: none")
    batch: int = Field(10, gt=0, description="rows per step, in turn")
    rate: float = Field(0.1, gt=0, description="learning rate, constant")


def personal_model(
    model: Model,
    parameters: Tree,
    rows: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int32],
    settings: PersonalSettings,
) -> Tree:
    """Take the steps and return the device's own parameters; rows are as the model sees them.

    Args:
        model: The model, over NumPy.
        parameters: The common model.
        rows: The device's own rows, in any order: they are used in turn.
        labels: Their class numbers.
        settings: How many steps, and how large.
    """
    size = min(settings.batch, len(rows))
    for step in range(settings.steps if size else 0):
        chosen = (np.arange(size) + step * size) % len(rows)
        batch = Batch(rows=rows[chosen], targets=labels[chosen], mask=np.ones(size, np.float32))
        mean = model.gradients(parameters, batch).total(np.full(size, 1 / size, np.float32))
        parameters = trees.map(lambda leaf, down: leaf - np.float32(settings.rate) * down, parameters, mean)
    return parameters
