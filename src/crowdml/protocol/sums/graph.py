"""The graph of neighbours: with whom a member shares masks and secrets, and how few neighbours are enough.

Members stand in a circle in an order that follows from the roster's hash; each has the k nearest as neighbours, half
on either side (Bell, Bonawitz, Gascón, Lepoint and Raykova 2020). With n members, of whom c are corrupt and u drop out,
neither of them chosen with knowledge of the order, k and the threshold t are worked out such that

- *secrecy*: no member has t corrupt neighbours, and the honest survivors hang together, but for probability 2^-secrecy.
  They fall apart only if two runs of k/2 members each are all corrupt or dropped out;
- *recovery*: every member keeps t neighbours that do not drop out, but for probability 2^-recovery. If not, the sum is
  given up; nothing is revealed by that;
- *agreement* (where asked for): no two different sets of survivors can both find t neighbours of a member that agree
  to them, since only corrupt ones agree to two: 2t > k + corrupt neighbours, but for probability 2^-secrecy.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record

SECRECY_BITS = 40
RECOVERY_BITS = 20
LEAST_THRESHOLD = 2
"""One share alone must never be the secret."""


@record
class Graph:
    """How many neighbours, and how few of them are enough.

    Attributes:
        members: n.
        neighbours: k, even unless everybody is everybody's neighbour.
        threshold: t: shares that give a secret back.
        agreement: Whether a server that shows different survivors to different devices is found out, too.
    """

    members: int
    neighbours: int
    threshold: int
    agreement: bool

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.neighbours == self.members - 1


@functools.lru_cache(maxsize=256)
def make_graph(
    members: int,
    corrupt: int,
    lost: int,
    *,
    agreement: bool = False,
    secrecy_bits: int = SECRECY_BITS,
    recovery_bits: int = RECOVERY_BITS,
) -> Graph:
    """Find the least number of neighbours, and the largest threshold for it.

    Args:
        members: n.
        corrupt: Members that may work together with the server, c.
        lost: Members that may drop out, u.
        agreement: Whether two sets of survivors must be impossible too.
        secrecy_bits: Probability of a failure of secrecy, as a power of 1/2.
        recovery_bits: Probability that a sum is given up although no more than u dropped out.
    """
    for neighbours in (*range(2, members - 1, 2), members - 1):
        threshold = _threshold(members, lost, neighbours, 2.0**-recovery_bits)
        if threshold < LEAST_THRESHOLD:
            continue
        if _secret(members, corrupt, lost, neighbours, threshold, agreement, 2.0**-secrecy_bits):
            return Graph(members=members, neighbours=neighbours, threshold=threshold, agreement=agreement)
    raise BadInput(
        f"{members} members, of whom {corrupt} may be corrupt and {lost} may drop out: no threshold lies between",
        where="sums",
        hint="more members, a larger honest fraction, or fewer drop-outs",
    )


def _threshold(members: int, lost: int, neighbours: int, failure: float) -> int:
    """Return the largest t that leaves recovery as likely as asked for; 0 where there is none."""
    alive = members - 1 - lost  # a survivor's own place is taken by itself: it has one possible neighbour less
    threshold, chance = 0, 0.0
    while threshold < neighbours:
        chance += _chance(members - 1, alive, neighbours, threshold)
        if members * chance > failure:
            break
        threshold += 1
    return threshold


def _secret(
    members: int, corrupt: int, lost: int, neighbours: int, threshold: int, agreement: bool, failure: float
) -> bool:
    many = 2 * threshold - neighbours if agreement else threshold
    if many < 1:
        return False
    exposed = members * at_least(members - 1, corrupt, neighbours, many)
    return exposed + _apart(members, corrupt + lost, neighbours) <= failure


def _apart(members: int, removed: int, neighbours: int) -> float:
    """Bound the probability that honest survivors fall apart: two runs of k/2 places, all of them removed."""
    if neighbours >= members - 1:
        return 0.0
    places = 2 * (neighbours // 2)
    if removed < places:
        return 0.0
    chance = math.exp(sum(math.log((removed - at) / (members - at)) for at in range(places)))
    return math.comb(members, 2) * chance


def at_least(among: int, marked: int, drawn: int, least: int) -> float:
    """Return the probability of at least so many marked ones among `drawn`."""
    return math.fsum(_chance(among, marked, drawn, count) for count in range(least, min(drawn, marked) + 1))


def _chance(among: int, marked: int, drawn: int, count: int) -> float:
    if not 0 <= count <= marked or not 0 <= drawn - count <= among - marked:
        return 0.0
    logarithm = _log_comb(marked, count) + _log_comb(among - marked, drawn - count) - _log_comb(among, drawn)
    return math.exp(logarithm)


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


Places = npt.NDArray[np.int64]


def circle(seed: bytes, members: int) -> Places:
    """Put members, by their number in the roster, into the order that the seed gives: seed → AES-CTR → sort."""
    from crowdml.protocol.sums.secrets import stream

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
