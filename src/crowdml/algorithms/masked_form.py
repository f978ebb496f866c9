"""The masked form of a check-in: one vector of integers, and the sum of many of them as one check-in again.

Everything in a check-in goes into the vector, the number of rows or the weight too. In sound mode numbers are integers
on a grid already. Where nothing is promised they are written in fixed point, and a number out of range is an error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.acceptance import Acceptance
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.masking import Masking
from crowdml.algorithms.task import Task
from crowdml.core import BadInput, record, trees
from crowdml.core.errors import MalformedMessage
from crowdml.core.ops import Tree
from crowdml.privacy import Plan
from crowdml.privacy.sound import SoundMechanism
from crowdml.protocol.sums import SumTerms, bits_for

Vector = npt.NDArray[np.int64]
NOISY = ("gradient", "change", "moments", "counts")
"""Parts of a check-in that get noise."""


@record
class MaskedForm:
    """Turns check-ins into vectors and sums into check-ins.

    Attributes:
        terms: What is summed, among how many.
        masking: Members and shares of noise.
        example: A check-in, for names, types and shapes.
        places: Binary places of numbers that are not integers.
        deviation: Standard deviation of each device's share of the noise.
    """

    terms: SumTerms
    masking: Masking
    example: Tree
    places: int
    deviation: float

    def vector(self, release: Tree, check_in: Tree) -> tuple[Vector, Vector | None]:
        """Return what a device has to say as integers, and its share of the noise; None where there is none."""
        noisy = self._integers(check_in)
        bounded = check_in | {name: release[name] for name in NOISY if name in check_in}
        if all(leaf.dtype.kind == "i" for leaf in map(np.asarray, trees.leaves(check_in))):
            own = self._integers(bounded)
            return own, noisy - own
        return noisy, None

    def check_in(self, total: Vector, survivors: int) -> Tree:
        """Make one check-in of a sum; a sum that no honest devices can have is refused."""
        most = survivors * self.terms.largest + 8 * math.sqrt(survivors) * self.deviation
        if len(total) != self.terms.size or (len(total) and int(np.abs(total).max()) > most):
            raise MalformedMessage("the sum is beyond what its members can have sent: it has wrapped, or one has lied")
        leaves, at = [], 0
        for leaf in map(np.asarray, trees.leaves(self.example)):
            part = total[at : at + leaf.size].reshape(leaf.shape)
            at += leaf.size
            leaves.append(part if leaf.dtype.kind == "i" else (part / 2.0**self.places).astype(np.float32))
        return trees.fill(self.example, iter(leaves))

    def _integers(self, check_in: Tree) -> Vector:
        return np.concatenate([self._written(np.asarray(leaf).reshape(-1)) for leaf in trees.leaves(check_in)])

    def _written(self, leaf: npt.NDArray[Any]) -> Vector:
        if leaf.dtype.kind == "i":
            return leaf.astype(np.int64)
        largest = self.terms.largest / 2.0**self.places
        if not np.isfinite(leaf).all() or (leaf.size and float(np.abs(leaf).max()) > largest):
            raise BadInput(
                f"a number of the message is beyond {largest:g}",
                where="sums.bound",
                hint="nothing is sent: a larger bound, or a smaller rate",
            )
        return np.rint(leaf.astype(np.float64) * 2.0**self.places).astype(np.int64)


def make_masked_form(
    task: Task, algorithm: Algorithm, plan: Plan, example: Tree, mechanism: SoundMechanism | None
) -> MaskedForm | None:
    """Work out the masked form of a task's check-ins; None where they are not masked.

    Args:
        task: The task.
        algorithm: Its functions.
        plan: Bound and noise.
        example: A check-in of the server's kind, with the update as one vector.
        mechanism: Bound and noise of these check-ins; None where nothing is promised.
    """
    masking = task.masking()
    if masking is None:
        return None
    rows, settings = Acceptance.of(algorithm, plan).rows, task.sums
    update, deviation, places = math.ceil(settings.bound * 2.0**settings.precision), 0.0, settings.precision
    if plan.sound and mechanism:
        grid = mechanism.grid
        update, deviation, places = grid.levels * (rows if grid.per == "example" else 1), mechanism.scale, 0
        deviation = max(deviation, plan.sound.statistics.error_scale if plan.sound.statistics else 0.0)
    by_rows = "samples" in example or "counts" in example or (not plan.sound and algorithm.rounds is not None)
    largest = max(update, rows if by_rows else 1)
    terms = SumTerms(
        task=task.name,
        size=trees.size(example),
        bits=bits_for(masking.invited, largest, deviation),
        largest=largest,
        invited=masking.invited,
        least=masking.least,
        corrupt=masking.corrupt,
        delays=algorithm.barrier.max_delay if algorithm.barrier else 0,
    )
    return MaskedForm(terms=terms, masking=masking, example=example, places=places, deviation=deviation)
