"""dp-fedavg: federated averaging whose clip follows a quantile of the changes' lengths (Andrew and others 2021).

A change is clipped at S, which is broadcast, and sent in units of S; beside it, in the same message, travels a bit:
whether the change was no longer than S. The server learns from the mean of the bits which share of the crowd is
clipped, and moves S towards where that share is the one wanted:

    S ← S · exp(-rate · (mean bit - quantile))

For a clip that stays as it is, use fedavg with unit = "device".

Guarantee (sound mode): what a device sends is clip₁(√(1-s) · change/max(‖change‖, S), ±√s) plus fresh noise, where s is
`bit-share`. The two parts together are at most 1 long, whatever the change and whatever S is: that is checked in whole
numbers, after rounding. S follows from earlier check-ins, which are public, and a device's state from its rows and from
what was broadcast, never from noise. So every release is one of a bounded vector with fresh noise, given the history;
neighbours differ by at most 2, for a device as for a sample, and the ledger charges each release as any other. The
bit's share of the budget is s: it is part of the bounded vector, and has the same noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms import compose
from crowdml.algorithms.contract import Algorithm, DevicePart, ServerPart, SpeedHints, one_phase
from crowdml.algorithms.device_parts.local_steps import SERVER_COUNTERS, LocalSteps
from crowdml.algorithms.rates import RATES, Constant, Rate
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.recipes.federated.fedavg import server_optimiser
from crowdml.algorithms.recipes.local_sgd import GROUP, RADIUS
from crowdml.algorithms.schedule import Rounds
from crowdml.core import Array, Batch, Broadcast, CheckIn, Coins, OneOf, Ops, Release, Settings, record, trees
from crowdml.core.ops import onto_ball
from crowdml.core.records import tree_record
from crowdml.core.trees import Tree
from crowdml.models import FlatModel
from crowdml.privacy.releases import Releases
from crowdml.privacy.sanitisers import Sanitiser, Walk

LEAST_CLIP, LARGEST_CLIP = 1e-12, 1e12
"""S stays between these, whatever check-ins or a server say."""


class DpFedAvgSettings(Settings):
    """The `[algorithm]` section of a dp-fedavg task."""

    kind: Literal["dp-fedavg"] = "dp-fedavg"
    per_round: int = Field(10, gt=0, description="devices invited to each round")
    epochs: int = Field(1, gt=0, description="times a device goes through its rows in a round")
    local_batch: int = Field(10, gt=0, description="rows per step")
    rate: Annotated[Any, OneOf(RATES)] = Field(Constant(c=3.0), description="learning rate of the devices")
    rate_memory: Literal["keep", "reset"] = Field(
        "reset", description="whether what a device's rate remembers is kept until its next round, or begins anew"
    )
    server: Annotated[Any, OneOf(RATES)] = Field(
        Constant(c=1.0), description="what the server makes of the mean change; a constant c is its learning rate"
    )
    first_clip: float = Field(1.0, gt=0, description="S in the first round")
    quantile: float = Field(0.5, ge=0, le=1, description="share of changes that should be no longer than S")
    clip_rate: float = Field(0.2, ge=0, description="how fast S follows; 0: it stays as it is")
    bit_share: float = Field(
        0.05, gt=0, lt=1, description="part of a message's squared length that tells whether its change was clipped"
    )
    radius: float = RADIUS
    group: int = GROUP


@tree_record
class Clipped:
    """A change in units of S, and whether it was no longer than S: a positive number, or a negative one."""

    change: Tree
    below: Array


@tree_record
class ClipState:
    """The server's state.

    Attributes:
        parameters: The model.
        clip: S.
        memory: What the optimiser remembers.
        version: Commits so far.
        window: Sum of messages since the last commit.
        heard: How many they were.
    """

    parameters: Tree
    clip: Array
    memory: Tree
    version: Array
    window: Tree
    heard: Array


@record
class ClippedSteps(DevicePart):
    """Local steps, clipped at what the server says, with a bit that tells whether they were.

    Attributes:
        steps: The local steps.
        sanitiser: Bounds change and bit together.
        share: The bit's part of a message's squared length.
        ops: Array operations.
    """

    steps: LocalSteps
    sanitiser: Sanitiser
    share: float
    ops: Ops

    def init(self) -> Tree:
        """Begin as local steps do."""
        return self.steps.init()

    def step(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Take the steps; clip, and tell whether that changed anything."""
        xp = self.ops.xp
        moved, after = self.steps.walked(broadcast, work, batch, coins)
        clip = usable_clip(broadcast.more, self.ops)
        length = xp.sqrt(sum(xp.sum(leaf * leaf) for leaf in trees.leaves(moved)))
        factor = xp.float32(math.sqrt(1 - self.share)) / xp.maximum(length, clip)
        bit = xp.where(length <= clip, xp.float32(1), xp.float32(-1)) * xp.float32(math.sqrt(self.share))
        message = Clipped(change=trees.map(lambda leaf: leaf * factor, moved), below=bit)
        return Release(update=self.sanitiser.bound_message(message, coins), rows=batch.count(xp)), after


