"""consensus-newton: first everybody's squares, then gradients, and steps that know the curvature.

Beyond the paper of `admm`, for promises to samples. In the first round devices send the squares of their rows, summed
(`privacy.moments`). The server takes from them the matrix M = h·A + ν·I, where A is their mean without negative
eigenvalues and h a typical second derivative of the loss. In all other rounds devices send sums of clipped gradients,
as in fedsgd, and the server steps along M⁻¹: w ← w - η·M⁻¹·(mean gradient + λw). Only sums are ever used, so that with
all devices in every round it does not matter which rows belong to whom.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, Parts, Rounds
from crowdml.algorithms.grid_gradient import grid_gradient, sanitise_grid
from crowdml.algorithms.moments import Moments, above_zero
from crowdml.algorithms.prox import as_matrix, as_parameters, with_constant
from crowdml.algorithms.recipes.contract import Recipe, SoundForm
from crowdml.algorithms.tail import Tail
from crowdml.core import Array, BadInput, Batch, Coins, Settings, trees
from crowdml.core.ops import Tree


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
    opening_uses: int = Field(
        2, gt=0, description="uses of a sample that the squares count for: more uses, less noise on them (sound mode)"
    )
    average_from: int | None = Field(
        None, gt=0, description="the model is the mean of all versions from this one on; not given: the last one"
    )


def build(parts: Parts) -> Algorithm:
    """Assemble the rounds of gradients, with the round of squares as their opening."""
    settings, xp, model = _settings(parts), parts.ops.xp, parts.model
    moments, sound = _moments(parts), parts.plan.sound
    if parts.plan.mode == "paper":
        raise BadInput(
            "no paper has this algorithm", where="privacy.mode", hint='use "sound", or "none" for no promise'
        )
    tail = Tail(begin=settings.average_from, ops=parts.ops)

    def init(coins: Coins) -> Tree:
        first = model.init(coins)
        return {
            "parameters": first,
            "squares": xp.zeros(moments.size, dtype=xp.float32),
            "matrix": xp.eye(moments.features, dtype=xp.float32),
            "version": xp.int32(0),
            "tail": tail.empty(first),
            "window": _empty(parts),
        }

    def device_step(broadcast: Tree, device: Tree, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        if sound:
            found = grid_gradient(parts, broadcast, batch, batch.mask, coins)
            return {"gradient": found.gradient, "samples": found.samples.astype(xp.int32)}, device
        # The server adds the regulariser; devices that count by rows send sums.
        total = model.gradients(broadcast, batch).total(batch.mask)
        return {"gradient": total, "samples": xp.sum(batch.mask).astype(xp.int32)}, device

    def sanitise(release: Tree, coins: Coins) -> Tree:
        return release | {"gradient": sanitise_grid(parts, release["gradient"], coins)} if sound else release

    def absorb(server: Tree, row: Tree, check_in: Tree, stale: Array) -> tuple[Tree, Tree]:
        step = xp.float32(sound.update.grid.step if sound else 1.0)
        window = {
            "sum": trees.map(
                lambda total, own: total + own.astype(xp.float32) * step, server["window"]["sum"], check_in["gradient"]
            ),
            "samples": server["window"]["samples"] + check_in["samples"].astype(xp.float32),
        }
        return server | {"window": window}, row

    def commit(server: Tree) -> tuple[Tree, Tree]:
        rows = xp.maximum(server["window"]["samples"], xp.float32(1))
        own = model.regulariser(server["parameters"], parts.hyper["regularisation"])
        slope = trees.map(lambda total, more: total / rows + more, server["window"]["sum"], own)
        way = parts.ops.solve(server["matrix"], as_matrix(slope, parts.ops).T).T
        moved = as_matrix(server["parameters"], parts.ops) - parts.hyper["rate"] * way
        new, version = as_parameters(moved, server["parameters"]), server["version"] + xp.int32(1)
        ended = {"parameters": new, "version": version, "tail": tail.add(server["tail"], new, version)}
        return server | ended | {"window": _empty(parts)}, {}

    algorithm = Algorithm(
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
        parameters=lambda server: server["tail"]["mean"] if settings.average_from else server["parameters"],
        rounds=Rounds(per_round=settings.per_round, epochs=1, multiple=1, max_rows=settings.max_rows),
        solves=True,
    )
    return replace(algorithm, opening=_opening(parts, algorithm))


def _opening(parts: Parts, algorithm: Algorithm) -> Algorithm:
    """Return the round of squares."""
    xp, moments, hyper = parts.ops.xp, _moments(parts), parts.hyper
    first = parts.plan.sound.opening if parts.plan.sound else None

    def device_step(broadcast: Tree, device: Tree, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        rows = with_constant(batch.rows, "b" in broadcast[0], parts.ops)
        found = moments.on_grid(rows, batch, first.grid) if first else moments.plain(rows, batch)
        return {"moments": found, "samples": xp.sum(batch.mask).astype(xp.int32)}, device

    def sanitise(release: Tree, coins: Coins) -> Tree:
        if first is None:
            return release
        noise = first.law.draw(coins, "moments", hyper["opening_noise"], (moments.size,))
        return release | {"moments": release["moments"] + noise}

    def absorb(server: Tree, row: Tree, check_in: Tree, stale: Array) -> tuple[Tree, Tree]:
        own = check_in["moments"].astype(xp.float32) * xp.float32(first.grid.step if first else 1.0)
        window = server["window"] | {"samples": server["window"]["samples"] + check_in["samples"].astype(xp.float32)}
        return server | {"squares": server["squares"] + own, "window": window}, row

    def commit(server: Tree) -> tuple[Tree, Tree]:
        mean = moments.matrix(server["squares"]) / xp.maximum(server["window"]["samples"], xp.float32(1))
        curved = (above_zero(parts.ops)(mean) if first else mean) * hyper["curvature"]
        matrix = curved + hyper["floor"] * xp.eye(moments.features, dtype=xp.float32)
        return server | {"matrix": matrix, "version": server["version"] + xp.int32(1), "window": _empty(parts)}, {}

    return replace(algorithm, device_step=device_step, sanitise=sanitise, absorb=absorb, commit=commit)


def _empty(parts: Parts) -> Tree:
    return {"sum": parts.model.zeros(), "samples": parts.ops.xp.float32(0)}


def _moments(parts: Parts) -> Moments:
    if len(parts.model.layers) != 1:
        raise BadInput(
            "consensus-newton needs a model of one layer", where="model.kind", hint='use "logistic" or "softmax"'
        )
    return Moments(features=as_matrix(parts.model.zeros(), parts.ops).shape[1], labels=False, ops=parts.ops)


def _settings(parts: Parts) -> ConsensusNewtonSettings:
    assert isinstance(parts.settings, ConsensusNewtonSettings)  # noqa: S101  the registry pairs settings and recipe
    return parts.settings


CONSENSUS_NEWTON = Recipe(
    settings=ConsensusNewtonSettings,
    hyper={"rate": "rate", "curvature": "curvature", "floor": "floor"},
    build=build,
    sound=lambda own: SoundForm(sends="gradient", rows=None, opening=own.opening_uses),
    together=lambda own: int(own.per_round),
    live=True,
    sums_only=True,
)
