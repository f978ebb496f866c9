"""Neighbours: two worlds that differ in the promised unit, and what a server could broadcast to tell them apart.

Whoever attacks a promise may choose all of it: the row (or all rows of a device) in either world, its target, all other
rows, and what the server broadcasts. A promise is about the worst choice, so it is searched for: candidates that are
known to be bad for one kind of message (`FAMILIES`), then small changes of the best one. What counts is how far apart
the messages of the real device part are, in its own units of noise.

Rows are raw: they go through the task's transforms, as on a device, wherever these learn nothing from data. So a norm
that a transform promises is the device's to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Algorithm, Phase
from crowdml.audit.seen import Seen, seen_of
from crowdml.core import Batch, Broadcast, record, trees
from crowdml.core.ops import ZeroCoins
from crowdml.core.targets import Labels
from crowdml.data.transforms import compose, fit_rows
from crowdml.task import Task

Row = npt.NDArray[np.float32]
LARGE = 1e4
"""Rows so long that every transform shortens them, and weights so large that a model is sure."""
SLIGHT = 0.02
"""What rows have in common by which a model is sure of them."""


@record
class Pair:
    """One row, or one device, in the two worlds, and what the server broadcasts.

    Attributes:
        rows: The raw row in either world.
        targets: Its target in either world, as the model sees it.
        broadcast: What the server tells.
        alone: Whether no other row is in the batch.
    """

    rows: tuple[Row, Row]
    targets: tuple[Any, Any]
    broadcast: Broadcast
    alone: bool = False


@record
class Bench:
    """Makes batches of a task for candidates.

    Attributes:
        task: The task.
        algorithm: Its functions, over NumPy.
        whole: Whether all rows of a device change, and not one.
        transform: Turns raw rows into the model's.
        seen: What is seen of the releases of each phase.
    """

    task: Task
    algorithm: Algorithm
    whole: bool
    transform: Callable[[Any], Any]
    seen: tuple[Seen, ...]

    @staticmethod
    def of(task: Task, algorithm: Algorithm, whole: bool, seen: Callable[[Phase], Seen] = seen_of) -> Bench:
        """Prepare; transforms that learn from data are left out, and rows are then the model's own."""
        chain = task.data.transform
        learns = any(transform.learns for transform in chain)
        made = (
            (lambda rows: rows) if learns else compose(fit_rows(chain, np.zeros((2, task.data.features), np.float32)))
        )
        attacked = tuple(seen(phase) for phase in algorithm.phases)
        return Bench(task=task, algorithm=algorithm, whole=whole, transform=made, seen=attacked)

    def seen_at(self, version: int) -> Seen:
        """Return what is seen of a release of this version."""
        return self.seen[self.algorithm.phases.index(self.algorithm.at(version))]

    @property
    def features(self) -> int:
        """Numbers in a raw row."""
        return self.task.features if any(each.learns for each in self.task.data.transform) else self.task.data.features

    @property
    def height(self) -> int:
        """Rows of an epoch: one local step where there are rounds, a batch otherwise; few where each is by itself."""
        schedule, plan = self.algorithm.schedule, self.task.calibrated
        if (rows := self.seen[-1].rows) is not None:
            return rows
        if plan.last.bounds_rows and not self.whole:
            return min(4, schedule.batch)
        if self.whole and plan.last.counts is not None and plan.terms.rows:
            return plan.terms.rows
        return schedule.batch

    def batches(self, pair: Pair) -> tuple[Batch, Batch]:
        """Make a batch for either world: the row first, the others zero or absent; or all rows alike."""
        made = [self._batch(row, target, pair.alone) for row, target in zip(pair.rows, pair.targets, strict=True)]
        return made[0], made[1]

    def _batch(self, row: Row, target: Any, alone: bool) -> Batch:
        raw = np.zeros((self.height, self.features), np.float32)
        raw[: None if self.whole else 1] = row
        with np.errstate(all="ignore"):
            rows = np.asarray(self.transform(raw), np.float32)
        targets = np.zeros(self.height, self.algorithm.last.sanitiser.use.target.dtype)
        targets[: None if self.whole else 1] = target
        mask = np.ones(self.height, np.float32)
        if alone and not self.whole:
            mask[1:] = 0
        epochs = self.algorithm.schedule.epochs
        return Batch(rows=np.tile(rows, (epochs, 1)), targets=np.tile(targets, epochs), mask=np.tile(mask, epochs))

    def first(self) -> Broadcast:
        """Return what the server tells at first."""
        server = self.algorithm.last.server
        return server.check_out(server.init(ZeroCoins()))


