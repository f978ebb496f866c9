"""scaffold: local steps corrected by control variates (Karimireddy and others 2020, algorithm 1 with option II).

Every device keeps a control variate cᵢ, the server their mean c. A local step goes along g - cᵢ + c; afterwards cᵢ is
what a step of this round was on average, and both changes are sent: an update has two halves. The server broadcasts c
beside the parameters.

In sound mode both halves are bounded together, as one message. What a device remembers, cᵢ, follows from its rows and
from what was broadcast, and never from noise, so that every release is charged by itself. Noise on the second half
stays in c: with much noise control variates correct nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from crowdml.algorithms import compose
from crowdml.algorithms.contract import Algorithm, DevicePart, ServerPart, SpeedHints, one_phase
from crowdml.algorithms.rates import RATES, Constant, Rate
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.recipes.local_sgd import GROUP, RADIUS
from crowdml.algorithms.schedule import Rounds
from crowdml.core import Array, Batch, Broadcast, CheckIn, Coins, OneOf, Ops, Release, Settings, record, trees
from crowdml.core.ops import onto_ball
from crowdml.core.records import tree_record
from crowdml.core.trees import Tree
from crowdml.models import FlatModel
from crowdml.privacy.releases import Releases
from crowdml.privacy.sanitisers import Sanitiser, Walk


class ScaffoldSettings(Settings):
    """The `[algorithm]` section of a scaffold task."""

    kind: Literal["scaffold"] = "scaffold"
    per_round: int = Field(10, gt=0, description="devices invited to each round")
    epochs: int = Field(1, gt=0, description="times a device goes through its rows in a round")
    local_batch: int = Field(10, gt=0, description="rows per step")
    rate: Annotated[Any, OneOf(RATES)] = Field(
        Constant(c=3.0), description="learning rate of the devices, constant: control variates are steps over it"
    )
    server_rate: float = Field(1.0, gt=0, description="what the mean change is multiplied by")
    devices: int | None = Field(
        None, gt=0, description="devices that c is the mean over; a live task must say; not given: the simulated crowd"
    )
    radius: float = RADIUS
    group: int = GROUP

    @field_validator("rate")
    @classmethod
    def _constant(cls, rate: Any) -> Any:
        if not isinstance(rate, Constant):
            raise ValueError(f'a control variate is a step over a constant rate, and "{rate.kind}" is none')
        return rate


@tree_record
class Halves:
    """Something of parameters, and the same of control variates."""

    parameters: Tree
    control: Tree


@tree_record
class ScaffoldState:
    """The server's state: parameters and c; the sum of what was absorbed since the last commit, and of how many."""

    parameters: Tree
    control: Tree
    version: Array
    window: Tree
    heard: Array