@record
class FollowQuantile(ServerPart):
    """Average, step, and move S.

    Attributes:
        model: First parameters, as a tree or as one vector.
        sanitiser: Reads check-ins.
        optimiser: Makes a step of the mean change.
        settings: First S, quantile and rate of S, and the bit's share.
        tells: Whether devices ask for the counter.
        radius: Parameters stay in a ball of this radius.
        ops: Array operations.
    """

    model: Any
    sanitiser: Sanitiser
    optimiser: Rate
    settings: DpFedAvgSettings
    tells: bool
    radius: Array
    ops: Ops

    def init(self, coins: Coins) -> ClipState:
        """Begin with the model's first parameters and the first S."""
        first, xp = self.model.init(coins), self.ops.xp
        return ClipState(
            parameters=first,
            clip=xp.float32(self.settings.first_clip),
            memory=self.optimiser.init(first),
            version=xp.int32(0),
            window=self._empty(),
            heard=xp.float32(0),
        )

    def check_out(self, server: ClipState) -> Broadcast:
        """Tell parameters and S."""
        count = server.version + self.ops.xp.int32(1) if self.tells else ()
        return Broadcast(parameters=server.parameters, count=count, more=server.clip)

    def absorb(self, server: ClipState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[Tree, Tree]:
        """Add up."""
        update, weight = self.sanitiser.read(check_in, lambda: None)
        window = trees.map(lambda total, leaf: total + leaf, server.window, update)
        return replace(server, window=window, heard=server.heard + weight.astype(self.ops.xp.float32)), row

    def commit(self, server: ClipState) -> tuple[Tree, Tree]:
        """Make a step of the mean change at this S, then move S."""
        xp, settings = self.ops.xp, self.settings
        heard, total = xp.maximum(server.heard, xp.float32(1)), self._parts(server.window)
        unit = server.clip / (heard * xp.float32(math.sqrt(1 - settings.bit_share)))
        mean = trees.map(lambda leaf: leaf * unit, total.change)
        version = server.version + xp.int32(1)
        change, memory = self.optimiser.step(server.memory, mean, version)
        moved = trees.map(lambda old, step: old - step, server.parameters, change)
        # Noise may carry a mean of bits beyond what a share can be.
        below = xp.clip(0.5 + 0.5 * total.below / (heard * xp.float32(math.sqrt(settings.bit_share))), 0, 1)
        clip = server.clip * xp.exp(-xp.float32(settings.clip_rate) * (below - xp.float32(settings.quantile)))
        after = ClipState(
            parameters=onto_ball(moved, self.radius, self.ops),
            clip=usable_clip(clip, self.ops),
            memory=memory,
            version=version,
            window=self._empty(),
            heard=xp.float32(0),
        )
        return after, {}

    def _empty(self) -> Tree:
        """Begin a window, of the shape that updates have: one vector where parameters are one."""
        zeros, xp = self.model.zeros(), self.ops.xp
        if isinstance(self.model, FlatModel):
            return xp.concatenate([zeros, xp.zeros(1, dtype=xp.float32)])
        return Clipped(change=zeros, below=xp.float32(0))

    def _parts(self, window: Tree) -> Clipped:
        return window if isinstance(window, Clipped) else Clipped(change=window[:-1], below=window[-1])


def usable_clip(clip: Array, ops: Ops) -> Array:
    """Return a clip that something can be divided by, whatever was broadcast."""
    xp = ops.xp
    known = xp.where(xp.isfinite(clip), clip, xp.float32(1)).astype(xp.float32)
    return xp.clip(known, xp.float32(LEAST_CLIP), xp.float32(LARGEST_CLIP))


def build(parts: Parts) -> Algorithm:
    """Assemble: rounds, as in fedavg, with a clip that follows."""
    settings, ops, zeros = parts.settings, parts.ops, parts.model.zeros
    schedule = Rounds(cohort=settings.per_round, epochs=settings.epochs, multiple=settings.local_batch)
    sanitiser = parts.sanitiser(
        "change", alone=False, by_rows=False, like=lambda: Clipped(change=zeros(), below=ops.xp.float32(0))
    )
    walk: Walk = sanitiser.walk(compose.local_work(parts, schedule))
    steps = LocalSteps(
        walk=walk,
        sanitiser=sanitiser,
        rate=settings.rate.build(parts.hyper["rate"], ops),
        counter=settings.rate.counter,
        zeros=zeros,
        ops=ops,
        reset=settings.rate_memory == "reset",
    )
    device = ClippedSteps(steps=steps, sanitiser=sanitiser, share=settings.bit_share, ops=ops)
    server = FollowQuantile(
        model=parts.model,
        sanitiser=sanitiser,
        optimiser=server_optimiser(parts),
        settings=settings,
        tells=settings.rate.counter in SERVER_COUNTERS,
        radius=parts.hyper["radius"],
        ops=ops,
    )
    return one_phase(device, server, sanitiser, schedule, SpeedHints(in_parts=sanitiser.in_order))


def _releases(settings: DpFedAvgSettings) -> Releases:
    """Say what is sent: a change and a bit, together no longer than 1."""
    return Releases(
        sends="change",
        size=lambda model: model + 1,
        bound=1.0,
        inside=(("telling whether a change was clipped", settings.bit_share),),
        on_grid=True,
    )


DP_FEDAVG = Recipe(
    settings=DpFedAvgSettings,
    hyper={"rate": "rate.c", "server-rate": "server.c", "radius": "radius"},
    build=build,
    releases=_releases,
    live=True,
    cohort_size=lambda settings: int(settings.per_round),
)
