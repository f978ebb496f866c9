"""Limits: what an honest device can send, so that a server may refuse everything beyond.

Without a promise nothing bounds an honest device, so numbers only have to be so small that squares cannot overflow, and
rows so few that they are counted exactly (`plain_problem`). Counts then carry no noise, so they must agree with each
other.

Integers on the grid are bounded before the noise, and the noise has thin tails; so integers and norms have limits that
an honest check-in passes with probability at most `FAILURE`. A server takes those of the noise at the *smallest* ε that
owners may choose (`Plan.noisiest`): it does not know who has chosen what.

Tails, each of them a proven bound:

- a discrete Gaussian z is σ-sub-Gaussian: E[e^(tz)] is e^(t²σ²/2) times a quotient of sums of exp(-(k - c)²/(2σ²)) over
  all integers k, at c = tσ² and at c = 0, and such a sum is largest at c = 0. So one of d integers exceeds
  σ√(2 ln(2d/p)) with probability at most p, and the squared L2 norm exceeds σ²(d + 2√(dt) + 2t) with probability at
  most e^-t (Hsu, Kakade and Zhang 2012, theorem 2.1);
- a rounded Gaussian exceeds m only where the Gaussian exceeds m + ½, so the same holds for its integers; rounding
  makes a vector longer by at most √d/2;
- a discrete Laplace integer exceeds m with probability at most 2e^(-m/s), and the L1 norm of d of them has a Chernoff
  bound: for every 0 < λ < 1/s it exceeds (d ln E[e^(λ|z|)] + ln(1/p))/λ with probability at most p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import CheckIn, Tally, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.grid import GridMechanism

FAILURE = 1e-9
"""Largest probability with which an honest check-in is refused."""

LARGEST_FLOAT = 1e15
LARGEST_ROWS = 1 << 24
"""Rows that a device may claim where the task sets no limit: float32 counts them exactly."""

LABELS = 1_000_000
"""More labels than any task has: limits grow with the logarithm of their number only."""


BLOCK = 10_000
"""Integers of which a norm is taken at once: few enough to stay in the processor's cache as floats, and for OpenBLAS
not to wake its threads, which would cost more than the product."""

NEAR = 1e-9
"""A norm this much below its limit is so however its sum was taken, in double precision."""

FEW = 4
"""Fewer check-ins than this are looked at one by one."""

AT_ONCE = 12 * BLOCK
"""Integers that are looked at before the next ones: few enough to stay in the cache that is next to a processor."""

ROUGH = 1e-3
"""More than the relative error of a norm of so many numbers in single precision: `BLOCK` times 2^-24, and roundings."""


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
        flat = integers if type(integers) is np.ndarray and integers.ndim == 1 else np.asarray(integers).reshape(-1)
        longest, most = self.norm + self.norm_each * number, self.most(number)
        largest, norm = _measures(flat, self.order, longest)
        if largest > most:
            return f"an integer of {largest}, where {most} is the largest possible"
        if self.order and norm > longest:
            return f"a norm of {norm:.4g}, where {longest:.4g} is the longest possible"
        return None


def _measures(flat: npt.NDArray[Any], order: int, longest: float) -> tuple[int, float]:
    """Return the largest |integer|, and the norm: to double precision, unless it is clearly below `longest`.

    Memory is gone through once, and no copy of all integers as floats is made. Of many the norm is looked at in single
    precision first, which takes half as long: its terms are positive, so the sum is off by less than `ROUGH`.
    """
    if 0 < len(flat) <= BLOCK and flat.itemsize <= 4:
        # Doubles hold such integers exactly; of few the place of the largest is found sooner than the largest.
        values = flat.astype(np.float64)
        squares = float(values.dot(values))
        np.abs(values, values)
        return int(values[values.argmax()]), math.sqrt(squares) if order == 2 else float(values.sum())
    largest, total = 0, 0.0
    for begin in range(0, len(flat), AT_ONCE):
        piece = flat[begin : begin + AT_ONCE]
        largest = max(largest, -int(np.minimum.reduce(piece)), int(np.maximum.reduce(piece)))
        total += _power_sum(piece.astype(np.float32), order)
    if (rough := _root(total, order)) * (1 + ROUGH) < longest:
        return largest, rough
    pieces = (flat[begin : begin + AT_ONCE] for begin in range(0, len(flat), AT_ONCE))
    return largest, _root(sum(_power_sum(piece.astype(np.float64), order) for piece in pieces), order)


def _power_sum(values: npt.NDArray[np.floating[Any]], order: int) -> float:
    """Add up squares, or amounts, `BLOCK` at a time; the sums of blocks in double precision."""
    whole = len(values) // BLOCK * BLOCK
    rows, rest = values[:whole].reshape(-1, BLOCK), values[whole:]
    if order == 2:
        return float(np.vecdot(rows, rows).sum(dtype=np.float64)) + float(rest.dot(rest))
    return float(np.abs(rows).sum(axis=1).sum(dtype=np.float64)) + float(np.abs(rest).sum())


def _root(total: float, order: int) -> float:
    return math.sqrt(total) if order == 2 else total


@record
class GridLimits:
    """Limits of a whole check-in of integers on a grid.

    Attributes:
        update: Limits of the update; it is a sum over rows, or of one.
        errors: Limits of the error count; None where counts are not sent. It is a sum over the rows counted.
        labels: Limits of each label count, a sum over all rows.
        by_rows: Whether the update is a sum over rows.
    """

    update: Limit
    errors: Limit | None
    labels: Limit | None
    by_rows: bool

    def problem(self, check_in: CheckIn, most_rows: int | None) -> str | None:
        """Say why no honest device sends this check-in, but for one in `1/FAILURE`; None where one might.

        The layout has been compared before, so names, types and shapes are right.

        Args:
            check_in: The check-in.
            most_rows: Rows behind one at most; None: all that a device has.
        """
        counts, weight = check_in.counts, int(check_in.weight)
        clear = {"weight": weight}
        if counts:
            clear |= {"rows": int(counts.rows), "counted": int(counts.counted)}
        if (found := self._of_clear(clear, most_rows)) is not None:
            return found
        if (found := self.update.problem(_as_vector(check_in.update), weight)) is not None:
            return f"update: {found}"
        if not (self.errors and self.labels and counts):
            return None
        if (found := self.errors.problem(counts.errors, clear["counted"])) is not None:
            return f"errors: {found}"
        if (found := self.labels.problem(counts.spread, clear["rows"])) is not None:
            return f"spread: {found}"
        return None

    def problems(self, check_ins: Sequence[CheckIn], most_rows: int | None) -> list[str | None]:
        """Say it of several check-ins: those clearly within all limits are found together, the others one by one."""
        if len(check_ins) < FEW or check_ins[0].counts or not isinstance(check_ins[0].update, np.ndarray):
            return [self.problem(check_in, most_rows) for check_in in check_ins]
        fine = self._clearly_fine(check_ins, most_rows)
        return [
            None if sure else self.problem(check_in, most_rows)
            for check_in, sure in zip(check_ins, fine.tolist(), strict=True)
        ]

    def _clearly_fine(self, check_ins: Sequence[CheckIn], most_rows: int | None) -> npt.NDArray[np.bool_]:
        """Tell of which check-ins without counts nothing comes near a limit."""
        limit = self.update
        values = np.array([check_in.update for check_in in check_ins]).astype(np.float64)
        weights = np.array([int(check_in.weight) for check_in in check_ins])
        norms = np.sqrt(np.vecdot(values, values)) if limit.order == 2 else None
        np.abs(values, values)
        if norms is None:
            norms = values.sum(axis=1)
        fine: npt.NDArray[np.bool_] = values.max(axis=1) <= limit.largest + limit.largest_each * weights
        if limit.order:
            fine &= norms * (1 + NEAR) < limit.norm + limit.norm_each * weights
        if self.by_rows:
            most = LARGEST_ROWS if most_rows is None else most_rows
            fine &= (weights >= 0) & (weights <= most)
        else:
            fine &= weights == 1
        return fine

    def _of_clear(self, clear: dict[str, int], most_rows: int | None) -> str | None:
        """Look at what travels in clear."""
        for name, value in clear.items():
            if value < 0:
                return f"{name}: {value} is negative"
            if name == "weight" and not self.by_rows:
                if value != 1:
                    return f"weight: {value}, where every device counts 1"
            elif most_rows is not None and value > most_rows:
                return f"{name}: {value} rows, where {most_rows} are the most"
        trained = clear["weight"] if self.by_rows else 0
        if "rows" in clear and max(clear["counted"], trained) > clear["rows"]:
            return f"rows: {clear['rows']}, which are fewer than were counted or trained on"
        return None


def _as_vector(update: Tree) -> Any:
    if isinstance(update, np.ndarray):
        return update
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in trees.leaves(update)])


def grid_limits(mechanism: GridMechanism, counts: CountNoise | None, failure: float = FAILURE) -> GridLimits:
    """Return the limits of a check-in with this noise."""
    each = failure / (4 if counts else 2)  # integers and norm of the update, and the two kinds of count
    return GridLimits(
        update=_of_update(mechanism, each),
        errors=Limit(largest=_laplace_most(counts.errors, 1, each), largest_each=1) if counts else None,
        labels=Limit(largest=_laplace_most(counts.spread, LABELS, each), largest_each=1) if counts else None,
        by_rows=mechanism.grid.per == "example",
    )


def plain_problem(check_in: CheckIn, most_rows: int | None, alike: bool) -> str | None:
    """Say why no honest device sends this check-in of numbers without a bound; None where one might.

    Args:
        check_in: The check-in.
        most_rows: Rows behind one at most; None: all that a device has.
        alike: Whether every device counts 1, however many rows it has.
    """
    most = most_rows or LARGEST_ROWS
    for path, leaf in trees.paths(check_in):
        if leaf.dtype.kind == "f":
            if max(-leaf.min(), leaf.max()) > LARGEST_FLOAT:
                return f"{path}: a number beyond {LARGEST_FLOAT:g}"
        elif path == "weight" and alike and leaf != 1:
            return f"weight: {leaf}, where every device counts 1"
        elif leaf.min() < 0 or leaf.max() > most:
            return f"{path}: a count beyond 0 to {most}"
    return _relations(check_in.counts, int(check_in.weight)) if check_in.counts else None


def _relations(counts: Tally, samples: int) -> str | None:
    """Say how exact counts contradict each other; a device counts errors and targets of the very rows it has."""
    rows, counted, errors = int(counts.rows), int(counts.counted), int(counts.errors)
    spread = int(counts.spread.sum(dtype="int64"))
    if errors > counted:
        return f"errors: {errors} among {counted} rows that were counted"
    if max(counted, samples) > rows:
        return f"rows: {rows}, which are fewer than were counted or trained on"
    if spread != rows:
        return f"targets: {spread} of {rows} rows"
    return None


def _of_update(mechanism: GridMechanism, failure: float) -> Limit:
    grid, scale = mechanism.grid, mechanism.scale
    if grid.order == 1:
        largest, norm = _laplace_most(scale, grid.size, failure), _laplace_norm(scale, grid.size, failure)
    else:
        largest = math.ceil(scale * math.sqrt(2 * math.log(2 * grid.size / failure)))
        t = math.log(1 / failure)
        norm = scale * math.sqrt(grid.size + 2 * math.sqrt(grid.size * t) + 2 * t) + math.sqrt(grid.size) / 2
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
