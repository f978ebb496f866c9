"""fedavg: federated averaging (McMahan, Moore, Ramage, Hampson and Agüera y Arcas, 2017).

The server invites some devices to each round; each goes through its rows and sends what has changed, and counts as much
as it has rows. In sound mode messages are bounded as a whole, and count alike.

What the server makes of the mean change is a rate of its own (Reddi and others 2021): 1 in plain federated averaging.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.algorithms import compose
from crowdml.algorithms.aggregation.public_rows import FinetuneSettings
from crowdml.algorithms.aggregation.weights import By, LearnedSettings
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.rates import RATES, Constant, Rate, uphill
from crowdml.algorithms.recipe import Parts, Recipe
from crowdml.algorithms.recipes.local_sgd import FINETUNE, GROUP, LEARNED, RADIUS
from crowdml.algorithms.schedule import Rounds
from crowdml.algorithms.server_parts.step import ADD
from crowdml.core import Array, BadInput, OneOf, Settings
from crowdml.privacy.releases import Releases, Steps


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
    rate_memory: Literal["keep", "reset"] = Field(
        "keep",
        description="whether what a device's rate remembers (momentum, squares) is kept until its next round, or "
        "begins anew with each",
    )
    server: Annotated[Any, OneOf(RATES)] = Field(
        Constant(c=1.0),
        description="what the server makes of the mean change, as if it were a gradient downhill: a constant c is the "
        "server's learning rate; momentum, adam and yogi remember earlier changes",
    )
    radius: float = RADIUS
    group: int = GROUP
    averaging: By = Field(
        "size",
        description="how much each device of a round counts: alike, by rows, by how little it scatters, or as public "
        "rows teach; in sound mode messages are bounded as a whole, and size is the same as equal",
    )
    learned: LearnedSettings = LEARNED
    finetune: FinetuneSettings = FINETUNE


def build(parts: Parts, proximal: Array | None = None) -> Algorithm:
    """Assemble: rounds, epochs over a device's rows, weights by size; with a pull back, where one is given."""
    settings: FedAvgSettings = parts.settings
    # Steps that take rows at random need no whole number of parts.
    multiple = 1 if settings.local_steps else settings.local_batch
    schedule = Rounds(cohort=settings.per_round, epochs=settings.epochs, multiple=multiple)
    # How many rows a device has is its word: nothing may depend on it where devices may be Byzantine.
    by_rows = settings.averaging in ("size", "learned") and not parts.robust.asked
    return compose.local_steps(
        parts,
        schedule,
        by_rows=by_rows,
        through_rows=settings.local_steps is None,
        proximal=proximal,
        optimiser=server_optimiser(parts),
        reset=settings.rate_memory == "reset",
    )


def server_optimiser(parts: Parts) -> Rate:
    """Return what makes a step of the mean change; it counts versions, as a round is one.

    Where `server-rate` is no hyper-parameter, a rate of 1 adds the change as it is, with nothing to multiply.
    """
    server = parts.settings.server
    if server.counter != "versions":
        raise BadInput(
            f'the server takes one step in each round: its rate cannot count "{server.counter}"',
            where="algorithm.server.counter",
            hint='use counter = "versions"',
        )
    if "server-rate" not in parts.hyper and server == Constant(c=1.0):
        return ADD
    return uphill(server.build(parts.hyper.get("server-rate", server.c), parts.ops))


def releases(settings: FedAvgSettings) -> Releases:
    """Say what is sent: what the sanitiser's own walk has changed."""
    steps = Steps(
        rate=settings.rate.steepest,
        part=settings.local_batch,
        epochs=settings.epochs,
        count=settings.local_steps,
        by_walk=True,
    )
    return Releases(sends="change", steps=steps, on_grid=True, sequences=True)


FEDAVG = Recipe(
    settings=FedAvgSettings,
    hyper={"rate": "rate.c", "radius": "radius"},
    build=build,
    releases=releases,
    live=True,
    cohort_size=lambda settings: int(settings.per_round),
    gathers=True,
)