Generator = np.random.Generator
Look = Callable[[Bench, Generator], Iterator[Pair]]
"""Yields candidates."""


def flipped_targets(bench: Bench, generator: Generator) -> Iterator[Pair]:
    """The same row with another target, to a model that hesitates between the two: gradients are opposite."""
    row = _axis(bench, 0)
    for broadcast in (_hesitating(bench, 0.0, generator), _hesitating(bench, 0.3, generator)):
        for length in (LARGE, 1.0):
            for alone in (False, True):
                yield Pair(rows=(length * row, length * row), targets=_targets(bench), broadcast=broadcast, alone=alone)


def opposite_rows(bench: Bench, generator: Generator) -> Iterator[Pair]:
    """A row and its opposite with one target, to a model that is sure of another: the steepest gradients."""
    low, _ = _targets(bench)
    signs = generator.choice(np.array([-1, 1], np.float32), bench.features)
    for row in (_axis(bench, 0), np.asarray(signs / np.sqrt(bench.features), np.float32)):
        for spread in (0.0, 1.0, LARGE):
            broadcast = _spread(bench.first(), spread, generator)
            for alone in (False, True):
                rows = (np.float32(LARGE) * row, np.float32(-LARGE) * row)
                yield Pair(rows=rows, targets=(low, low), broadcast=broadcast, alone=alone)


def sure_and_wrong(bench: Bench, generator: Generator) -> Iterator[Pair]:
    """A row of which the model is sure and wrong, and nearly its opposite: p - y is as long as it can be in both.

    The model is sure by the second feature, which the rows have in common and hardly any of.
    """
    (low, high), common = _targets(bench), SLIGHT * _axis(bench, 1)
    classes, first = bench.algorithm.last.sanitiser.use.target.bins, bench.first()
    for sure in (1, 0):
        parameters = trees.map(lambda leaf, at=sure: _weight(leaf, classes, at), first.parameters)
        for length in (1.0, LARGE):
            rows = tuple(np.asarray(length * (common + side * _axis(bench, 0)), np.float32) for side in (1, -1))
            for targets in ((low, low), (high, high), (low, high)):
                for alone in (False, True):
                    broadcast = replace(first, parameters=parameters)
                    yield Pair(rows=(rows[0], rows[1]), targets=targets, broadcast=broadcast, alone=alone)


def angles(bench: Bench, generator: Generator) -> Iterator[Pair]:
    """Rows at a right angle, and at those at which squares and products with targets are furthest apart together."""
    one, other = _axis(bench, 0), _axis(bench, 1)
    for cosine in (0.0, 0.5, -0.5):
        turned = (cosine * one + np.sqrt(1 - cosine**2) * other).astype(np.float32)
        for targets in (_targets(bench), _targets(bench)[::-1], (_targets(bench)[0],) * 2):
            yield Pair(
                rows=(LARGE * one, LARGE * turned), targets=targets, broadcast=_hesitating(bench, 0.0, generator)
            )


def told_besides(bench: Bench, generator: Generator) -> Iterator[Pair]:
    """Whatever else a server broadcasts (a clip, a control variate), small and large."""
    for pair in (*flipped_targets(bench, generator), *opposite_rows(bench, generator)):
        if not trees.leaves(pair.broadcast.more):
            return
        for factor in (1e-6, 1e-2, 1e2):
            more = trees.map(lambda leaf, by=factor: np.asarray(leaf * by, leaf.dtype), pair.broadcast.more)
            yield replace(pair, broadcast=replace(pair.broadcast, more=more))


