"""The graph of neighbours: with whom a member shares masks and secrets, and how few neighbours are enough.

Members stand in a circle in an order that nobody could choose (`commitments`); each has the k nearest as neighbours,
half on either side (Bell, Bonawitz, Gascón, Lepoint and Raykova 2020). Of m members c may be corrupt and u may drop
out. The server may choose who drops out *after* it knows the order, so nothing below rests on luck with drop-outs but
that a sum is not given up. Numbers are worked out such that

- *one view* (T): two sets of survivors cannot both find T members that saw them, since only corrupt ones vouch for two:
  2T > m + c. This holds always;
- *secrecy of shares* (t): no member has t corrupt neighbours, but for probability 2^-40 over the orders of an attempt;
- *no islands* (w): honest survivors fall apart only where two gaps of k/2 consecutive places each hold none of them.
  In any two such stretches together fewer than w are corrupt, but for 2^-40 together with the above. A device demands
  w survivors in every two of them, so one of these is honest: no part of the honest survivors has a sum of its own;
- *recovery*: if u members drop out by chance, every member keeps t neighbours and every two stretches w survivors, but
  for 2^-20. If not, the sum is given up; nothing is revealed by that.

A server that shows different rosters at once sees more orders: with them it is 2^-38 (docs/decisions/0007-one-view.md).

Up to 64 members, and where no such k exists, everybody is everybody's neighbour: nothing is left to chance, honest
survivors always hang together, and t is such that 2t > k + c too.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.secure_aggregation.commitments import LAYERS
from crowdml.secure_aggregation.member_keys import stream

SECRECY_BITS = 40
RECOVERY_BITS = 20
COMPLETE = 64
"""Up to so many members everybody is everybody's neighbour."""
LEAST_THRESHOLD = 2
"""One share alone must never be the secret."""


@record
class Graph:
    """How many neighbours, and how few of them are enough.

    Attributes:
        members: m.
        neighbours: k, even unless everybody is everybody's neighbour.
        threshold: t: shares that give a secret back.
        agreeing: T: members, oneself included, that must have seen the same sharers and survivors.
        window: w: survivors in any two stretches of k/2 places of the circle; 0 where everybody is a neighbour.
    """

    members: int
    neighbours: int
    threshold: int
    agreeing: int
    window: int

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.neighbours == self.members - 1

    @property
    def reach(self) -> int:
        """Neighbours on either side."""
        return self.neighbours // 2


@functools.lru_cache(maxsize=1024)
def make_graph(members: int, corrupt: int, lost: int) -> Graph:
    """Find the least number of neighbours that will do.

    Args:
        members: m.
        corrupt: Members that may work together with the server, c.
        lost: Members that may drop out, u.
    """
    agreeing = (members + corrupt) // 2 + 1
    if agreeing > members - lost:
        raise _nothing_between(members, corrupt, lost)
    low, high = 1, (members - 2) // 2
    if members <= COMPLETE or _sparse(members, corrupt, lost, high) is None:
        return _complete(members, corrupt, lost, agreeing)
    while low < high:
        middle = (low + high) // 2
        if _sparse(members, corrupt, lost, middle) is None:
            low = middle + 1
        else:
            high = middle
    found = _sparse(members, corrupt, lost, high)
    assert found is not None  # noqa: S101  the largest was tried before, every other by the loop
    return Graph(members=members, neighbours=2 * high, threshold=found[0], agreeing=agreeing, window=found[1])


