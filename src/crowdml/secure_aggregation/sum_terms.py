"""Terms of a sum, which all members know before it begins; and what comes out of one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.secure_aggregation.graph import Graph, make_graph
from crowdml.secure_aggregation.masked_vectors import LARGEST_BITS, packed_size


@record
class SumTerms:
    """What is summed, among how many, and how many of them may fail.

    Attributes:
        task: Name of the task.
        size: Integers in a vector.
        bits: The sum is taken modulo 2^bits.
        largest: |integer| of one member at most, before noise.
        invited: Members at most.
        least: Members whose vectors a sum holds at least; with fewer it is given up.
        corrupt: Members at most that work together with the server.
        delays: Versions at most that a member's work may be old: 0 unless there is a barrier.
        task_hash: Names the signed task that these numbers and the members' noise follow from.
    """

    task: str
    size: int
    bits: int
    largest: int
    invited: int
    least: int
    corrupt: int
    delays: int = 0
    task_hash: str = ""

    def __post_init__(self) -> None:
        """Refuse terms under which a sum could come out wrong, or could be of one member alone."""
        if self.invited * self.largest >= 1 << (self.bits - 1):
            raise BadInput(
                f"{self.invited} integers of up to {self.largest} do not fit into {self.bits} bits",
                where="secure-aggregation",
                hint=f"at least {bits_for(self.invited, self.largest)} bits",
            )
        if not 3 <= self.least <= self.invited or self.least - self.corrupt < 2:
            raise BadInput(
                f"a sum of {self.least} of {self.invited}, of whom {self.corrupt} may be corrupt, hides nobody",
                where="secure-aggregation",
                hint="at least three members, and two honest ones among the least number",
            )
        self.graph(self.invited)
        self.graph(self.least)

    @property
    def body_bytes(self) -> int:
        """Bytes of a masked vector."""
        return packed_size(self.size, self.bits)

    def graph(self, members: int) -> Graph:
        """Work out neighbours and threshold for a roster of so many."""
        return make_graph(members, self.corrupt, members - self.least)


def bits_for(members: int, largest: int, deviation: float = 0.0) -> int:
    """Return the bits of a modulus that a sum never wraps, but for noise beyond 8 of its standard deviations.

    Args:
        members: Members at most.
        largest: |integer| of one member at most, before noise.
        deviation: Standard deviation of one member's share of the noise.

    >>> bits_for(1000, 2**15)
    26
    """
    noise = 8 * (math.isqrt(math.ceil(Fraction(deviation) ** 2 * members)) + 1) if deviation else 0
    bits = (members * largest + noise).bit_length() + 1
    if bits > LARGEST_BITS:
        raise BadInput(
            f"a sum over {members} members of integers up to {largest} takes {bits} bits",
            where="secure-aggregation",
            hint=f"at most {LARGEST_BITS}: fewer members, or fewer rows per release",
        )
    return bits


@record
class Sum:
    """What came out.

    Attributes:
        total: The sum, modulo 2^bits, taken between -2^(bits-1) and 2^(bits-1).
        survivors: Slots of those whose vectors are in it.
    """

    total: npt.NDArray[np.int64]
    survivors: tuple[int, ...]
