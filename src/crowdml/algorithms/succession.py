"""Succession: several check-ins one after another, each followed by its step, without starting anew for each.

A busy server folds in whole batches. Whatever does not depend on the parameters (scaling integers, the damping of old
check-ins, the rate) is worked out for many check-ins at once; only the steps themselves are taken in turn. Every number
goes through the same operations in the same order as with `absorb` and `commit`, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import projection, staleness
from crowdml.algorithms.averaging import Averaging
from crowdml.core import NUMPY, Array, record
from crowdml.core.ops import Tree

Floats = npt.NDArray[np.float32]
AT_ONCE = 1 << 16
"""Numbers that are worked on at once: few enough to stay in the processor's cache."""


@record
class Succession:
    """Takes steps over one vector, where every check-in is its own commit.

    Attributes:
        sends: Name of the update in a check-in; a `change` is added as it is.
        scale: `scale(check_in)`: the update of a check-in, or of many in the rows of its arrays.
        pull: `pull(parameters)`: the regulariser that the server adds to an update; None for nothing.
        factor: `factor(count)`: the rate, of one count or an array of them; counts start at 1.
        radius: The parameters stay in a ball of this radius.
        averaging: Says how old check-ins are damped.
    """

    sends: str
    scale: Callable[[Tree], Array]
    pull: Callable[[Array], Array] | None
    factor: Callable[[Array], Array]
    radius: float
    averaging: Averaging

    def walk(self, parameters: Floats, version: Array, check_ins: Sequence[Tree], ages: Sequence[int]) -> Floats:
        """Return the parameters after all steps; `version` is the one before the first."""
        own, at_once = parameters.copy(), max(1, AT_ONCE // max(1, parameters.size))
        for first in range(0, len(check_ins), at_once):
            some = slice(first, first + at_once)
            self._walk(own, int(version) + first, check_ins[some], ages[some])
        return own

    def _walk(self, own: Floats, version: int, check_ins: Sequence[Tree], ages: Sequence[int]) -> None:
        """Take some of the steps, in place."""
        move = np.add if self.sends == "change" else np.subtract
        shrink = projection.shrinker(self.radius)
        updates = self.scale(_rows_of(check_ins, self.sends))
        factors = [column[:, None] for column in self._factors(version, ages)]
        if self.pull is None:
            for column in factors:
                updates = updates * column
        for number, update in enumerate(updates):
            if self.pull is not None:
                update = update + self.pull(own)
                for column in factors:
                    update = update * column[number]
            move(own, update, own)
            shrink(own)

    def _factors(self, version: int, ages: Sequence[int]) -> list[Floats]:
        """Return what updates are multiplied by, in this order."""
        found = []
        if self.averaging.stale == "weight":
            # One by one: the power of an array may be rounded otherwise than that of a number.
            damped = [staleness.factor("weight", np.int32(age), NUMPY) for age in ages]
            found.append(np.array(damped, np.float32))
        if self.sends == "gradient":
            counts = np.arange(version + 1, version + 1 + len(ages), dtype=np.int32)
            found.append(np.broadcast_to(np.float32(self.factor(counts)), len(ages)))
        return found


def _rows_of(check_ins: Sequence[Tree], sends: str) -> Tree:
    """Put check-ins below each other: updates as rows, the numbers beside them as a column."""
    names = [name for name in check_ins[0] if name != "counts"]
    made = {name: np.array([own[name] for own in check_ins]) for name in names}
    return {name: own if name == sends else own[:, None] for name, own in made.items()}
