"""decentral: a baseline in which every device learns alone, from its own rows.

Nothing leaves a device, so nothing needs noise; and nobody learns from anybody else. The test error of the crowd is
the mean over its devices.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms import projection
from crowdml.algorithms.contract import Algorithm, Parts
from crowdml.algorithms.gradients import mean_gradient
from crowdml.algorithms.rates import RATES
from crowdml.algorithms.rates.power import InverseSqrt
from crowdml.algorithms.recipes.contract import Recipe
from crowdml.core import Array, Batch, Coins, Settings, tree_record, trees
from crowdml.core.ops import Tree
from crowdml.core.settings import OneOf


class DecentralSettings(Settings):
    """The `[algorithm]` section of a decentral task."""

    kind: Literal["decentral"] = "decentral"
    batch: int = Field(1, gt=0, description="rows per step")
    rate: Annotated[Any, OneOf(RATES)] = Field(
        InverseSqrt(c=30.0, counter="device-contacts"), description="learning rate of each device"
    )
    radius: float = Field(1000.0, gt=0, le=1e15, description="the parameters stay in a ball of this radius")


@tree_record
class DecentralDevice:
    """A device's own model: parameters, what its rate remembers, and steps taken."""

    parameters: Tree
    rate: Tree
    steps: Array


def build(parts: Parts) -> Algorithm:
    """Assemble the algorithm. The server only counts."""
    settings, model, ops, hyper = parts.settings, parts.model, parts.ops, parts.hyper
    assert isinstance(settings, DecentralSettings)  # noqa: S101  the registry pairs settings and recipe
    xp = ops.xp
    rate = settings.rate.build(hyper["rate"], ops)

    def device_init() -> DecentralDevice:
        nothing = model.zeros()
        return DecentralDevice(parameters=nothing, rate=rate.init(nothing), steps=xp.int32(0))

    def device_step(broadcast: Tree, device: DecentralDevice, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        # All devices begin with the parameters that the task began with.
        own = trees.map(lambda first, now: xp.where(device.steps == 0, first, now), broadcast, device.parameters)
        found = mean_gradient(parts, own, batch, batch.mask)
        steps = device.steps + xp.int32(1)
        change, memory = rate.step(device.rate, found.gradient, steps)
        moved = trees.map(lambda old, step: old - step, own, change)
        parameters = projection.onto_ball(moved, hyper["radius"], ops)
        return {"samples": found.samples.astype(xp.int32)}, DecentralDevice(
            parameters=parameters, rate=memory, steps=steps
        )

    return Algorithm(
        takes="sums",
        batch=settings.batch,
        buffer=settings.batch,
        always_ready=True,
        init=lambda coins: {"parameters": model.init(coins), "version": xp.int32(0)},
        device_init=device_init,
        row_init=lambda: (),
        check_out=lambda server: server["parameters"],
        device_step=device_step,
        sanitise=lambda release, coins: release,
        accepts=lambda staleness: True,
        absorb=lambda server, row, check_in, staleness: (server, row),
        ready=lambda counts: counts.received >= 1,
        commit=lambda server: (server | {"version": server["version"] + xp.int32(1)}, {}),
        parameters=lambda server: server["parameters"],
        of_device=lambda device: device.parameters,
    )


DECENTRAL = Recipe(
    settings=DecentralSettings, hyper={"rate": "rate.c", "radius": "radius"}, build=build, perturbs="nothing"
)
