"""consensus-newton: first everybody's squares, then gradients, and steps that know the curvature.

Beyond the paper of `admm`, for promises to samples. In the first round devices send the squares of their rows, summed
(`privacy.noise.grid`). The server takes from them the matrix M = h·A + ν·I, where A is their mean without negative
eigenvalues and h a typical second derivative of the loss. In all other rounds devices send sums of clipped gradients,
as in fedsgd, and the server steps along M⁻¹: w ← w - η·M⁻¹·(mean gradient + λw). Only sums are ever used, so that with
all devices in every round it does not matter which rows belong to whom.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, Phase, SpeedHints
from crowdml.algorithms.device_parts.gradient import Gradient
from crowdml.algorithms.device_parts.local_solver import as_matrix
from crowdml.algorithms.device_parts.moments import Moments, SendMoments
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.schedule import Rounds
from crowdml.algorithms.server_parts.newton import Curvature, Newton
from crowdml.algorithms.server_parts.step import Tail
from crowdml.core import BadInput, Settings
from crowdml.privacy.releases import Releases


class ConsensusNewtonSettings(Settings):
    """The `[algorithm]` section of a consensus-newton task."""

    kind: Literal["consensus-newton"] = "consensus-newton"
    per_round: int = Field(10, gt=0, description="devices invited to each round; best all of them")
    max_rows: int | None = Field(
        None, gt=0, le=65535, description="rows of a device at most in a round; live sums are as long as this asks for"
    )
    rate: float = Field(0.8, gt=0, le=2, description="η: length of a step, where 1 is Newton's")
    curvature: float = Field(
        0.15, gt=0, description="h: a typical second derivative of the loss, 0.1 to 0.2 for logistic"
    )
    floor: float = Field(
        1e-3, gt=0, description="ν: what the matrix has at least in every direction; more with more noise"
    )
    first_uses: int = Field(
        2, gt=0, description="uses of a sample that the squares count for: more uses, less noise on them (sound mode)"
    )
    average_from: int | None = Field(
        None, gt=0, description="the model is the mean of all versions from this one on; not given: the last one"
    )


def build(parts: Parts) -> Algorithm:
    """Assemble: a round of squares, then rounds of gradients."""
    settings, ops, model, hyper = parts.settings, parts.ops, parts.model, parts.hyper
    if not model.linear:
        raise BadInput(
            "consensus-newton needs a model of one dense layer", where="model.kind", hint='use "logistic" or "softmax"'
        )
    moments = Moments(features=as_matrix(model.zeros(), ops).shape[1], target=None, ops=ops)
    squares = parts.sanitiser(
        "moments", phase=0, alone=False, like=lambda: ops.xp.zeros(moments.size, dtype=ops.xp.float32)
    )
    slopes = parts.sanitiser("gradient", alone=False)
    newton = Newton(
        model=model,
        moments=moments,
        sanitiser=slopes,
        rate=hyper["rate"],
        regularisation=hyper["regularisation"],
        tail=Tail(begin=settings.average_from, ops=ops),
        ops=ops,
    )
    first = Phase(
        device=SendMoments(moments=moments, sanitiser=squares, biased="b" in model.zeros()[0]),
        server=Curvature(newton=newton, sanitiser=squares, curvature=hyper["curvature"], floor=hyper["floor"]),
        sanitiser=squares,
        versions=1,
        uses=settings.first_uses if squares.promises else 1,
    )
    gradient = Gradient(objective=parts.objective(), sanitiser=slopes, predict=model.loss.predict, ops=ops)
    return Algorithm(
        phases=(first, Phase(device=gradient, server=newton, sanitiser=slopes)),
        schedule=Rounds(cohort=settings.per_round, max_rows=settings.max_rows),
        hints=SpeedHints(one_trial_at_a_time=True),
    )


CONSENSUS_NEWTON = Recipe(
    settings=ConsensusNewtonSettings,
    hyper={"rate": "rate", "curvature": "curvature", "floor": "floor"},
    build=build,
    releases=lambda settings: Releases(
        sends="gradient", first_uses=settings.first_uses, phases=2, on_grid=True, published=False
    ),
    cohort_size=lambda settings: int(settings.per_round),
    live=True,
    sums_only=True,
)
