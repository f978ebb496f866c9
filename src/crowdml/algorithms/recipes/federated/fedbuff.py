"""fedbuff: local steps on arrival, averaged by a buffer (Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek and Huba 2022).

No device waits for another: whoever has gathered its rows takes local steps from the version that it checked out, and
the server makes a new version of every K changes, those from old versions damped by (1 + staleness)^(-1/2). It is
local-sgd with another use of old check-ins, and with a rate of the server's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms import compose
from crowdml.algorithms.aggregation.mean import Stale
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.rates import RATES, Constant
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.recipes.federated.fedavg import server_optimiser
from crowdml.algorithms.recipes.local_sgd import GROUP, RADIUS
from crowdml.algorithms.schedule import OnArrival
from crowdml.core import OneOf, Settings
from crowdml.privacy.releases import Releases, Steps


class FedBuffSettings(Settings):
    """The `[algorithm]` section of a fedbuff task."""

    kind: Literal["fedbuff"] = "fedbuff"
    buffer_size: int = Field(10, gt=0, description="K: check-ins that the server averages into a new version")
    local_steps: int = Field(5, gt=0, description="steps a device takes per contact")
    local_batch: int = Field(10, gt=0, description="rows per step; a device gathers them all before a contact")
    rate: Annotated[Any, OneOf(RATES)] = Field(Constant(c=3.0), description="learning rate of the devices")
    rate_memory: Literal["keep", "reset"] = Field(
        "reset", description="whether what a device's rate remembers is kept until its next contact, or begins anew"
    )
    server: Annotated[Any, OneOf(RATES)] = Field(
        Constant(c=1.0), description="what the server makes of the mean change; a constant c is its learning rate"
    )
    radius: float = RADIUS
    group: int = GROUP
    stale: Stale = Field("weight", description="what to do with check-ins that started from an old version")
    max_staleness: int = Field(1_000_000, ge=0, description="an older check-in is never used")


def build(parts: Parts) -> Algorithm:
    """Assemble: local steps on arrival, a version of every K."""
    settings: FedBuffSettings = parts.settings
    rows = settings.local_steps * settings.local_batch
    schedule = OnArrival(
        batch=rows,
        buffer=rows,
        buffered=settings.buffer_size,
        max_staleness=0 if settings.stale == "drop" else settings.max_staleness,
    )
    return compose.local_steps(
        parts,
        schedule,
        stale=settings.stale,
        optimiser=server_optimiser(parts),
        reset=settings.rate_memory == "reset",
    )


def _releases(settings: FedBuffSettings) -> Releases:
    steps = Steps(
        rate=settings.rate.steepest, part=settings.local_batch, epochs=1, count=settings.local_steps, by_walk=True
    )
    rows = settings.local_steps * settings.local_batch
    return Releases(sends="change", rows=rows, steps=steps, on_grid=True, sequences=True)


FEDBUFF = Recipe(
    settings=FedBuffSettings,
    hyper={"rate": "rate.c", "server-rate": "server.c", "radius": "radius"},
    build=build,
    releases=_releases,
    live=True,
    gathers=True,
)
