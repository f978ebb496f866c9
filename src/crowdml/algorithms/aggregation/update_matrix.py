"""The update matrix: a window that keeps every check-in by itself until a version is made of them.

Where an average asks who sent what (robust rules, learned weights) a sum is not enough. The window is a matrix with one
line per check-in, filled from the top, and their weights; a line of weight 0 is empty. It has the same three functions
as the window of sums in `mean`, so that a server part does not see the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crowdml.algorithms.aggregation.mean import MeanWindow, Stale, staleness_factor
from crowdml.algorithms.aggregation.public_rows import FinetuneSettings, Public, full_model, layer_spans
from crowdml.algorithms.aggregation.robust import RobustSettings, lengths, median, shortened
from crowdml.algorithms.aggregation.weights import (
    Average,
    By,
    LearnedSettings,
    average_of,
    inverse_variance,
    learned,
    of_changes,
)
from crowdml.core import Array, BadInput, Ops, Tree, record, tree_record, trees
from crowdml.core.ops import joined

NEEDS_TWO = 'per-round or server-batch of 2 or more, or kind = "fedavg"'

Combine = Callable[[Array, Array, Array], tuple[Array, Tree]]
"""`combine(updates, weights, parameters)`: one update, and what is to be shown of how it came about."""


@tree_record
class Lines:
    """Updates of shape (check-ins, size), their weights, and how many lines are filled."""

    updates: Array
    weights: Array
    filled: Array


@tree_record
class Shown:
    """How the last version was averaged: weights of shape (layers, check-ins); how often they were as learnt."""

    weights: Array
    accepted: Array


@record
class UpdateMatrix:
    """The window between two commits, line by line.

    Attributes:
        cohort_size: Lines: check-ins per commit at most.
        stale: What happens to check-ins that started from an old version.
        combine: Makes one update of all lines.
        shown: What is to be shown before the first commit; `()` if nothing ever is.
        ops: Array operations.
        alone: Never: there is something to compare.
    """

    cohort_size: int
    stale: Stale
    combine: Combine
    shown: Tree
    ops: Ops
    alone: bool = False

    def empty(self, parameters: Tree) -> Lines:
        """Begin a window."""
        xp = self.ops.xp
        return Lines(
            updates=xp.zeros((self.cohort_size, sum(leaf.size for leaf in trees.leaves(parameters))), dtype=xp.float32),
            weights=xp.zeros(self.cohort_size, dtype=xp.float32),
            filled=xp.int32(0),
        )

    def add(self, window: Lines, update: Tree, weight: Array, age: Array) -> Lines:
        """Fill the next line with an update that was already multiplied by its weight."""
        xp = self.ops.xp
        weight = xp.float32(weight)
        damping = staleness_factor(self.stale, age, self.ops) / xp.maximum(weight, xp.float32(1))
        line = joined(update, self.ops) * damping
        here = xp.arange(self.cohort_size) == window.filled
        return Lines(
            updates=xp.where(here[:, None], line[None], window.updates),
            weights=xp.where(here, weight, window.weights),
            filled=window.filled + xp.int32(1),
        )

    def mean(self, window: Lines, parameters: Tree) -> tuple[Tree, Tree]:
        """Return the update that the window stands for, and what is to be shown of it."""
        update, shown = self.combine(window.updates, window.weights, joined(parameters, self.ops))
        # NumPy widens where whole numbers meet float32, and the state's layout is fixed.
        return trees.cut(update.astype(self.ops.xp.float32), parameters), shown


@record
class Aggregation:
    """How check-ins become one update, as a recipe's settings say.

    Attributes:
        cohort_size: Check-ins per commit.
        stale: What happens to check-ins that started from an old version.
        downhill: 1 where updates are changes, which go where the loss falls; -1 where they are gradients.
        robust: What is done about Byzantine devices.
        keep_each: Whether every check-in is kept by itself in any case.
        model: The model.
        hyper: Hyper-parameters; public rows are among them where there are any.
        ops: Array operations.
        by: How an average weighs.
        learned: How weights are learnt.
        finetune: Steps on public rows after every version.
    """

    cohort_size: int
    stale: Stale
    downhill: int
    robust: RobustSettings
    keep_each: bool
    model: Any
    hyper: Mapping[str, Array]
    ops: Ops
    by: By = "size"
    learned: LearnedSettings = LearnedSettings()
    finetune: FinetuneSettings = FinetuneSettings()

    def window(self) -> MeanWindow | UpdateMatrix:
        """Make the window; only a sum where nothing else is asked for."""
        weighs = self.by in ("inverse-variance", "learned")
        asked = {"robust": self.robust.asked, "algorithm.averaging": weighs, "crowd.attack": self.keep_each}
        if not any(asked.values()):
            return MeanWindow(stale=self.stale, alone=self.cohort_size == 1, ops=self.ops)
        if self.cohort_size < 2:
            where = next(name for name, given in asked.items() if given)
            raise BadInput(
                "a version is made of one check-in: there is nothing to compare", where=where, hint=NEEDS_TWO
            )
        combine, shown = self._weighing() if weighs else (self._ruling(), ())
        return UpdateMatrix(cohort_size=self.cohort_size, stale=self.stale, combine=combine, shown=shown, ops=self.ops)

    def refiner(self) -> Callable[[Tree], Tree] | None:
        """Return the function that takes the server's steps on public rows, where there are any."""
        if not self.finetune.steps:
            return None

        def refine(parameters: Tree) -> Tree:
            vector = self._public().finetuned(joined(parameters, self.ops), self.finetune)
            return trees.cut(vector.astype(self.ops.xp.float32), parameters)

        return refine

    def _public(self) -> Public:
        # The rows are there when a version is made, but not yet where only shapes are asked for.
        return Public.of(self.model, self.hyper, self.ops)

    def _weighing(self) -> tuple[Combine, Shown]:
        per = self.learned.per if self.by == "learned" else "layer"
        xp, spans = self.ops.xp, layer_spans(full_model(self.model), per)
        average: Average = average_of(self.learned) if self.by == "learned" else of_changes

        def combine(updates: Array, weights: Array, parameters: Array) -> tuple[Array, Tree]:
            updates = self._bounded(updates, weights)
            weigh = inverse_variance(len(spans), self.ops)
            if self.by == "learned":
                weigh = learned(self.learned, self._public(), self.ops)
            found, accepted = weigh(updates, weights / xp.sum(weights), parameters)
            shown = Shown(weights=found.astype(xp.float32), accepted=xp.int32(accepted))
            return average(found, updates, parameters, spans, self.ops), shown

        nothing = xp.zeros((len(spans), self.cohort_size), dtype=xp.float32)
        return combine, Shown(weights=nothing, accepted=xp.int32(0))

    def _ruling(self) -> Combine:
        chosen = self.robust.rule
        rule = chosen.build(self.ops)

        def combine(updates: Array, weights: Array, parameters: Array) -> tuple[Array, Tree]:
            root = self.ops.xp.zeros(0)
            if chosen.needs_root:
                down = self._public().first(chosen.rows).gradient(parameters)
                root = -down if self.downhill > 0 else down
            return rule(self._bounded(updates, weights), weights, root), ()

        return combine

    def _bounded(self, updates: Array, weights: Array) -> Array:
        """Shorten long check-ins, as the `[robust]` section says."""
        if not self.robust.asked:
            return updates
        given = self.robust.norm_bound
        bound = median(lengths(updates, self.ops), weights > 0, self.ops) if given is None else given
        return shortened(updates, self.ops.xp.float32(bound), self.ops)
