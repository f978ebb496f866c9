"""local-sgd: devices take several steps and send what has changed; the server averages.

Hamm, Luken and Xie, "Crowd-ML: A library for privacy-preserving machine learning on smart devices", 2016: algorithm 1.
The paper sends the parameters themselves; a change relative to what was checked out is the same message, and noise on
it is the same noise. A check-in that started from an old version is refused unless the task says otherwise, and does
not count towards the server's batch.

fedavg and fedsgd (McMahan, Moore, Ramage, Hampson and Agüera y Arcas, 2017) are the same functions with another way of
meeting: the server invites some devices to each round, and each counts as much as it has rows. In sound mode that holds
where a message is a sum over bounded rows (fedsgd, unit sample); messages that are bounded as a whole count alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms import staleness
from crowdml.algorithms.averaging import Averaging
from crowdml.algorithms.contract import Algorithm, Parts, Rounds
from crowdml.algorithms.counting import Counting
from crowdml.algorithms.grid_gradient import grid_reader
from crowdml.algorithms.local_steps import DeviceHalf, check_terms
from crowdml.algorithms.public import FinetuneSettings
from crowdml.algorithms.rates import RATES, RateSettings
from crowdml.algorithms.rates.power import Constant, InverseSqrt
from crowdml.algorithms.recipes.contract import Recipe, SoundForm
from crowdml.algorithms.server import Sends, server_half
from crowdml.algorithms.stability import Steps
from crowdml.algorithms.tail import Tail, averaged
from crowdml.algorithms.weighing import By, LearnedSettings
from crowdml.algorithms.windows import Crowding, make_window, refiner
from crowdml.core import BadInput, Settings, record
from crowdml.core.settings import OneOf
from crowdml.privacy.private_steps import LocalSteps

GROUP = Field(
    64, gt=0, description="noise in steps: rows whose gradients are bounded together; changes memory and speed only"
)
RADIUS = Field(100_000.0, gt=0, description="the parameters stay in a ball of this radius")

LEARNED = Field(LearnedSettings(), description='how weights are learnt on public rows, with averaging = "learned"')
FINETUNE = Field(FinetuneSettings(), description="steps of the server's own on public rows, after every version")


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
    stale: staleness.Stale = Field("drop", description="what to do with check-ins that started from an old version")
    max_staleness: int = Field(1_000_000, ge=0, description="an older check-in is never used")
    averaging: Literal["equal", "inverse-variance", "learned"] = Field(
        "equal", description="how much each of server-batch check-ins counts"
    )
    learned: LearnedSettings = LEARNED
    finetune: FinetuneSettings = FINETUNE


class FedAvgSettings(Settings):
    """The `[algorithm]` section of a fedavg task."""

    kind: Literal["fedavg"] = "fedavg"
    per_round: int = Field(10, gt=0, description="devices invited to each round")
    epochs: int = Field(1, gt=0, description="times a device goes through its rows in a round")
    local_batch: int = Field(10, gt=0, description="rows per step")
    local_steps: int | None = Field(
        None, gt=0, description="noise in steps: steps a device takes in a round, instead of going through its rows"
    )
    rate: Annotated[Any, OneOf(RATES)] = Field(Constant(c=3.0), description="learning rate of the devices")
    radius: float = RADIUS
    group: int = GROUP
    averaging: By = Field(
        "size",
        description="how much each device of a round counts: alike, by rows, by how little it scatters, or as public "
        "rows teach; in sound mode messages are bounded as a whole, and size is the same as equal",
    )
    learned: LearnedSettings = LEARNED
    finetune: FinetuneSettings = FINETUNE


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
        False, description="send error and label counts in the same masked sums, where the terms allow it"
    )
    average_from: int | None = Field(
        None, gt=0, description="the model is the mean of all versions from this one on; not given: the last one"
    )


@record
class _Shape:
    """What distinguishes the three recipes."""

    sends: Sends
    rate: RateSettings
    batch: int
    local_batch: int
    together: int
    stale: staleness.Stale
    max_staleness: int
    rounds: Rounds | None
    group: int = 64
    by: By = "size"
    learned: LearnedSettings = LearnedSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    counts: bool = False


def build_local_sgd(parts: Parts) -> Algorithm:
    """Assemble local-sgd."""
    own = parts.settings
    assert isinstance(own, LocalSgdSettings)  # noqa: S101  the registry pairs settings and recipe
    return _assemble(
        parts,
        _Shape(
            sends="change" if own.local_steps else "gradient",
            rate=own.rate,
            batch=max(own.local_steps, 1) * own.local_batch,
            local_batch=own.local_batch,
            together=own.server_batch,
            stale=own.stale,
            max_staleness=own.max_staleness,
            rounds=None,
            group=own.group,
            by=own.averaging,
            learned=own.learned,
            finetune=own.finetune,
        ),
    )


def build_fedavg(parts: Parts) -> Algorithm:
    """Assemble fedavg: rounds, passes over a device's own rows, weights by size."""
    own = parts.settings
    assert isinstance(own, FedAvgSettings)  # noqa: S101  the registry pairs settings and recipe
    if (own.local_steps is None) != (parts.plan.steps is None):
        raise BadInput(
            'local-steps and privacy.noise-at = "steps" belong together: otherwise a device goes through its rows',
            where="algorithm.local-steps",
            hint="leave it out, or say how many steps a device takes in a round",
        )
    # Steps that take rows at random need no whole number of parts.
    rounds = Rounds(per_round=own.per_round, epochs=own.epochs, multiple=1 if own.local_steps else own.local_batch)
    shape = replace(_in_rounds("change", own.rate, own.local_batch, rounds), group=own.group)
    return _assemble(parts, replace(shape, by=own.averaging, learned=own.learned, finetune=own.finetune))


