"""central-sgd and central-batch: baselines in which devices hand over their rows (Crowd-ML 2015, appendix C).

Without privacy the server learns from the rows as they are; in paper mode each row and label is perturbed once, on
the device, and the server learns from that. central-sgd takes one step per batch, central-batch minimises the
regularised risk of all rows at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, Parts
from crowdml.algorithms.inputs import perturber
from crowdml.algorithms.rates import RATES
from crowdml.algorithms.rates.power import InverseSqrt
from crowdml.algorithms.recipes import crowd_sgd
from crowdml.algorithms.recipes.contract import Recipe
from crowdml.core import Settings
from crowdml.core.settings import OneOf


class CentralSgdSettings(Settings):
    """The `[algorithm]` section of a central-sgd task."""

    kind: Literal["central-sgd"] = "central-sgd"
    batch: int = Field(1, gt=0, description="rows per step")
    rate: Annotated[Any, OneOf(RATES)] = Field(InverseSqrt(c=30.0), description="learning rate of the server")
    radius: float = Field(1000.0, gt=0, le=1e15, description="the parameters stay in a ball of this radius")


class CentralBatchSettings(Settings):
    """The `[algorithm]` section of a central-batch task."""

    kind: Literal["central-batch"] = "central-batch"
    iterations: int = Field(200, gt=0, description="steps of the optimiser (L-BFGS) at most")


def build_sgd(parts: Parts) -> Algorithm:
    """Assemble central-sgd: the server's step of crowd-sgd, on perturbed rows."""
    own = parts.settings
    assert isinstance(own, CentralSgdSettings)  # noqa: S101  the registry pairs settings and recipe
    settings = crowd_sgd.CrowdSgdSettings(batch=own.batch, rate=own.rate, radius=own.radius, statistics=False)
    algorithm = crowd_sgd.build(replace(parts, settings=settings))
    return replace(algorithm, perturb=perturber(parts.plan.inputs, parts.classes, parts.ops))


def build_batch(parts: Parts) -> Algorithm:
    """Assemble what central-batch needs of an algorithm: rows, perturbed. The optimiser belongs to the driver."""
    settings = crowd_sgd.CrowdSgdSettings(batch=1, statistics=False)
    algorithm = crowd_sgd.build(
        replace(parts, settings=settings, hyper={"rate": 1.0, "radius": 1.0, **dict(parts.hyper)})
    )
    return replace(algorithm, perturb=perturber(parts.plan.inputs, parts.classes, parts.ops))


CENTRAL_SGD = Recipe(
    settings=CentralSgdSettings, hyper={"rate": "rate.c", "radius": "radius"}, build=build_sgd, perturbs="inputs"
)
CENTRAL_BATCH = Recipe(settings=CentralBatchSettings, hyper={}, build=build_batch, perturbs="inputs", pooled=True)
