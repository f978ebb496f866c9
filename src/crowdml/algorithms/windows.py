"""Windows: which of the two an algorithm needs between commits, a sum or every check-in by itself."""

from __future__ import annotations

from collections.abc import Callable

from crowdml.algorithms import staleness
from crowdml.algorithms.averaging import Averaging
from crowdml.algorithms.contract import Parts
from crowdml.algorithms.gathering import Combine, Gathering
from crowdml.algorithms.public import FinetuneSettings, Public, full_model, layer_spans
from crowdml.algorithms.robust.contract import lengths, median, shortened
from crowdml.algorithms.weighing import (
    Average,
    By,
    LearnedSettings,
    Weigh,
    average_of,
    inverse_variance,
    learned,
    of_changes,
)
from crowdml.core import Array, BadInput, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.sound import Sends

NEEDS_TWO = 'per-round or server-batch of 2 or more, or kind = "fedavg"'


@record
class Crowding:
    """How check-ins become one update, as a recipe's settings say.

    Attributes:
        together: Check-ins per commit.
        stale: What happens to check-ins that started from an old version.
        sends: What a check-in carries.
        by: How an average weighs.
        learned: How weights are learnt.
        finetune: Steps on public rows after every version.
    """

    together: int
    stale: staleness.Stale
    sends: Sends
    by: By
    learned: LearnedSettings = LearnedSettings()
    finetune: FinetuneSettings = FinetuneSettings()

    @property
    def weighs(self) -> bool:
        """Whether weights depend on the check-ins themselves."""
        return self.by in ("inverse-variance", "learned")

    @property
    def average(self) -> Average:
        """What weights are put on: devices' changes, or their whole models."""
        return average_of(self.learned) if self.by == "learned" else of_changes


def make_window(parts: Parts, own: Crowding) -> Averaging | Gathering:
    """Make the window; only a sum where nothing else is asked for."""
    asked = {"robust": parts.robust.asked, "algorithm.averaging": own.weighs, "crowd.attack": parts.attack is not None}
    if not any(asked.values()):
        return Averaging(stale=own.stale, alone=own.together == 1, ops=parts.ops)
    if own.together < 2:
        where = next(name for name, given in asked.items() if given)
        raise BadInput("a version is made of one check-in: there is nothing to compare", where=where, hint=NEEDS_TWO)
    weigh = _weigh(parts, own)
    layers = len(layer_spans(full_model(parts)))
    return Gathering(
        together=own.together,
        stale=own.stale,
        combine=_weighing(parts, weigh, own.average) if weigh else _ruling(parts, own.sends),
        shown=_shown(parts.ops.xp.zeros((layers, own.together), dtype=parts.ops.xp.float32), parts) if weigh else (),
        attack=parts.attack,
        ops=parts.ops,
    )


def refiner(parts: Parts, own: Crowding) -> Callable[[Tree], Tree] | None:
    """Return the function that takes the server's own steps on public rows, where there are any."""
    if not own.finetune.steps:
        return None

    def refine(parameters: Tree) -> Tree:
        vector = Public.of(parts).finetuned(trees.joined(parameters, parts.ops), own.finetune)
        return trees.cut(vector.astype(parts.ops.xp.float32), parameters)

    return refine


def _shown(weights: Array, parts: Parts, accepted: Array = 0) -> Tree:
    return {"weights": weights.astype(parts.ops.xp.float32), "accepted": parts.ops.xp.int32(accepted)}


def _weigh(parts: Parts, own: Crowding) -> Weigh | None:
    if own.by == "inverse-variance":
        return inverse_variance(len(layer_spans(full_model(parts))), parts.ops)
    if own.by == "learned":
        # The rows are there when a version is made, but not yet where only shapes are asked for.
        return lambda *given: learned(own.learned, Public.of(parts), parts.ops)(*given)
    return None


def _weighing(parts: Parts, weigh: Weigh, average: Average) -> Combine:
    spans, bounded = layer_spans(full_model(parts)), _bound(parts)

    def combine(updates: Array, weights: Array, parameters: Array) -> tuple[Array, Tree]:
        updates = bounded(updates, weights)
        prior = weights / parts.ops.xp.sum(weights)
        found, accepted = weigh(updates, prior, parameters)
        return average(found, updates, parameters, spans, parts.ops), _shown(found, parts, accepted)

    return combine


def _ruling(parts: Parts, sends: Sends) -> Combine:
    rule, bounded = parts.robust.rule.build(parts.ops), _bound(parts)
    needs_root = parts.robust.rule.needs_root

    def combine(updates: Array, weights: Array, parameters: Array) -> tuple[Array, Tree]:
        root = parts.ops.xp.zeros(0)
        if needs_root:
            down = Public.of(parts).first(parts.robust.rule.rows).gradient(parameters)
            root = down if sends == "gradient" else -down
        return rule(bounded(updates, weights), weights, root), ()

    return combine


def _bound(parts: Parts) -> Callable[[Array, Array], Array]:
    """Return the function that shortens long check-ins, as the `[robust]` section says."""
    robust, ops = parts.robust, parts.ops
    if not robust.asked:
        return lambda updates, weights: updates

    def bounded(updates: Array, weights: Array) -> Array:
        bound = median(lengths(updates, ops), weights > 0, ops) if robust.norm_bound is None else robust.norm_bound
        return shortened(updates, ops.xp.float32(bound), ops)

    return bounded
