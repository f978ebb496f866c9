"""local-fit: a baseline in which every device fits its rows as well as it can, and nothing leaves it.

The local approach of Guo and Gong, section VI: argmin Σ loss + ½β‖w‖² over the rows of one device. The test error of
the crowd is the mean over its devices.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, SpeedHints, one_phase
from crowdml.algorithms.device_parts.local_solver import Pull, local_solver, solvable
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.schedule import Barrier
from crowdml.algorithms.solitary import CountOnly, Fit
from crowdml.core import BadInput, Settings
from crowdml.privacy.releases import Releases


class LocalFitSettings(Settings):
    """The `[algorithm]` section of a local-fit task."""

    kind: Literal["local-fit"] = "local-fit"
    beta: float = Field(0.3, gt=0, description="β: strength of ½‖w‖² on the sum of a device's losses")
    newton_steps: int = Field(12, gt=0, description="Newton steps")


def build(parts: Parts) -> Algorithm:
    """Assemble the algorithm. The server only counts."""
    model, ops = parts.model, parts.ops
    if not solvable(model):
        raise BadInput(
            "only convex models can be fitted at once", where="model.kind", hint='use "logistic", "softmax" or "huber"'
        )
    solve = local_solver(model, ops)
    pull = Pull(rho=parts.hyper["beta"], decay=parts.hyper["regularisation"], steps=parts.settings.newton_steps)
    device = Fit(solve=lambda centre, start, batch: solve(centre, start, batch, pull), zeros=model.zeros, ops=ops)
    sanitiser = parts.sanitiser("nothing", alone=False, like=lambda: ())
    schedule = Barrier(least=1, max_delay=1_000_000)
    return one_phase(device, CountOnly(model=model, ops=ops), sanitiser, schedule, SpeedHints(one_trial_at_a_time=True))


LOCAL_FIT = Recipe(
    settings=LocalFitSettings, hyper={"beta": "beta"}, build=build, releases=lambda settings: Releases(sends="nothing")
)
