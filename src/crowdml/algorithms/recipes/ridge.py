"""ridge: least squares in one round, for devices that can be reached only once.

Devices send squares of their rows and rows times labels, summed (`privacy.moments`); the server solves
(A + ν·n·I) w = b, where A is their sum without negative eigenvalues, b the sum of rows times labels, and n the number
of rows. AdaSSP (Wang 2018) does so with a trusted server; masked sums need none.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, Parts, Rounds
from crowdml.algorithms.moments import Moments, above_zero
from crowdml.algorithms.prox import as_matrix, as_parameters, with_constant
from crowdml.algorithms.recipes.contract import Recipe, SoundForm
from crowdml.core import Array, BadInput, Batch, Coins, Settings
from crowdml.core.ops import Tree


class RidgeSettings(Settings):
    """The `[algorithm]` section of a ridge task."""

    kind: Literal["ridge"] = "ridge"
    per_round: int = Field(10, gt=0, description="devices invited to the only round; best all of them")
    max_rows: int | None = Field(
        None, gt=0, le=65535, description="rows of a device at most in a round; live sums are as long as this asks for"
    )
    floor: float = Field(1e-3, gt=0, description="ν: strength of the ridge, per row; more with more noise")


def build(parts: Parts) -> Algorithm:
    """Assemble the algorithm. Only the first round says anything; later ones would ask the same again."""
    settings, ops, xp, sound = parts.settings, parts.ops, parts.ops.xp, parts.plan.sound
    assert isinstance(settings, RidgeSettings)  # noqa: S101  the registry pairs settings and recipe
    if len(parts.model.layers) != 1 or not parts.model.loss.by_sign:
        raise BadInput(
            "ridge fits one score for two labels", where="model.kind", hint='use "logistic", "huber" or "svm"'
        )
    if parts.plan.mode == "paper":
        raise BadInput("no paper has this algorithm", where="privacy.mode", hint='use "sound", or "none"')
    moments = Moments(features=as_matrix(parts.model.zeros(), ops).shape[1], labels=True, ops=ops)
    step = xp.float32(sound.update.grid.step if sound else 1.0)

    def init(coins: Coins) -> Tree:
        return {
            "parameters": parts.model.zeros(),
            "version": xp.int32(0),
            "sum": xp.zeros(moments.size, dtype=xp.float32),
            "samples": xp.float32(0),
        }

    def device_step(broadcast: Tree, device: Tree, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        rows = with_constant(batch.rows, "b" in broadcast[0], ops)
        found = moments.on_grid(rows, batch, sound.update.grid) if sound else moments.plain(rows, batch)
        return {"moments": found, "samples": xp.sum(batch.mask).astype(xp.int32)}, device

    def sanitise(release: Tree, coins: Coins) -> Tree:
        if sound is None:
            return release
        noise = sound.update.law.draw(coins, "moments", parts.hyper["noise"], (moments.size,))
        return release | {"moments": release["moments"] + noise}

    def absorb(server: Tree, row: Tree, check_in: Tree, stale: Array) -> tuple[Tree, Tree]:
        own = check_in["moments"].astype(xp.float32) * step
        samples = server["samples"] + check_in["samples"].astype(xp.float32)
        return server | {"sum": server["sum"] + own, "samples": samples}, row

    def commit(server: Tree) -> tuple[Tree, Tree]:
        squares = moments.matrix(server["sum"])
        squares = above_zero(ops)(squares) if sound else squares
        ridge = parts.hyper["floor"] * xp.maximum(server["samples"], xp.float32(1))
        matrix = squares + ridge * xp.eye(moments.features, dtype=xp.float32)
        found = ops.solve(matrix, moments.cross(server["sum"])[:, None]).T
        return server | {
            "parameters": as_parameters(found, server["parameters"]),
            "version": server["version"] + xp.int32(1),
        }, {}

    return Algorithm(
        takes="sums",
        batch=1,
        buffer=1,
        always_ready=False,
        init=init,
        device_init=lambda: (),
        row_init=lambda: (),
        check_out=lambda server: server["parameters"],
        device_step=device_step,
        sanitise=sanitise,
        accepts=lambda staleness: staleness == 0,
        absorb=absorb,
        ready=lambda counts: counts.received >= settings.per_round,
        commit=commit,
        parameters=lambda server: server["parameters"],
        rounds=Rounds(per_round=settings.per_round, epochs=1, multiple=1, max_rows=settings.max_rows),
        solves=True,
    )


RIDGE = Recipe(
    settings=RidgeSettings,
    hyper={"floor": "floor"},
    build=build,
    sound=lambda own: SoundForm(sends="moments", rows=None),
    together=lambda own: int(own.per_round),
    live=True,
    sums_only=True,
)