def _complete(members: int, corrupt: int, lost: int, agreeing: int) -> Graph:
    near = members - 1
    threshold = max(LEAST_THRESHOLD, (near + corrupt) // 2 + 1)
    if threshold > near - lost:
        raise _nothing_between(members, corrupt, lost)
    return Graph(members=members, neighbours=near, threshold=threshold, agreeing=agreeing, window=0)


def _sparse(members: int, corrupt: int, lost: int, reach: int) -> tuple[int, int] | None:
    """Return threshold and window for so many neighbours on either side; None where nothing lies between."""
    # Each opening of the order is a ticket, of which a server has so many; shares and stretches halve what is left.
    secrecy, recovery = 2.0**-SECRECY_BITS / (2 * LAYERS), 2.0**-RECOVERY_BITS / 2
    others, pairs = members - 1, math.comb(members, 2)
    safe = max(LEAST_THRESHOLD, least_safe(others, corrupt, 2 * reach, secrecy / members))
    threshold = most_kept(others, others - lost, 2 * reach, recovery / members)
    window = least_safe(members, corrupt, 2 * reach, secrecy / pairs)
    if safe > threshold or window > most_kept(members, members - lost, 2 * reach, recovery / pairs):
        return None
    return threshold, window


def _nothing_between(members: int, corrupt: int, lost: int) -> BadInput:
    return BadInput(
        f"{members} members, of whom {corrupt} may be corrupt and {lost} may drop out: no threshold lies between",
        where="secure-aggregation",
        hint=f"with {corrupt} corrupt ones at most {max(0, most_lost(members, corrupt))} of {members} may drop out; or "
        "a larger secure-aggregation.honest",
    )


def most_lost(members: int, corrupt: int) -> int:
    """Return how many may drop out at most: as many as leave an agreeing majority, and t neighbours to each.

    >>> most_lost(10, 1), most_lost(1000, 100)
    (3, 449)
    """
    agreeing = members - (members + corrupt) // 2 - 1
    if members > COMPLETE:
        return agreeing
    return min(agreeing, members - 1 - max(LEAST_THRESHOLD, (members - 1 + corrupt) // 2 + 1))


def least_safe(among: int, marked: int, drawn: int, failure: float) -> int:
    """Return the least number that is reached by the marked ones among `drawn` with a probability below `failure`."""
    count, chance = min(drawn, marked) + 1, 0.0
    while count > 0 and (chance := chance + _chance(among, marked, drawn, count - 1)) <= failure:
        count -= 1
    return count


def most_kept(among: int, marked: int, drawn: int, failure: float) -> int:
    """Return the largest number that the marked ones among `drawn` miss with a probability below `failure`."""
    count, chance = 0, 0.0
    while count < drawn and (chance := chance + _chance(among, marked, drawn, count)) <= failure:
        count += 1
    return count


def _chance(among: int, marked: int, drawn: int, count: int) -> float:
    """Return the probability of exactly so many marked ones among `drawn` (hypergeometric)."""
    if not 0 <= count <= marked or not 0 <= drawn - count <= among - marked:
        return 0.0
    logarithm = _log_comb(marked, count) + _log_comb(among - marked, drawn - count) - _log_comb(among, drawn)
    return math.exp(logarithm)


@functools.lru_cache(maxsize=1 << 17)
def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


Places = npt.NDArray[np.int64]


def circle(seed: bytes, members: int) -> Places:
    """Put members, by their number in the roster, into the order that the seed gives: seed → AES-CTR → sort."""
    words = np.frombuffer(stream(seed, 8 * members), "<u8")
    return np.argsort(words, kind="stable")


def neighbours_of(order: Places, graph: Graph) -> Places:
    """Return for every member its neighbours in ascending order, shape (members, k)."""
    n, k = graph.members, graph.neighbours
    if graph.complete:
        steps = np.arange(1, n)
    else:
        steps = np.concatenate([np.arange(1, k // 2 + 1), n - np.arange(1, k // 2 + 1)])
    around = np.empty((n, k), np.int64)
    around[order] = order[(np.arange(n)[:, None] + steps) % n]
    return np.sort(around, axis=1)


def places_among(near: Places) -> Places:
    """Return where a member stands in the list of each of its neighbours, shape (members, k).

    >>> places_among(np.array([[1, 2], [0, 2], [0, 1]])).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    members, count = near.shape
    pairs = near.reshape(-1) * members + np.repeat(np.arange(members), count)
    places = np.empty(members * count, np.int64)
    # Sorted by neighbour, then by member, the pairs are the neighbours' own lists, one after the other.
    places[np.argsort(pairs)] = np.arange(members * count) % count
    return places.reshape(members, count)


def fewest_in_two(order: Places, survivors: npt.NDArray[np.bool_], graph: Graph) -> int:
    """Return the fewest survivors in any two stretches of k/2 consecutive places that do not overlap.

    >>> graph = Graph(members=6, neighbours=4, threshold=2, agreeing=4, window=1)
    >>> fewest_in_two(np.arange(6), np.array([1, 1, 0, 1, 0, 0], bool), graph)
    1
    """
    reach, members = graph.reach, graph.members
    around = np.tile(survivors[order].astype(np.int64), 3)
    counted = np.concatenate([[0], np.cumsum(around)])
    held = (counted[reach:] - counted[:-reach])[: 2 * members]
    others = np.lib.stride_tricks.sliding_window_view(held[reach:], members - 2 * reach + 1)[:members].min(axis=1)
    return int((held[:members] + others).min())
