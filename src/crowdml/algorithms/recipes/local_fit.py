"""local-fit: a baseline in which every device fits its own rows as well as it can, and nothing leaves it.

The local approach of Guo and Gong, section VI: argmin Σ loss + ½β‖w‖² over the rows of one device. The test error of
the crowd is the mean over its devices.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, Barrier, Parts
from crowdml.algorithms.prox import Pull, local_solver, solvable
from crowdml.algorithms.recipes.contract import Recipe
from crowdml.core import BadInput, Batch, Coins, Settings
from crowdml.core.ops import Tree


class LocalFitSettings(Settings):
    """The `[algorithm]` section of a local-fit task."""

    kind: Literal["local-fit"] = "local-fit"
    beta: float = Field(0.3, gt=0, description="β: strength of ½‖w‖² on the sum of a device's losses")
    newton_steps: int = Field(12, gt=0, description="Newton steps")


def build(parts: Parts) -> Algorithm:
    """Assemble the algorithm. The server only counts."""
    settings, xp, model = parts.settings, parts.ops.xp, parts.model
    assert isinstance(settings, LocalFitSettings)  # noqa: S101  the registry pairs settings and recipe
    if not solvable(model):
        raise BadInput(
            "only convex models can be fitted at once", where="model.kind", hint='use "logistic", "softmax" or "huber"'
        )
    solve = local_solver(model, parts.ops)
    pull = Pull(rho=parts.hyper["beta"], decay=parts.hyper["regularisation"], steps=settings.newton_steps)

    def device_step(broadcast: Tree, device: Tree, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        fitted = solve(model.zeros(), device["parameters"], batch, pull)
        return {"samples": xp.sum(batch.mask).astype(xp.int32)}, {"parameters": fitted}

    return Algorithm(
        takes="sums",
        batch=1,
        buffer=1,
        always_ready=False,
        init=lambda coins: {"parameters": model.init(coins), "version": xp.int32(0)},
        device_init=lambda: {"parameters": model.zeros()},
        row_init=lambda: (),
        check_out=lambda server: server["parameters"],
        device_step=device_step,
        sanitise=lambda release, coins: release,
        accepts=lambda staleness: True,
        absorb=lambda server, row, check_in, staleness: (server, row),
        ready=lambda counts: counts.received >= 1,
        commit=lambda server: (server | {"version": server["version"] + xp.int32(1)}, {}),
        parameters=lambda server: server["parameters"],
        of_device=lambda device: device["parameters"],
        barrier=Barrier(least=1, max_delay=1_000_000),
        solves=True,
    )


LOCAL_FIT = Recipe(settings=LocalFitSettings, hyper={"beta": "beta"}, build=build, perturbs="nothing")
