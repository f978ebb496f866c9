"""decentral: a baseline in which every device learns alone, from its rows.

Nothing leaves a device, so nothing needs noise; and nobody learns from anybody else. The test error of the crowd is
the mean over its devices.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, one_phase
from crowdml.algorithms.rates import RATES, InverseSqrt
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.schedule import OnArrival
from crowdml.algorithms.solitary import CountOnly, Solitary
from crowdml.core import OneOf, Settings
from crowdml.privacy.releases import Releases


class DecentralSettings(Settings):
    """The `[algorithm]` section of a decentral task."""

    kind: Literal["decentral"] = "decentral"
    batch: int = Field(1, gt=0, description="rows per step")
    rate: Annotated[Any, OneOf(RATES)] = Field(
        InverseSqrt(c=30.0, counter="device-contacts"), description="learning rate of each device"
    )
    radius: float = Field(1000.0, gt=0, le=1e15, description="the parameters stay in a ball of this radius")


def build(parts: Parts) -> Algorithm:
    """Assemble the algorithm. The server only counts."""
    settings, ops = parts.settings, parts.ops
    device = Solitary(
        objective=parts.objective(),
        rate=settings.rate.build(parts.hyper["rate"], ops),
        radius=parts.hyper["radius"],
        zeros=parts.model.zeros,
        ops=ops,
    )
    server, schedule = CountOnly(model=parts.model, ops=ops), OnArrival(batch=settings.batch, buffer=settings.batch)
    return one_phase(device, server, parts.sanitiser("nothing", like=lambda: ()), schedule)


DECENTRAL = Recipe(
    settings=DecentralSettings,
    hyper={"rate": "rate.c", "radius": "radius"},
    build=build,
    releases=lambda settings: Releases(sends="nothing"),
)
