"""crowd-sgd: asynchronous gradient check-in.

Hamm, Champion, Chen, Belkin and Xuan, "Crowd-ML: A privacy-preserving learning framework for a crowd of smart
devices", ICDCS 2015: algorithm 1 (device routines 2 and 3) and algorithm 2 (server routine 2).

A device sends the noisy mean gradient of its batch at the parameters it checked out; the server takes a projected
step at once: w ← Π_R [w - η(t) ĝ]. Beside the gradient travel the number of samples in clear and, where the task
asks for statistics, the noisy counts of errors and labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from crowdml.algorithms import staleness
from crowdml.algorithms.averaging import Averaging
from crowdml.algorithms.contract import Algorithm, Parts
from crowdml.algorithms.counting import Counting
from crowdml.algorithms.gradients import mean_gradient, sanitise_mean
from crowdml.algorithms.grid_gradient import grid_gradient, grid_reader, sanitise_grid
from crowdml.algorithms.rates import RATES
from crowdml.algorithms.rates.power import InverseSqrt
from crowdml.algorithms.recipes.contract import Recipe, SoundForm
from crowdml.algorithms.server import server_half
from crowdml.core import Array, Batch, Coins, Ops, Settings
from crowdml.core.ops import Tree
from crowdml.core.settings import OneOf


class CrowdSgdSettings(Settings):
    """The `[algorithm]` section of a crowd-sgd task."""

    kind: Literal["crowd-sgd"] = "crowd-sgd"
    batch: int = Field(20, gt=0, description="rows a device gathers before it checks in")
    buffer: int | None = Field(None, gt=0, description="rows a device keeps at most; not given: as many as batch")
    held_out: float = Field(0.0, ge=0, lt=1, description="share of rows set aside for counting errors")
    rate: Annotated[Any, OneOf(RATES)] = Field(InverseSqrt(c=30.0), description="learning rate of the server")
    radius: float = Field(1000.0, gt=0, le=1e15, description="the parameters stay in a ball of this radius")
    stale: staleness.Stale = Field("accept", description="what to do with check-ins that started from an old version")
    max_staleness: int = Field(1_000_000, ge=0, description="an older check-in is never used")
    statistics: bool = Field(True, description="send error and label counts, where the terms allow it")

    @model_validator(mode="after")
    def _fits(self) -> CrowdSgdSettings:
        if self.buffer is not None and self.batch > self.buffer:
            raise ValueError(f"batch = {self.batch} does not fit into buffer = {self.buffer}")
        if self.rate.counter not in ("versions", "check-ins"):
            raise ValueError(
                f'the server\'s rate cannot use the device\'s counter "{self.rate.counter}"; use "versions"'
            )
        return self


def build(parts: Parts) -> Algorithm:
    """Assemble the algorithm from its device half and its server half."""
    settings = _settings(parts)
    counting = Counting.of(parts)
    device_step, sanitise = _device_half(parts, counting)
    averaging = Averaging(stale=settings.stale, alone=True, ops=parts.ops)
    reader = grid_reader(parts, alone=True) if parts.plan.sound else None
    server = server_half(parts, averaging, "gradient", settings.rate, counting, reader)
    return Algorithm(
        takes="sums",
        batch=settings.batch,
        buffer=settings.buffer or settings.batch,
        always_ready=True,
        init=server.init,
        device_init=lambda: (),
        row_init=lambda: counting.empty() if counting else (),
        check_out=lambda server: server.parameters,
        device_step=device_step,
        sanitise=sanitise,
        accepts=staleness.accepts(settings.stale, settings.max_staleness),
        absorb=server.absorb,
        ready=lambda counts: counts.received >= 1,
        commit=server.commit,
        parameters=lambda server: server.parameters,
        totals=(lambda server: server.totals) if counting else None,
        succession=server.succession,
    )


def _device_half(parts: Parts, counting: Counting | None) -> tuple[Callable[..., Any], Callable[..., Any]]:
    settings, xp, sound = _settings(parts), parts.ops.xp, parts.plan.sound is not None

    def device_step(broadcast: Tree, device: Tree, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        training, counted = _split(batch, settings.held_out, coins, parts.ops)
        if sound:
            found = grid_gradient(parts, broadcast, batch, training, coins)
        else:
            found = mean_gradient(parts, broadcast, batch, training)
        release = {"gradient": found.gradient, "samples": found.samples.astype(xp.int32)}
        if counting:
            wrong = parts.model.loss.predict(found.outputs) != batch.labels
            release["counts"] = counting.count(batch, wrong, counted)
        return release, device

    def sanitise(release: Tree, coins: Coins) -> Tree:
        if sound:
            noisy = sanitise_grid(parts, release["gradient"], coins)
        else:
            noisy = sanitise_mean(parts, release["gradient"], release["samples"], coins)
        check_in = release | {"gradient": noisy}
        return check_in | {"counts": counting.sanitise(release["counts"], coins)} if counting else check_in

    return device_step, sanitise


def _split(batch: Batch, share: float, coins: Coins, ops: Ops) -> tuple[Array, Array]:
    """Mark the rows that train and the rows whose errors count: all for both, unless a share is held out.

    Remark 2 of the paper. The average is then over fewer rows, so the noise is scaled by their number.
    """
    if not share:
        return batch.mask, batch.mask
    held_out = (coins.uniform("held-out", batch.mask.shape) < share).astype(ops.xp.float32) * batch.mask
    return batch.mask - held_out, held_out


def _settings(parts: Parts) -> CrowdSgdSettings:
    assert isinstance(parts.settings, CrowdSgdSettings)  # noqa: S101  the registry pairs settings and recipe
    return parts.settings


CROWD_SGD = Recipe(
    settings=CrowdSgdSettings,
    hyper={"rate": "rate.c", "radius": "radius"},
    build=build,
    sound=lambda own: SoundForm(sends="gradient", rows=own.buffer or own.batch),
    live=True,
)