def build_fedsgd(parts: Parts) -> Algorithm:
    """Assemble fedsgd: rounds, one gradient over all of a device's rows, weights by size."""
    own = parts.settings
    assert isinstance(own, FedSgdSettings)  # noqa: S101  the registry pairs settings and recipe
    rounds = Rounds(per_round=own.per_round, epochs=1, multiple=1, max_rows=own.max_rows)
    shape = replace(_in_rounds("gradient", own.rate, 1, rounds), counts=own.statistics)
    return averaged(_assemble(parts, shape), Tail(begin=own.average_from, ops=parts.ops))


def _in_rounds(sends: Sends, rate: RateSettings, local_batch: int, rounds: Rounds) -> _Shape:
    return _Shape(
        sends=sends,
        rate=rate,
        batch=local_batch,
        local_batch=local_batch,
        together=rounds.per_round,
        stale="accept",
        max_staleness=0,
        rounds=rounds,
    )


def _assemble(parts: Parts, shape: _Shape) -> Algorithm:
    check_terms(parts, shape.rate, shape.sends)
    alone = shape.together == 1
    crowding = Crowding(
        together=shape.together,
        stale=shape.stale,
        sends=shape.sends,
        by=shape.by,
        learned=shape.learned,
        finetune=shape.finetune,
    )
    counting = Counting.of(parts) if shape.counts else None
    device = DeviceHalf(
        parts=parts,
        rate=shape.rate,
        sends=shape.sends,
        local_batch=shape.local_batch,
        # How many rows a device has is its own word: nothing may depend on it where devices may lie.
        by_size=shape.rounds is not None and shape.by in ("size", "learned") and not parts.robust.asked,
        alone=alone,
        padded=shape.rounds is not None,
        group=shape.group,
        counting=counting,
    )
    averaging = make_window(parts, crowding)
    reader = grid_reader(parts, alone) if parts.plan.sound else None
    half = server_half(parts, averaging, shape.sends, shape.rate, counting, reader, refiner(parts, crowding))

    def check_out(server: Any) -> Any:
        return {"count": half.count(server), "parameters": server.parameters} if device.told else server.parameters

    return Algorithm(
        takes="sums" if isinstance(averaging, Averaging) else "individuals",
        batch=shape.batch,
        buffer=shape.batch,
        always_ready=alone,
        init=half.init,
        device_init=device.init,
        row_init=lambda: counting.empty() if counting else (),
        check_out=check_out,
        device_step=device.step,
        sanitise=device.sanitise,
        accepts=staleness.accepts(shape.stale, shape.max_staleness),
        absorb=half.absorb,
        ready=lambda counts: counts.received >= shape.together,
        commit=half.commit,
        parameters=lambda server: server.parameters,
        totals=(lambda server: server.totals) if counting else None,
        rounds=shape.rounds,
        succession=half.succession,
        in_parts=shape.sends == "change" and not device.proven and parts.plan.steps is None,
        shown=(lambda server: server.shown) if averaging.shown else None,
        by_size=device.by_size,
        attack=parts.attack,
    )


def _local_sgd_form(own: LocalSgdSettings) -> SoundForm:
    if not own.local_steps:
        return SoundForm(sends="gradient", rows=own.local_batch)
    steps = Steps(rate=own.rate.steepest, part=own.local_batch, epochs=1, count=own.local_steps)
    return SoundForm(sends="change", rows=own.local_steps * own.local_batch, steps=steps)


def _fedavg_form(own: FedAvgSettings) -> SoundForm:
    steps = Steps(rate=own.rate.steepest, part=own.local_batch, epochs=own.epochs)
    return SoundForm(sends="change", rows=None, steps=steps)


def _local_sgd_steps(own: LocalSgdSettings) -> LocalSteps:
    return LocalSteps(steps=own.local_steps, batch=own.local_batch)


def _fedavg_steps(own: FedAvgSettings) -> LocalSteps:
    if own.local_steps is None or own.epochs != 1:
        raise BadInput(
            "noise in steps counts steps, not times through the rows",
            where="algorithm.local-steps",
            hint="such as local-steps = 60, and leave epochs out",
        )
    return LocalSteps(steps=own.local_steps, batch=own.local_batch)


def _together(own: LocalSgdSettings) -> int:
    if own.stale != "drop":
        raise BadInput(
            "members of a masked sum all start from the present version",
            where="algorithm.stale",
            hint='use stale = "drop"',
        )
    return own.server_batch


_HYPER = {"rate": "rate.c", "radius": "radius"}
LOCAL_SGD = Recipe(
    settings=LocalSgdSettings,
    hyper=_HYPER,
    build=build_local_sgd,
    sequences=True,
    sound=_local_sgd_form,
    steps=_local_sgd_steps,
    live=True,
    together=_together,
    gathers=True,
)
FEDAVG = Recipe(
    settings=FedAvgSettings,
    hyper=_HYPER,
    build=build_fedavg,
    sequences=True,
    sound=_fedavg_form,
    steps=_fedavg_steps,
    live=True,
    together=lambda own: int(own.per_round),
    gathers=True,
)
FEDSGD = Recipe(
    settings=FedSgdSettings,
    hyper=_HYPER,
    build=build_fedsgd,
    sequences=True,
    sound=lambda own: SoundForm(sends="gradient", rows=own.max_rows),
    live=True,
    together=lambda own: int(own.per_round),
    gathers=True,
)
