"""local-sgd: devices take several steps and send what has changed; the server averages.

Hamm, Luken and Xie, "Crowd-ML: A library for privacy-preserving machine learning on smart devices", 2016: algorithm 1.
The paper sends the parameters themselves; a change relative to what was checked out is the same message, and noise on
it is the same noise. A check-in that started from an old version is refused unless the task says otherwise, and does
not count towards the server's batch. With no local steps a device sends the mean gradient of all its rows and leaves
the step to the server.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms import compose
from crowdml.algorithms.aggregation.mean import Stale
from crowdml.algorithms.aggregation.public_rows import FinetuneSettings
from crowdml.algorithms.aggregation.weights import LearnedSettings
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.rates import RATES, InverseSqrt
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.schedule import OnArrival
from crowdml.core import BadInput, OneOf, Settings
from crowdml.privacy.releases import Releases, Steps

GROUP = Field(
    64, gt=0, description="noise in steps: rows whose gradients are bounded together; changes memory and speed only"
)
RADIUS = Field(100_000.0, gt=0, description="the parameters stay in a ball of this radius")

LEARNED = Field(LearnedSettings(), description='how weights are learnt on public rows, with averaging = "learned"')
FINETUNE = Field(FinetuneSettings(), description="steps of the server on public rows, after every version")


class LocalSgdSettings(Settings):
    """The `[algorithm]` section of a local-sgd task."""

    kind: Literal["local-sgd"] = "local-sgd"
    local_steps: int = Field(
        5, ge=0, description="S_d: steps a device takes per contact; 0: it sends its mean gradient and takes none"
    )
    local_batch: int = Field(10, gt=0, description="B_d: rows per step; a device gathers them all before a contact")
    server_batch: int = Field(1, gt=0, description="B_s: check-ins the server averages before it makes a new version")
    rate: Annotated[Any, OneOf(RATES)] = Field(
        InverseSqrt(c=10.0, counter="local-steps"),
        description="learning rate of the devices, or of the server when devices send gradients",
    )
    radius: float = RADIUS
    group: int = GROUP
    stale: Stale = Field("drop", description="what to do with check-ins that started from an old version")
    max_staleness: int = Field(1_000_000, ge=0, description="an older check-in is never used")
    averaging: Literal["equal", "inverse-variance", "learned"] = Field(
        "equal", description="how much each of server-batch check-ins counts"
    )
    learned: LearnedSettings = LEARNED
    finetune: FinetuneSettings = FINETUNE


def build(parts: Parts) -> Algorithm:
    """Assemble: local steps on arrival, or gradients where there are none."""
    settings: LocalSgdSettings = parts.settings
    rows = max(settings.local_steps, 1) * settings.local_batch
    schedule = OnArrival(
        batch=rows,
        buffer=rows,
        buffered=settings.server_batch,
        max_staleness=0 if settings.stale == "drop" else settings.max_staleness,
    )
    if settings.local_steps:
        return compose.local_steps(parts, schedule, stale=settings.stale)
    return compose.gradients(parts, schedule, stale=settings.stale, by_rows=False, counts=False)


def _releases(settings: LocalSgdSettings) -> Releases:
    if not settings.local_steps:
        return Releases(sends="gradient", rows=settings.local_batch, on_grid=True, sequences=True)
    steps = Steps(
        rate=settings.rate.steepest, part=settings.local_batch, epochs=1, count=settings.local_steps, by_walk=True
    )
    rows = settings.local_steps * settings.local_batch
    return Releases(sends="change", rows=rows, steps=steps, on_grid=True, sequences=True)


def _cohort_size(settings: LocalSgdSettings) -> int:
    if settings.stale != "drop":
        raise BadInput(
            "members of a secure sum all start from the present version",
            where="algorithm.stale",
            hint='use stale = "drop"',
        )
    return settings.server_batch


LOCAL_SGD = Recipe(
    settings=LocalSgdSettings,
    hyper={"rate": "rate.c", "radius": "radius"},
    build=build,
    releases=_releases,
    live=True,
    cohort_size=_cohort_size,
    gathers=True,
)
