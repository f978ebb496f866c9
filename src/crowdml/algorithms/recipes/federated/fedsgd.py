"""fedsgd: one gradient over all of a device's rows in each round (McMahan and others, 2017).

Devices count as much as they have rows; in sound mode that holds where a message is a sum over bounded rows (unit
sample); messages that are bounded as a whole count alike.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms import compose
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.rates import RATES, Constant
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.recipes.local_sgd import RADIUS
from crowdml.algorithms.schedule import Rounds
from crowdml.core import OneOf, Settings
from crowdml.privacy.releases import Releases


class FedSgdSettings(Settings):
    """The `[algorithm]` section of a fedsgd task."""

    kind: Literal["fedsgd"] = "fedsgd"
    per_round: int = Field(10, gt=0, description="devices invited to each round")
    max_rows: int = Field(
        10_000, gt=0, description="rows of a device in a round at most: the others take turns, and none counts more"
    )
    rate: Annotated[Any, OneOf(RATES)] = Field(Constant(c=30.0), description="learning rate of the server")
    radius: float = RADIUS
    statistics: bool = Field(
        False, description="send error and label counts in the same secure sums, where the terms allow it"
    )
    average_from: int | None = Field(
        None, gt=0, description="the model is the mean of all versions from this one on; not given: the last one"
    )


def build(parts: Parts) -> Algorithm:
    """Assemble: rounds, one gradient each, weights by size."""
    settings: FedSgdSettings = parts.settings
    schedule = Rounds(cohort=settings.per_round, max_rows=settings.max_rows)
    # How many rows a device has is its word: nothing may depend on it where devices may be Byzantine.
    by_rows = not parts.robust.asked
    counts, begin = settings.statistics, settings.average_from
    return compose.gradients(parts, schedule, by_rows=by_rows, counts=counts, average_from=begin)


FEDSGD = Recipe(
    settings=FedSgdSettings,
    hyper={"rate": "rate.c", "radius": "radius"},
    build=build,
    releases=lambda settings: Releases(
        sends="gradient", rows=settings.max_rows, counts=settings.statistics, on_grid=True, sequences=True
    ),
    live=True,
    cohort_size=lambda settings: int(settings.per_round),
    gathers=True,
)
