"""Limits: what an honest device can send, so that a server may refuse everything beyond.

Integers are bounded before the noise, and the noise has thin tails; so integers and norms have limits that an honest
check-in passes with probability at most `FAILURE`. The limits are those of the noise at the *smallest* ε that owners
may choose: the server does not know who has chosen what.

Tails, each of them a proven bound:

- a discrete Gaussian z is σ-sub-Gaussian: E[e^(tz)] is e^(t²σ²/2) times a quotient of sums of exp(-(k - c)²/(2σ²)) over
  all integers k, at c = tσ² and at c = 0, and such a sum is largest at c = 0. So one of d integers exceeds
  σ√(2 ln(2d/p)) with probability at most p, and the squared L2 norm exceeds σ²(d + 2√(dt) + 2t) with probability at
  most e^-t (Hsu, Kakade and Zhang 2012, theorem 2.1);
- a discrete Laplace integer exceeds m with probability at most 2e^(-m/s), and the L1 norm of d of them has a Chernoff
  bound: for every 0 < λ < 1/s it exceeds (d ln E[e^(λ|z|)] + ln(1/p))/λ with probability at most p.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crowdml.core import record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.calibration import for_owner
from crowdml.privacy.plan import Plan
from crowdml.privacy.sound import Sound

FAILURE = 1e-9
"""Largest probability with which an honest check-in is refused."""

LABELS = 1_000_000
"""More labels than any task has: limits grow with the logarithm of their number only."""


@record
class Limit:
    """What the integers of one part of a message stay below; n is the number that it is a sum of.

    Attributes:
        largest: |integer| at most, but for what each of the n adds.
        largest_each: What each of the n adds to that.
        order: The norm that is limited too; 0 for none.
        norm: The norm at most, but for what each of the n adds.
        norm_each: What each of the n adds to that.
    """

    largest: int
    largest_each: int
    order: int = 0
    norm: float = math.inf
    norm_each: float = 0.0

    def most(self, number: int = 1) -> int:
        """Largest |integer| of a sum of `number`."""
        return self.largest + self.largest_each * number

    def problem(self, integers: Any, number: int) -> str | None:
        """Say what is wrong with an array of integers that is a sum of `number`; None where nothing is."""
        own = np.asarray(integers).reshape(-1)
        # The places of the extremes are found in half the time that `min` and `max` take.
        largest = max(-int(own[own.argmin()]), int(own[own.argmax()])) if len(own) else 0
        if largest > self.most(number):
            return f"an integer of {largest}, where {self.most(number)} is the largest possible"
        if self.order:
            values = own.astype(np.float64)
            norm = math.sqrt(values.dot(values)) if self.order == 2 else float(np.abs(values).sum())
            longest = self.norm + self.norm_each * number
            if norm > longest:
                return f"a norm of {norm:.4g}, where {longest:.4g} is the longest possible"
        return None


@record
class Acceptance:
    """Limits of a whole check-in.

    Attributes:
        sends: Name of the update in the message.
        update: Limits of the update; it is a sum over rows, or of one.
        errors: Limits of the error count; None where counts are not sent. It is a sum over the rows counted.
        labels: Limits of each label count, a sum over all rows.
        rows: Rows behind a check-in at most; None where a device sends as many as it has.
        by_rows: Whether the update is a sum over rows.
    """

    sends: str
    update: Limit
    errors: Limit | None
    labels: Limit | None
    rows: int | None
    by_rows: bool

    def problem(self, check_in: Tree) -> str | None:
        """Say why no honest device sends this check-in, but for one in `1/FAILURE`; None where one might.

        The layout has been compared before, so names, types and shapes are right.
        """
        counts = check_in.get("counts", {})
        clear = {name: int(check_in[name]) for name in ("samples", "weight") if name in check_in}
        clear |= {name: int(counts[name]) for name in ("rows", "counted") if name in counts}
        if (found := self._of_clear(clear)) is not None:
            return found
        number = clear.get("samples", 0) if self.by_rows else clear.get("weight", 1)
        if (found := self.update.problem(_as_vector(check_in[self.sends]), number)) is not None:
            return f"{self.sends}: {found}"
        if self.errors and self.labels:
            if (found := self.errors.problem(counts["errors"], clear["counted"])) is not None:
                return f"errors: {found}"
            if (found := self.labels.problem(counts["labels"], clear["rows"])) is not None:
                return f"labels: {found}"
        return None

    def _of_clear(self, clear: dict[str, int]) -> str | None:
        """Look at what travels in clear."""
        for name, value in clear.items():
            if value < 0:
                return f"{name}: {value} is negative"
            if name == "weight" and value != 1:
                return f"weight: {value}, where every device counts 1"
            if name != "weight" and self.rows is not None and value > self.rows:
                return f"{name}: {value} rows, where {self.rows} are the most"
        if "rows" in clear and max(clear["counted"], clear["samples"]) > clear["rows"]:
            return f"rows: {clear['rows']}, which are fewer than were counted or trained on"
        return None


def _as_vector(update: Tree) -> Any:
    if isinstance(update, np.ndarray):
        return update
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in trees.leaves(update)])


def acceptance(plan: Plan, failure: float = FAILURE) -> Acceptance:
    """Return the limits of a check-in of a sound task."""
    if plan.sound is None:
        raise ValueError("only a sound plan bounds what a device can send")
    sound = for_owner(plan.sound, plan.sound.owner_range[0])
    counts = sound.statistics
    each = failure / (4 if counts else 2)  # integers and norm of the update, and the two kinds of count
    return Acceptance(
        sends=sound.sends,
        update=_of_update(sound, each),
        errors=Limit(largest=_laplace_most(counts.error_scale, 1, each), largest_each=1) if counts else None,
        labels=Limit(largest=_laplace_most(counts.label_scale, LABELS, each), largest_each=1) if counts else None,
        rows=sound.rows,
        by_rows=sound.update.grid.per == "example",
    )


def _of_update(sound: Sound, failure: float) -> Limit:
    grid, scale = sound.update.grid, sound.update.scale
    if grid.order == 1:
        largest, norm = _laplace_most(scale, grid.size, failure), _laplace_norm(scale, grid.size, failure)
    else:
        largest = math.ceil(scale * math.sqrt(2 * math.log(2 * grid.size / failure)))
        t = math.log(1 / failure)
        norm = scale * math.sqrt(grid.size + 2 * math.sqrt(grid.size * t) + 2 * t)
    return Limit(
        largest=largest,
        largest_each=grid.levels,
        order=grid.order,
        norm=norm,
        norm_each=float(grid.limit) if grid.order == 1 else math.sqrt(grid.limit),
    )


def _laplace_most(scale: float, size: int, failure: float) -> int:
    return math.ceil(scale * math.log(2 * size / failure))


def _laplace_norm(scale: float, size: int, failure: float) -> float:
    """Return the best Chernoff bound over some λ; each of them is valid."""
    ratio = math.exp(-1 / scale)

    def at(share: float) -> float:
        lam = share / scale
        grown = ratio * math.exp(lam)
        moment = math.log((1 - ratio) * (1 + grown) / ((1 + ratio) * (1 - grown)))
        return (size * moment + math.log(1 / failure)) / lam

    return min(at(share / 100) for share in range(1, 100))
