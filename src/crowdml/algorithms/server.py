"""The server's half of algorithms that average: absorb check-ins, then take one step.

A check-in carries either a gradient, and the server's rate makes a step of it, or a change of the parameters, which
is added as it is. Afterwards the parameters are brought back into their ball.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from crowdml.algorithms import projection
from crowdml.algorithms.attacks import FORGED
from crowdml.algorithms.averaging import Averaging
from crowdml.algorithms.contract import Parts
from crowdml.algorithms.counting import Counting
from crowdml.algorithms.gathering import Gathering
from crowdml.algorithms.grid_gradient import GridReader
from crowdml.algorithms.rates import Rate, RateSettings
from crowdml.algorithms.succession import Succession
from crowdml.core import Array, Coins, record, tree_record, trees
from crowdml.core.ops import Tree
from crowdml.models import FlatModel
from crowdml.privacy.sound import Sends as Sends


@tree_record
class ServerState:
    """The server's state.

    Attributes:
        parameters: The model.
        rate: What the server's rate remembers; `()` where devices take the steps.
        version: Commits so far, int32.
        received: Check-ins until now and until the last commit, int32; `()` where nobody asks.
        totals: Sums over all check-ins (see `counting`), or `()`.
        window: What was absorbed since the last commit.
        shown: How the last version was averaged, and how often that was as learnt; `()` where nothing is shown.
    """

    parameters: Tree
    rate: Tree
    version: Array
    received: Tree
    totals: Tree
    window: Tree
    shown: Tree = ()


@record
class ServerHalf:
    """The server's functions, as the contract names them.

    Attributes:
        init: Begins a task.
        absorb: Folds in a check-in.
        commit: Takes the step.
        count: `count(server)`: what the rate's counter will be at the next step, from 1; for counters of the server.
        succession: Several check-ins in turn, where there is a quick way.
    """

    init: Callable[[Coins], ServerState]
    absorb: Callable[[ServerState, Tree, Tree, Array], tuple[Tree, Tree]]
    commit: Callable[[ServerState], tuple[Tree, Tree]]
    count: Callable[[ServerState], Array]
    succession: Callable[..., ServerState] | None = None


def server_half(
    parts: Parts,
    averaging: Averaging | Gathering,
    sends: Sends,
    rate_settings: RateSettings,
    counting: Counting | None = None,
    reader: GridReader | None = None,
    refine: Callable[[Tree], Tree] | None = None,
) -> ServerHalf:
    """Assemble the server's half; the rate is the server's own where devices send gradients.

    Args:
        parts: What the algorithm is assembled from.
        averaging: The window between two commits.
        sends: What a check-in carries.
        rate_settings: The rate.
        counting: Counts that travel along, if any.
        reader: Makes an update of what a check-in carries, where those are integers on a grid.
        refine: `refine(parameters)`: what the server learns by itself after every version, if anything.
    """
    ops, hyper, one = parts.ops, parts.hyper, parts.ops.xp.int32(1)
    rate = rate_settings.build(hyper["rate"], ops)
    # With a commit at every check-in the counters "versions" and "check-ins" are the same number.
    tallies = rate_settings.counter == "check-ins" and not averaging.alone

    def init(coins: Coins) -> ServerState:
        parameters = parts.model.init(coins)
        return ServerState(
            parameters=parameters,
            rate=rate.init(parameters) if sends == "gradient" else (),
            version=ops.xp.int32(0),
            received={"now": ops.xp.int32(0), "committed": ops.xp.int32(0)} if tallies else (),
            totals=counting.empty() if counting else (),
            window=averaging.empty(parameters),
            shown=averaging.shown,
        )

    def absorb(server: ServerState, row: Tree, check_in: Tree, stale: Array) -> tuple[Tree, Tree]:
        update, weight = (
            reader.read(check_in, server.parameters) if reader else (check_in[sends], check_in.get("weight", 1))
        )
        forged = (check_in[FORGED],) if FORGED in check_in else ()
        window = averaging.add(server.window, update, weight, stale, *forged)
        server = replace(server, window=window)
        if tallies:
            server = replace(server, received=server.received | {"now": server.received["now"] + one})
        if counting is None:
            return server, row
        totals = counting.add(server.totals, check_in["counts"])
        return replace(server, totals=totals), counting.add(row, check_in["counts"])

    def step(server: ServerState, update: Tree) -> tuple[Tree, Tree]:
        if sends == "change":
            return trees.map(lambda old, change: old + change, server.parameters, update), ()
        change, memory = rate.step(server.rate, update, server.received["now"] if tallies else server.version + one)
        return trees.map(lambda old, step: old - step, server.parameters, change), memory

    def commit(server: ServerState) -> tuple[Tree, Tree]:
        update, shown = averaging.mean(server.window, server.parameters)
        moved, memory = step(server, update)
        parameters = projection.onto_ball(refine(moved) if refine else moved, hyper["radius"], ops)
        window = averaging.empty(parameters)
        server = replace(server, parameters=parameters, rate=memory, version=server.version + one, window=window)
        if shown:
            server = replace(server, shown=shown | {"accepted": server.shown["accepted"] + shown["accepted"]})
        if tallies:
            server = replace(server, received=server.received | {"committed": server.received["now"]})
        return server, {"estimated_error": counting.error(server.totals)} if counting else {}

    def count(server: ServerState) -> Any:
        # One version is one broadcast, so what it says does not change while the window fills.
        return (server.received["committed"] if tallies else server.version) + one

    def succession(
        server: ServerState, rows: dict[int, Tree], slots: Sequence[int], check_ins: Sequence[Tree], ages: Sequence[int]
    ) -> ServerState:
        totals = server.totals
        if counting:
            for slot, check_in in zip(slots, check_ins, strict=True):
                totals = counting.add(totals, check_in["counts"])
                rows[slot] = counting.add(rows[slot] if slot in rows else counting.empty(), check_in["counts"])
        assert walk is not None  # noqa: S101  else nobody is given this function
        parameters = walk(server.parameters, server.version, check_ins, ages)
        version = server.version + ops.xp.int32(len(check_ins))
        return replace(server, parameters=parameters, version=version, totals=totals)

    walk = None if refine else _walk(parts, averaging, sends, rate, reader)
    return ServerHalf(init=init, absorb=absorb, commit=commit, count=count, succession=succession if walk else None)


def _walk(
    parts: Parts, averaging: Averaging | Gathering, sends: Sends, rate: Rate, reader: GridReader | None
) -> Callable[..., Any] | None:
    """Return how several steps are taken in turn, over one vector; None where only `absorb` and `commit` can."""
    if isinstance(averaging, Gathering) or not (averaging.alone and rate.factor and isinstance(parts.model, FlatModel)):
        return None
    return Succession(
        sends=sends,
        scale=(lambda check_in: reader.scale(check_in)[0]) if reader else (lambda check_in: check_in[sends]),
        pull=reader.pull if reader else None,
        factor=rate.factor,
        radius=parts.hyper["radius"],
        averaging=averaging,
    ).walk
