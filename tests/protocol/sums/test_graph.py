from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.protocol.sums.graph import Graph, at_least, circle, make_graph, neighbours_of


def exact(among: int, marked: int, drawn: int, counts: range) -> Fraction:
    ways = sum(math.comb(marked, own) * math.comb(among - marked, drawn - own) for own in counts if own <= drawn)
    return Fraction(ways, math.comb(among, drawn))


@pytest.mark.parametrize("agreement", [False, True])
@pytest.mark.parametrize(
    ("members", "corrupt", "lost"), [(1000, 100, 100), (1000, 50, 300), (200, 20, 60), (50, 5, 10)]
)
def test_both_failures_are_as_rare_as_stated(members: int, corrupt: int, lost: int, agreement: bool) -> None:
    """By exact integer arithmetic, independent of the code's logarithms."""
    graph = make_graph(members, corrupt, lost, agreement=agreement)
    k, t = graph.neighbours, graph.threshold
    many = 2 * t - k if agreement else t
    exposed = members * exact(members - 1, corrupt, k, range(many, corrupt + 1))
    removed = corrupt + lost
    apart = Fraction(0)
    if not graph.complete and removed >= k:
        apart = math.comb(members, 2) * Fraction(math.perm(removed, k), math.perm(members, k))
    assert exposed + apart <= Fraction(1, 2**40) * Fraction(1_000_001, 1_000_000)
    alive = members - 1 - lost
    assert members * exact(members - 1, alive, k, range(max(0, k - lost), t)) <= Fraction(1, 2**20) * Fraction(
        1001, 1000
    )


def test_two_neighbours_less_would_not_do() -> None:
    graph = make_graph(1000, 100, 100)
    assert (graph.neighbours, graph.threshold) == (46, 26)
    k = graph.neighbours - 2
    best = max(t for t in range(1, k + 1) if 1000 * float(exact(999, 899, k, range(max(0, k - 100), t))) <= 2.0**-20)
    assert 1000 * float(exact(999, 100, k, range(best, 101))) > 2.0**-40


@pytest.mark.parametrize("members", [3, 4, 5, 9, 10, 57, 200])
def test_neighbours_are_each_others(members: int) -> None:
    graph = make_graph(members, 0, members // 5)
    near = neighbours_of(circle(bytes(32), members), graph)
    assert near.shape == (members, graph.neighbours)
    for own in range(members):
        assert own not in near[own]
        assert len(set(near[own].tolist())) == graph.neighbours
        assert all(own in near[other] for other in near[own])
        assert near[own].tolist() == sorted(near[own].tolist())


def test_the_circle_follows_from_the_seed() -> None:
    assert circle(b"a" * 32, 50).tolist() == circle(b"a" * 32, 50).tolist()
    assert circle(b"a" * 32, 50).tolist() != circle(b"b" * 32, 50).tolist()


def test_every_order_of_the_circle_is_as_likely() -> None:
    """720 seeds over the 6 orders of 3: chi-squared with 5 degrees of freedom, a false alarm in 1e-6 (seeds fixed)."""
    from scipy.stats import chi2

    orders = [tuple(circle(seed.to_bytes(32, "big"), 3).tolist()) for seed in range(720)]
    counts = np.array([orders.count(own) for own in set(orders)])
    assert len(counts) == 6
    assert ((counts - 120) ** 2 / 120).sum() < chi2.isf(1e-6, 5)


def test_small_sums_connect_everybody() -> None:
    assert make_graph(4, 1, 1) == Graph(members=4, neighbours=3, threshold=2, agreement=False)


def test_what_no_threshold_can_do_is_refused() -> None:
    with pytest.raises(BadInput, match="no threshold lies between"):
        make_graph(10, 5, 5)


def test_tails_are_those_of_the_law() -> None:
    assert math.isclose(at_least(99, 10, 20, 5), float(exact(99, 10, 20, range(5, 11))), rel_tol=1e-9)
