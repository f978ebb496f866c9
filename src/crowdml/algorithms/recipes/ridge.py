"""ridge: least squares in one round, for devices that can be reached only once.

Devices send squares of their rows and rows times labels, summed (`privacy.noise.grid`); the server solves
(A + ν·n·I) w = b, where A is their sum without negative eigenvalues, b the sum of rows times labels, and n the number
of rows. AdaSSP (Wang 2018) does so with a trusted server; secure aggregation needs none.

In sound mode rows longer than 1, as all are that have a constant, are cut to that length; where a number is predicted
it is cut with them, so that they count less and ask for the same model.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, SpeedHints, one_phase
from crowdml.algorithms.device_parts.local_solver import as_matrix
from crowdml.algorithms.device_parts.moments import Moments, SendMoments
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.schedule import Rounds
from crowdml.algorithms.server_parts.newton import LeastSquares
from crowdml.core import BadInput, Settings
from crowdml.privacy.releases import Releases


class RidgeSettings(Settings):
    """The `[algorithm]` section of a ridge task."""

    kind: Literal["ridge"] = "ridge"
    per_round: int = Field(10, gt=0, description="devices invited to the only round; best all of them")
    max_rows: int | None = Field(
        None, gt=0, le=65535, description="rows of a device at most in a round; live sums are as long as this asks for"
    )
    floor: float = Field(1e-3, gt=0, description="ν: strength of the ridge, per row; more with more noise")
    penalise_constant: bool = Field(
        True,
        description="whether the ridge also pulls on the model's constant; without it, as statistics has it, only a "
        "millionth per row is left, so that there is a solution whatever the noise",
    )


def build(parts: Parts) -> Algorithm:
    """Assemble the algorithm. Only the first round says anything; later ones would ask the same again."""
    settings, ops, model = parts.settings, parts.ops, parts.model
    if not model.linear or model.loss.width != 1:
        raise BadInput(
            "ridge fits one score, for two labels or for a number",
            where="model.kind",
            hint='use "linear", "logistic", "huber" or "svm"',
        )
    biased = "b" in model.zeros()[0]
    if not settings.penalise_constant and not biased:
        raise BadInput(
            "the model has no constant to leave unpenalised",
            where="algorithm.penalise-constant",
            hint="add model.bias = true, or leave it out",
        )
    moments = Moments(features=as_matrix(model.zeros(), ops).shape[1], target=parts.target, ops=ops)
    sanitiser = parts.sanitiser("moments", alone=False, like=lambda: ops.xp.zeros(moments.size, dtype=ops.xp.float32))
    device = SendMoments(moments=moments, sanitiser=sanitiser, biased=biased)
    server = LeastSquares(
        model=model,
        moments=moments,
        sanitiser=sanitiser,
        floor=parts.hyper["floor"],
        ops=ops,
        free_constant=not settings.penalise_constant,
    )
    schedule = Rounds(cohort=settings.per_round, max_rows=settings.max_rows)
    return one_phase(device, server, sanitiser, schedule, SpeedHints(one_trial_at_a_time=True))


RIDGE = Recipe(
    settings=RidgeSettings,
    hyper={"floor": "floor"},
    build=build,
    releases=lambda settings: Releases(sends="moments", on_grid=True, published=False),
    cohort_size=lambda settings: int(settings.per_round),
    live=True,
    sums_only=True,
)
