"""step: the server takes one step along what a window of check-ins comes to.

An optimiser makes a step of gradients. `ADD` is the optimiser of an average: it adds what devices have changed, as a
step that subtracts minus the change. Afterwards parameters are brought back into their ball. `Tail` keeps the mean of
all versions from one on.

A busy server folds in whole batches, where every check-in is its own commit: `Succession`. Whatever does not depend on
the parameters (scaling integers, the damping of old check-ins, the rate) is worked out for many check-ins at once; only
the steps themselves are taken in turn. Every number goes through the same operations in the same order as with `absorb`
and `commit`, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.aggregation.mean import MeanWindow, staleness_factor
from crowdml.algorithms.aggregation.update_matrix import UpdateMatrix
from crowdml.algorithms.contract import ApplyBatch, ServerPart
from crowdml.algorithms.device_parts.gradient import Counting, estimated_error
from crowdml.algorithms.rates import Rate
from crowdml.core import NUMPY, Broadcast, CheckIn, Coins, Ops, Report, Tally, record, tree_record, trees
from crowdml.core.ops import onto_ball, shrinker
from crowdml.core.trees import Absent, Array, Float, Integer, Tree
from crowdml.models import FlatModel
from crowdml.privacy.sanitisers import Sanitiser

ADD = Rate(
    init=lambda parameters: (),
    step=lambda memory, update, count: (trees.map(lambda change: -change, update), memory),
)
"""The optimiser of an average of changes: w - (-change)."""

Floats = npt.NDArray[np.float32]
AT_ONCE = 1 << 16
"""Numbers that are worked on at once: few enough to stay in the processor's cache."""


@tree_record
class TailState:
    """The mean, and how many versions it is of."""

    mean: Tree
    count: Float[Array, ""]


@record
class Tail:
    """A mean that a server keeps beside its parameters.

    Attributes:
        begin: First version that enters; None where the last version is the model.
        ops: Array operations.
    """

    begin: int | None
    ops: Ops

    def empty(self, like: Tree) -> Tree:
        """Begin; `()` where nothing is to be remembered."""
        return () if self.begin is None else TailState(mean=like, count=self.ops.xp.float32(0))

    def add(self, tail: Tree, parameters: Tree, version: Array) -> Tree:
        """Take in a version; until the first one that enters, the mean is the last one."""
        if self.begin is None:
            return tail
        count = tail.count + (version >= self.begin).astype(self.ops.xp.float32)
        share = 1 / self.ops.xp.maximum(count, self.ops.xp.float32(1))
        mean = trees.map(lambda old, new: old + (new - old) * share, tail.mean, parameters)
        return TailState(mean=mean, count=count)

    def model(self, tail: Tree, parameters: Tree) -> Tree:
        """Return the model: the mean, or the last version where there is none."""
        return parameters if self.begin is None else tail.mean


@tree_record
class StepState:
    """The server's state.

    Attributes:
        parameters: The model.
        memory: What the optimiser remembers.
        version: Commits so far, int32.
        received: Check-ins until now and until the last commit, int32; `()` where nobody asks.
        totals: Counts over all check-ins, or `()`.
        tail: The mean of versions, or `()`.
        averaging: How the last version was averaged; `()` where nothing is shown.
        window: What was absorbed since the last commit.
    """

    parameters: Tree
    memory: Tree
    version: Integer[Array, ""]
    received: Tree
    totals: Tally | Absent
    tail: Tree
    averaging: Tree
    window: Tree


