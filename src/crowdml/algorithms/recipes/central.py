"""central-sgd and central-batch: baselines in which devices hand over their rows.

Crowd-ML 2015, appendix C. Without privacy the server learns from the rows as they are; in paper mode each row and label
is perturbed once, on the device, and the server learns from that: central-sgd takes one step per batch, central-batch
minimises the regularised risk over all rows, with an optimiser that belongs to the driver.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms import compose
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.rates import RATES, InverseSqrt
from crowdml.algorithms.recipe import Parts, PooledRecipe, Recipe
from crowdml.algorithms.schedule import OnArrival
from crowdml.core import OneOf, Settings
from crowdml.privacy.releases import Releases


class CentralSgdSettings(Settings):
    """The `[algorithm]` section of a central-sgd task."""

    kind: Literal["central-sgd"] = "central-sgd"
    batch: int = Field(1, gt=0, description="rows per step")
    rate: Annotated[Any, OneOf(RATES)] = Field(InverseSqrt(c=30.0), description="learning rate of the server")
    radius: float = Field(1000.0, gt=0, le=1e15, description="the parameters stay in a ball of this radius")


def build(parts: Parts) -> Algorithm:
    """Assemble: the server's step of crowd-sgd, on rows that the sanitiser has perturbed."""
    batch = parts.settings.batch
    return compose.gradients(parts, OnArrival(batch=batch, buffer=batch), counts=False)


CENTRAL_SGD = Recipe(
    settings=CentralSgdSettings,
    hyper={"rate": "rate.c", "radius": "radius"},
    build=build,
    releases=lambda settings: Releases(sends="rows"),
)


class CentralBatchSettings(Settings):
    """The `[algorithm]` section of a central-batch task."""

    kind: Literal["central-batch"] = "central-batch"
    iterations: int = Field(200, gt=0, description="steps of the optimiser (L-BFGS) at most")


CENTRAL_BATCH = PooledRecipe(settings=CentralBatchSettings)