FAMILIES: Mapping[str, tuple[Look, ...]] = {
    "gradient": (flipped_targets, sure_and_wrong, opposite_rows, angles),
    "change": (flipped_targets, sure_and_wrong, opposite_rows, told_besides),
    "message": (flipped_targets, opposite_rows, sure_and_wrong),
    "moments": (angles,),
}
"""Where to look, by what a recipe sends."""


def mutated(pair: Pair, generator: Generator) -> Pair:
    """Return a candidate near by: another length of a row, other weights, another number told besides."""
    what = int(generator.integers(4))
    factor = np.float32(np.exp(generator.normal(0.0, 0.5)))
    if what == 0:
        one, other = pair.rows
        return replace(pair, rows=(one * factor, other))
    if what == 1:
        one, other = pair.rows
        return replace(pair, rows=(one, other * factor))
    scaled = trees.map(
        lambda leaf: np.asarray(leaf * factor, leaf.dtype), (pair.broadcast.parameters, pair.broadcast.more)
    )
    if what == 2 or not trees.leaves(pair.broadcast.more):
        return replace(pair, broadcast=replace(pair.broadcast, parameters=scaled[0]))
    return replace(pair, broadcast=replace(pair.broadcast, more=scaled[1]))


def search(
    bench: Bench,
    apart: Callable[[Pair], tuple[float, float]],
    generator: Generator,
    changes: int = 60,
    enough: float = 0.995,
) -> tuple[Pair, float]:
    """Return the worst pair found, and how far apart its messages are as a share of what is proven.

    Args:
        bench: Makes candidates of the task.
        apart: `apart(pair)`: that share, and how much the pair is worth: of equal shares one in few numbers is best.
        generator: Chooses among candidates; it says where to look, and draws no noise.
        changes: Changes of the best candidate to try.
        enough: From this share on to 1 there is nothing left to find by small changes.
    """
    best, found, worth = None, -1.0, -1.0
    for look in FAMILIES[bench.task.releases.sends]:
        for pair in look(bench, generator):
            share, value = apart(pair)
            if value > worth:
                best, found, worth = pair, share, value
    assert best is not None  # noqa: S101  every family has candidates
    for _ in range(0 if enough <= found <= 1 else changes):
        pair = mutated(best, generator)
        share, value = apart(pair)
        if value > worth:
            best, found, worth = pair, share, value
    return best, found


def _axis(bench: Bench, at: int) -> Row:
    """Return the row that is 1 in one feature."""
    row: Row = np.zeros(bench.features, np.float32)
    row[at % bench.features] = 1.0
    return row


def _targets(bench: Bench) -> tuple[Any, Any]:
    """Two targets as far apart as they can be."""
    target = bench.algorithm.last.sanitiser.use.target
    if isinstance(target, Labels):
        return np.int32(0), np.int32(1)
    low, high = target.encode([target.low, target.high])
    return low, high


def _hesitating(bench: Bench, spread: float, generator: Generator) -> Broadcast:
    """Return parameters with which the first two labels are equally likely, and all others are not."""
    classes, first = bench.algorithm.last.sanitiser.use.target.bins, bench.first()
    moved = _spread(first, spread, generator)

    def tied(leaf: Any) -> Any:
        if leaf.ndim == 0 or leaf.shape[0] != classes or classes < 3:
            return leaf
        made = np.zeros_like(leaf)
        made[2:] = -30.0
        return made

    return replace(moved, parameters=trees.map(tied, moved.parameters))


def _spread(broadcast: Broadcast, spread: float, generator: Generator) -> Broadcast:
    def moved(leaf: Any) -> Any:
        return (leaf + spread * generator.standard_normal(leaf.shape)).astype(leaf.dtype)

    return replace(broadcast, parameters=trees.map(moved, broadcast.parameters)) if spread else broadcast


def _weight(leaf: Any, classes: int, sure: int) -> Any:
    """Make a model sure of one label, by the second feature."""
    made = np.zeros_like(leaf)
    if leaf.ndim == 2:
        made[sure if leaf.shape[0] == classes else 0, 1 % leaf.shape[1]] = LARGE * (1 if sure or classes > 1 else -1)
    return made