@record
class Step(ServerPart):
    """Average a window, step, project.

    Attributes:
        model: First parameters, and the regulariser where the sanitiser leaves it to the server.
        sanitiser: Reads check-ins.
        optimiser: Turns an update into a step.
        window: Sums check-ins, or keeps each.
        radius: Parameters stay in a ball of this radius.
        tail: The mean of versions from one on.
        ops: Array operations.
        regularisation: Strength of the regulariser, where updates are gradients; None where devices have seen to it.
        tallies: Whether the optimiser's counter counts check-ins, not versions.
        tells: Whether devices ask for the counter.
        counting: Sums counts up; None where there are none.
        refine: The server's own steps on public rows, after every version; None: it takes none.
    """

    model: Any
    sanitiser: Sanitiser
    optimiser: Rate
    window: MeanWindow | UpdateMatrix
    radius: Array
    tail: Tail
    ops: Ops
    regularisation: Array | None = None
    tallies: bool = False
    tells: bool = False
    counting: Counting | None = None
    refine: Callable[[Tree], Tree] | None = None

    @property
    def takes(self) -> Any:  # type: ignore[override]
        """Whether only sums matter."""
        return "sums" if isinstance(self.window, MeanWindow) else "individuals"

    def init(self, coins: Coins) -> StepState:
        """Begin with the model's first parameters."""
        first, zero = self.model.init(coins), self.ops.xp.int32(0)
        return StepState(
            parameters=first,
            memory=self.optimiser.init(first),
            version=zero,
            received=(zero, zero) if self.tallies else (),
            totals=self.row(),
            tail=self.tail.empty(first),
            averaging=self.window.shown,
            window=self.window.empty(first),
        )

    def row(self) -> Tree:
        """Keep counts of each device."""
        return self.counting.empty() if self.counting else ()

    def check_out(self, server: StepState) -> Broadcast:
        """Tell the parameters, and the counter where devices ask: it does not change while the window fills."""
        if not self.tells:
            return Broadcast(parameters=server.parameters)
        seen = server.received[1] if self.tallies else server.version
        return Broadcast(parameters=server.parameters, count=seen + self.ops.xp.int32(1))

    def absorb(self, server: StepState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[StepState, Tree]:
        """Read a check-in and fold it in."""
        update, weight = self.sanitiser.read(check_in, lambda: self.public(server.parameters))
        server = replace(server, window=self.window.add(server.window, update, weight, staleness))
        if self.tallies:
            server = replace(server, received=(server.received[0] + self.ops.xp.int32(1), server.received[1]))
        if self.counting is None:
            return server, row
        totals = self.counting.add(server.totals, check_in.counts)
        return replace(server, totals=totals), self.counting.add(row, check_in.counts)

    def commit(self, server: StepState) -> tuple[StepState, Tree]:
        """Take the step."""
        version = server.version + self.ops.xp.int32(1)
        update, shown = self.window.mean(server.window, server.parameters)
        count = server.received[0] if self.tallies and not self.optimiser.counts_updates else version
        change, memory = self.optimiser.step(server.memory, update, count)
        moved = trees.map(lambda old, step: old - step, server.parameters, change)
        parameters = onto_ball(self.refine(moved) if self.refine else moved, self.radius, self.ops)
        if shown:
            shown = replace(shown, accepted=server.averaging.accepted + shown.accepted)
        after = StepState(
            parameters=parameters,
            memory=memory,
            version=version,
            received=(server.received[0], server.received[0]) if self.tallies else (),
            totals=server.totals,
            tail=self.tail.add(server.tail, parameters, version),
            averaging=shown,
            window=self.window.empty(parameters),
        )
        return after, {"estimated_error": estimated_error(server.totals, self.ops)} if self.counting else {}

    def report(self, server: StepState) -> Report:
        """Show the model, or the mean of its last versions; counts; weights."""
        model = self.tail.model(server.tail, server.parameters)
        return Report(parameters=model, counts=server.totals, averaging=server.averaging)

    def public(self, parameters: Tree) -> Tree | None:
        """Return the regulariser's gradient; None where there is none to add."""
        strength = self.regularisation
        if strength is None or (isinstance(strength, float) and strength == 0.0):
            return None
        return self.model.regulariser(parameters, strength)

    @property
    def apply_batch(self) -> ApplyBatch | None:
        """The quick way through several check-ins over one vector; None where there is none."""
        rate, window = self.optimiser, self.window
        if self.refine or self.tail.begin or not (isinstance(self.model, FlatModel) and isinstance(window, MeanWindow)):
            return None
        if not window.alone or (rate.factor is None and rate is not ADD):
            return None
        return Succession(step=self, damps=window.stale == "weight", regularised=self._adds_public()).run

    def _adds_public(self) -> bool:
        """Tell whether the sanitiser leaves the regulariser to the server, and there is one."""
        zeros, asked = self.model.zeros(), list[bool]()
        nothing = CheckIn(update=zeros, weight=self.ops.xp.int32(1))
        self.sanitiser.read(nothing, lambda: asked.append(True))
        return bool(asked) and self.public(zeros) is not None


@record
class Succession:
    """Takes steps over one vector, where every check-in is its own commit.

    Attributes:
        step: The part whose steps these are.
        damps: Whether old check-ins are damped.
        regularised: Whether the server adds the regulariser to an update.
    """

    step: Step
    damps: bool
    regularised: bool

    def run(
        self,
        server: StepState,
        rows: dict[int, Tree],
        slots: Sequence[int],
        check_ins: Sequence[CheckIn],
        ages: Sequence[int],
    ) -> StepState:
        """Return the state after all check-ins; `rows` are changed in place."""
        totals, counting = server.totals, self.step.counting
        if counting:
            for slot, check_in in zip(slots, check_ins, strict=True):
                totals = counting.add(totals, check_in.counts)
                rows[slot] = counting.add(rows[slot] if slot in rows else counting.empty(), check_in.counts)
        moved = server.parameters.copy()
        at_once = max(1, AT_ONCE // max(1, moved.size))
        for first in range(0, len(check_ins), at_once):
            some = slice(first, first + at_once)
            self._walk(moved, int(server.version) + first, check_ins[some], ages[some])
        version = server.version + np.int32(len(check_ins))
        return replace(server, parameters=moved, version=version, totals=totals)

    def _walk(self, moved: Floats, version: int, check_ins: Sequence[CheckIn], ages: Sequence[int]) -> None:
        """Take some of the steps, in place."""
        move = np.add if self.step.optimiser.factor is None else np.subtract
        shrink = shrinker(self.step.radius)
        factors = [column[:, None] for column in self._factors(version, ages)]
        if len(check_ins) == 1 and not self.regularised:
            # A long vector is gone through once, piece by piece: nothing else looks at more than a number at a time.
            for begin in range(0, moved.size, AT_ONCE):
                piece = slice(begin, begin + AT_ONCE)
                move(moved[piece], self._updates(_stacked(check_ins, piece), factors)[0], moved[piece])
            shrink(moved)
            return
        updates = self._updates(_stacked(check_ins), () if self.regularised else factors)
        for number, update in enumerate(updates):
            if self.regularised:
                update = update + self.step.public(moved)
                for column in factors:
                    update = update * column[number]
            move(moved, update, moved)
            shrink(moved)

    def _updates(self, stacked: CheckIn, factors: Sequence[Floats]) -> Floats:
        """Read check-ins that stand below each other, and multiply each by its factors."""
        updates, _ = self.step.sanitiser.read(stacked, lambda: None)
        for column in factors:
            updates = updates * column
        return cast(Floats, updates)

    def _factors(self, version: int, ages: Sequence[int]) -> list[Floats]:
        """Return what updates are multiplied by, in this order."""
        found, rate = [], self.step.optimiser.factor
        if self.damps:
            # One by one: the power of an array may be rounded otherwise than that of a number.
            damped = [staleness_factor("weight", np.int32(age), NUMPY) for age in ages]
            found.append(np.array(damped, np.float32))
        if rate is not None:
            counts = np.arange(version + 1, version + 1 + len(ages), dtype=np.int32)
            found.append(np.broadcast_to(np.float32(rate(counts)), len(ages)))
        return found


def _stacked(check_ins: Sequence[CheckIn], piece: slice = slice(None)) -> CheckIn:
    """Put check-ins, or a piece of each, below each other: updates as rows, weights as a column."""
    if len(check_ins) == 1:
        updates = check_ins[0].update[None, piece]  # not copied
    else:
        updates = np.array([check_in.update[piece] for check_in in check_ins])
    return CheckIn(update=updates, weight=np.array([check_in.weight for check_in in check_ins])[:, None])