@record
class CorrectedSteps(DevicePart):
    """Takes corrected steps; remembers its control variate.

    Attributes:
        walk: Takes the steps; its rate's memory is c - cᵢ.
        sanitiser: Bounds both halves together.
        rate: η.
        parts: Zeros of the model, and array operations.
    """

    walk: Walk
    sanitiser: Sanitiser
    rate: Array
    parts: Parts

    def init(self) -> Tree:
        """Begin with a control variate of zero."""
        return self.parts.model.zeros()

    def step(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Go along gradients plus c - cᵢ; send what has changed of both."""
        xp = self.parts.ops.xp
        drift = trees.map(lambda c, ci: c - ci, broadcast.more, work)
        moved, _, taken = self.walk.take(broadcast.parameters, drift, xp.int32(1), batch, coins)
        length = xp.maximum(taken, 1).astype(xp.float32) * self.rate
        # Option II: cᵢ becomes cᵢ - c - (what has changed)/(steps · η).
        control = trees.map(lambda c, change: -c - change / length, broadcast.more, moved)
        update = self.sanitiser.bound_message(Halves(parameters=moved, control=control), coins)
        after = trees.map(lambda ci, change: ci + change, work, control)
        return Release(update=update, rows=batch.count(xp)), after


@record
class ControlledMean(ServerPart):
    """Averages both halves; c moves by the share of the crowd that was heard.

    Attributes:
        model: First parameters, as a tree or as one vector.
        sanitiser: Reads check-ins.
        devices: Devices that c is the mean over.
        server_rate: What the mean change is multiplied by.
        radius: Parameters stay in a ball of this radius.
        ops: Array operations.
    """

    model: Any
    sanitiser: Sanitiser
    devices: int
    server_rate: Array
    radius: Array
    ops: Ops

    def init(self, coins: Coins) -> ScaffoldState:
        """Begin with the model's first parameters, and c = 0."""
        return ScaffoldState(
            parameters=self.model.init(coins),
            control=self.model.zeros(),
            version=self.ops.xp.int32(0),
            window=self._empty(),
            heard=self.ops.xp.float32(0),
        )

    def check_out(self, server: ScaffoldState) -> Broadcast:
        """Tell parameters and c."""
        return Broadcast(parameters=server.parameters, more=server.control)

    def absorb(self, server: ScaffoldState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[Tree, Tree]:
        """Add up."""
        update, weight = self.sanitiser.read(check_in, lambda: None)
        window = trees.map(lambda total, leaf: total + leaf, server.window, update)
        return replace(server, window=window, heard=server.heard + weight.astype(self.ops.xp.float32)), row

    def commit(self, server: ScaffoldState) -> tuple[Tree, Tree]:
        """Take the mean of the changes; c is over all devices, heard or not."""
        share = self.server_rate / self.ops.xp.maximum(server.heard, self.ops.xp.float32(1))
        total = self._halves(server.window)
        moved = trees.map(lambda w, change: w + change * share, server.parameters, total.parameters)
        control = trees.map(lambda c, change: c + change / self.devices, server.control, total.control)
        after = ScaffoldState(
            parameters=onto_ball(moved, self.radius, self.ops),
            control=control,
            version=server.version + self.ops.xp.int32(1),
            window=self._empty(),
            heard=self.ops.xp.float32(0),
        )
        return after, {}

    def _empty(self) -> Tree:
        """Begin a window, of the shape that updates have: one vector of both halves where parameters are one."""
        zeros = self.model.zeros()
        if isinstance(self.model, FlatModel):
            return self.ops.xp.concatenate([zeros, zeros])
        return Halves(parameters=zeros, control=zeros)

    def _halves(self, window: Tree) -> Halves:
        if isinstance(window, Halves):
            return window
        return Halves(parameters=window[: len(window) // 2], control=window[len(window) // 2 :])


def build(parts: Parts) -> Algorithm:
    """Assemble: rounds, as in fedavg, with parts of its own."""
    settings, zeros, eta = parts.settings, parts.model.zeros, parts.hyper["rate"]
    schedule = Rounds(cohort=settings.per_round, epochs=settings.epochs, multiple=settings.local_batch)
    sanitiser = parts.sanitiser(
        "change", alone=False, by_rows=False, like=lambda: Halves(parameters=zeros(), control=zeros())
    )

    def corrected(drift: Tree, gradient: Tree, count: Array) -> tuple[Tree, Tree]:
        return trees.map(lambda slope, correction: eta * (slope + correction), gradient, drift), drift

    rate = Rate(init=lambda parameters: zeros(), step=corrected)
    walk = sanitiser.walk(compose.local_work(parts, schedule, rate=rate))
    device = CorrectedSteps(walk=walk, sanitiser=sanitiser, rate=eta, parts=parts)
    server = ControlledMean(
        model=parts.model,
        sanitiser=sanitiser,
        devices=parts.devices,
        server_rate=parts.hyper["server-rate"],
        radius=parts.hyper["radius"],
        ops=parts.ops,
    )
    return one_phase(device, server, sanitiser, schedule, SpeedHints(in_parts=sanitiser.in_order))


SCAFFOLD = Recipe(
    settings=ScaffoldSettings,
    hyper={"rate": "rate.c", "server-rate": "server_rate", "radius": "radius"},
    build=build,
    releases=lambda settings: Releases(sends="change", size=lambda model: 2 * model, on_grid=True),
    live=True,
    cohort_size=lambda settings: int(settings.per_round),
)
