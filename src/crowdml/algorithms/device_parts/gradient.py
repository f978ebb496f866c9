"""gradient: a device sends the bounded gradient of its batch at the parameters that it checked out, and counts.

Crowd-ML 2015, algorithm 1 (device routines 2 and 3). Counts are of rows seen, of rows that the model got wrong, and of
how the targets are spread. They are integers; noise on them is discrete. The same record is what travels, what the
server sums up for the whole crowd, and what it keeps for each device (algorithm 2 and equation 14).
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.algorithms.contract import DevicePart
from crowdml.core import Array, Batch, Broadcast, Coins, Ops, Release, Tally, Target, Tree, record
from crowdml.privacy.sanitisers import Objective, Sanitiser


@record
class Counting:
    """Counts errors and targets, and sums counts up.

    Attributes:
        target: What rows are mapped to.
        ops: Array operations.
    """

    target: Target
    ops: Ops

    def empty(self) -> Tally:
        """Begin at zero."""
        xp = self.ops.xp
        zero = xp.int32(0)
        return Tally(rows=zero, counted=zero, errors=zero, spread=xp.zeros((self.target.bins,), dtype=xp.int32))

    def count(self, batch: Batch, predicted: Array, counted: Array, coins: Coins) -> Tally:
        """Count one batch: errors over the rows marked in `counted`, targets over all rows."""
        xp = self.ops.xp
        wrong = self.target.wrong(predicted, batch.targets, coins, self.ops)
        spread = self.target.spread(batch.targets, self.ops) * batch.mask
        return Tally(
            rows=batch.count(xp),
            counted=xp.sum(counted).astype(xp.int32),
            errors=xp.sum(counted * wrong).astype(xp.int32),
            spread=xp.sum(spread, axis=1).astype(xp.int32),
        )

    def add(self, totals: Tally, counts: Tally) -> Tally:
        """Sum up. Spelt out, since on a live server this runs for every check-in."""
        return Tally(
            rows=totals.rows + counts.rows,
            counted=totals.counted + counts.counted,
            errors=totals.errors + counts.errors,
            spread=totals.spread + counts.spread,
        )


def estimated_error(totals: Tally, ops: Ops) -> Array:
    """Estimate the error rate from counts, equation (14); 1 before anything was counted."""
    xp = ops.xp
    errors, counted = xp.asarray(totals.errors), xp.asarray(totals.counted)
    rate = errors.astype(ops.wide) / xp.maximum(counted, 1).astype(ops.wide)
    return xp.where(counted > 0, rate, ops.wide(1))


def is_low(totals: Tally, error_below: float, error_rows: int) -> Array:
    """Tell whether counts meet `error-below`: enough rows, and few enough errors among them."""
    return (totals.counted >= error_rows) & (totals.errors <= error_below * totals.counted)


@record
class Gradient(DevicePart):
    """One gradient over all rows of the batch.

    Attributes:
        objective: The model.
        sanitiser: Bounds each example, or the mean.
        predict: `predict(outputs)`: predictions, for counting.
        ops: Array operations.
        counting: Counts errors and targets at the parameters checked out; None: nothing is counted.
        held_out: Share of rows that do not train and whose errors are counted instead (remark 2 of the paper). The
            mean is then over fewer rows, so the noise is scaled by their number.
    """

    objective: Objective
    sanitiser: Sanitiser
    predict: Callable[[Array], Array]
    ops: Ops
    counting: Counting | None = None
    held_out: float = 0.0

    def step(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Take the gradient, and count."""
        training, counted = self._split(batch, coins)
        found = self.objective.gradients(broadcast.parameters, batch)
        update = self.sanitiser.bound_examples(
            found, training, lambda: self.objective.regulariser(broadcast.parameters), coins
        )
        counts = self.counting.count(batch, self.predict(found.outputs), counted, coins) if self.counting else ()
        rows = self.ops.xp.sum(training).astype(self.ops.xp.int32)
        return Release(update=update, rows=rows, counts=counts, count=broadcast.count), work

    def _split(self, batch: Batch, coins: Coins) -> tuple[Array, Array]:
        """Mark the rows that train and the rows whose errors count: all for both, unless a share is held out."""
        if not self.held_out:
            return batch.mask, batch.mask
        chosen = coins.uniform("held-out", batch.mask.shape) < self.held_out
        held_out = chosen.astype(self.ops.xp.float32) * batch.mask
        return batch.mask - held_out, held_out
