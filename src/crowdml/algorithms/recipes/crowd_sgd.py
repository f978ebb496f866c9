"""crowd-sgd: asynchronous gradient check-in.

Hamm, Champion, Chen, Belkin and Xuan, "Crowd-ML: A privacy-preserving learning framework for a crowd of smart
devices", ICDCS 2015: algorithm 1 (device routines 2 and 3) and algorithm 2 (server routine 2).

A device sends the noisy mean gradient of its batch at the parameters it checked out; the server takes a projected
step at once: w ← Π_R [w - η(t) ĝ]. Beside the gradient travel the number of samples in clear and, where the task
asks for statistics, the noisy counts of errors and labels.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from crowdml.algorithms import compose
from crowdml.algorithms.aggregation.mean import Stale
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.rates import RATES, InverseSqrt, Rate
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.schedule import OnArrival
from crowdml.core import OneOf, Settings
from crowdml.privacy.releases import Releases


class CrowdSgdSettings(Settings):
    """The `[algorithm]` section of a crowd-sgd task."""

    kind: Literal["crowd-sgd"] = "crowd-sgd"
    batch: int = Field(20, gt=0, description="rows a device gathers before it checks in")
    buffer: int | None = Field(None, gt=0, description="rows a device keeps at most; not given: as many as batch")
    held_out: float = Field(0.0, ge=0, lt=1, description="share of rows set aside for counting errors")
    rate: Annotated[Any, OneOf(RATES)] = Field(InverseSqrt(c=30.0), description="learning rate of the server")
    radius: float = Field(1000.0, gt=0, le=1e15, description="the parameters stay in a ball of this radius")
    stale: Stale = Field("accept", description="what to do with check-ins that started from an old version")
    max_staleness: int = Field(1_000_000, ge=0, description="an older check-in is never used")
    statistics: bool = Field(True, description="send error and label counts, where the terms allow it")

    @model_validator(mode="after")
    def _fits(self) -> CrowdSgdSettings:
        if self.buffer is not None and self.batch > self.buffer:
            raise ValueError(f"batch = {self.batch} does not fit into buffer = {self.buffer}")
        if self.rate.counter not in ("versions", "check-ins"):
            raise ValueError(
                f'the server\'s rate cannot use the device\'s counter "{self.rate.counter}"; use "versions"'
            )
        return self


def build(parts: Parts, optimiser: Rate | None = None) -> Algorithm:
    """Assemble: a gradient on arrival, a step for each; by another optimiser than the settings' rate, where given."""
    settings: CrowdSgdSettings = parts.settings
    schedule = OnArrival(
        batch=settings.batch,
        buffer=settings.buffer or settings.batch,
        max_staleness=0 if settings.stale == "drop" else settings.max_staleness,
    )
    return compose.gradients(parts, schedule, stale=settings.stale, held_out=settings.held_out, optimiser=optimiser)


CROWD_SGD = Recipe(
    settings=CrowdSgdSettings,
    hyper={"rate": "rate.c", "radius": "radius"},
    build=build,
    releases=lambda settings: Releases(
        sends="gradient", rows=settings.buffer or settings.batch, counts=settings.statistics, on_grid=True
    ),
    live=True,
)
