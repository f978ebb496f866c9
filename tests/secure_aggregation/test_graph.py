from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.secure_aggregation.commitments import LAYERS
from crowdml.secure_aggregation.graph import (
    COMPLETE,
    Graph,
    circle,
    fewest_in_two,
    least_safe,
    make_graph,
    most_kept,
    most_lost,
    neighbours_of,
)


def exact(among: int, marked: int, drawn: int, counts: range) -> Fraction:
    ways = sum(
        math.comb(marked, count) * math.comb(among - marked, drawn - count) for count in counts if count <= drawn
    )
    return Fraction(ways, math.comb(among, drawn))


NEARLY = Fraction(1_000_001, 1_000_000)


@pytest.mark.parametrize(
    ("members", "corrupt", "lost"), [(1000, 100, 100), (1000, 100, 300), (1000, 50, 400), (300, 30, 90), (65, 6, 20)]
)
def test_failures_are_as_rare_as_stated(members: int, corrupt: int, lost: int) -> None:
    """By exact integer arithmetic, independent of the code's logarithms."""
    graph = make_graph(members, corrupt, lost)
    k, t, w = graph.neighbours, graph.threshold, graph.window
    pairs = math.comb(members, 2)
    exposed = members * exact(members - 1, corrupt, k, range(t, corrupt + 1))
    island = pairs * exact(members, corrupt, k, range(w, corrupt + 1))
    assert LAYERS * (exposed + island) <= Fraction(1, 2**40) * NEARLY
    few = members * exact(members - 1, members - 1 - lost, k, range(max(0, k - lost), t))
    thin = pairs * exact(members, members - lost, k, range(max(0, k - lost), w))
    assert few + thin <= Fraction(1, 2**20) * NEARLY
    assert 2 * graph.agreeing > members + corrupt


def test_the_table_of_the_how_to_page_is_what_the_code_works_out() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "secure-aggregation.md"
    rows = re.findall(r"^\| (\d+) \| ([0-9.]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page.read_text(), re.M)
    assert {int(row[0]) for row in rows} == {10, 40, 100, 300, 1000}
    for devices, drop_out, *numbers in rows:
        members = int(devices)
        lost = members - math.ceil((1 - Fraction(drop_out)) * members)
        graph = make_graph(members, members // 10, lost)
        assert [graph.neighbours, graph.threshold, graph.agreeing, graph.window] == list(map(int, numbers))


def test_two_neighbours_less_would_not_do() -> None:
    graph = make_graph(1000, 100, 300)
    assert (graph.neighbours, graph.threshold, graph.agreeing, graph.window) == (110, 48, 551, 44)
    k = graph.neighbours - 2
    safe = least_safe(1000, 100, k, 2.0**-40 / (2 * LAYERS) / math.comb(1000, 2))
    kept = most_kept(1000, 700, k, 2.0**-20 / 2 / math.comb(1000, 2))
    assert safe > kept


@pytest.mark.parametrize("drop_out", [0.0, 0.1, 0.2, 0.3, 0.4, 1.0])
def test_every_size_has_a_graph_at_every_drop_out_that_terms_allow(drop_out: float) -> None:
    """All sizes from 10 to 1000 with a tenth corrupt; 1.0 stands for the largest drop-out there is."""
    for members in range(10, 1001):
        corrupt = members // 10
        lost = min(int(drop_out * members), most_lost(members, corrupt))
        graph = make_graph(members, corrupt, lost)
        k, t = graph.neighbours, graph.threshold
        assert 2 * graph.agreeing > members + corrupt
        assert graph.agreeing <= members - lost
        assert t > corrupt * k / members
        if graph.complete:
            assert 2 * t > k + corrupt
            assert t <= k - lost
        else:
            assert members > COMPLETE
            assert graph.window > corrupt * k / members
            assert k % 2 == 0
        with pytest.raises(BadInput, match="no threshold lies between"):
            make_graph(members, corrupt, most_lost(members, corrupt) + 1)


@pytest.mark.parametrize(("invited", "drop_out"), [(10, 0.3), (40, 0.4), (100, 0.44), (300, 0.3), (1000, 0.3)])
def test_rosters_that_have_shrunk_have_a_graph_too(invited: int, drop_out: float) -> None:
    least, corrupt = math.ceil((1 - drop_out) * invited), invited // 10
    for members in range(least, invited + 1):
        graph = make_graph(members, corrupt, members - least)
        assert graph.agreeing <= least
        assert graph.threshold > corrupt * graph.neighbours / members


@pytest.mark.parametrize("members", [3, 4, 5, 9, 10, 57, 200])
def test_neighbours_are_each_others(members: int) -> None:
    graph = make_graph(members, 0, members // 5)
    near = neighbours_of(circle(bytes(32), members), graph)
    assert near.shape == (members, graph.neighbours)
    for me in range(members):
        assert me not in near[me]
        assert len(set(near[me].tolist())) == graph.neighbours
        assert all(me in near[other] for other in near[me])
        assert near[me].tolist() == sorted(near[me].tolist())


def test_two_thin_stretches_are_found_wherever_they_are() -> None:
    """Against the plain double loop, over all pairs of stretches that do not overlap."""
    generator = np.random.default_rng(4)
    for _ in range(60):
        members = int(generator.integers(6, 24))
        reach = int(generator.integers(1, (members - 2) // 2 + 1))
        graph = Graph(members=members, neighbours=2 * reach, threshold=2, agreeing=1, window=1)
        order, alive = generator.permutation(members), generator.random(members) < 0.6
        around = alive[order]
        held = [sum(around[(begin + at) % members] for at in range(reach)) for begin in range(members)]
        apart = range(reach, members - reach + 1)
        plain = min(held[one] + held[(one + step) % members] for one in range(members) for step in apart)
        assert fewest_in_two(order, alive, graph) == plain


def test_survivors_with_an_honest_one_in_every_two_stretches_hang_together() -> None:
    """The claim behind the rule, tried on small circles: any corrupt set below w leaves honest survivors connected."""
    generator, apart = np.random.default_rng(5), 0
    for _ in range(300):
        members, reach = 14, int(generator.integers(1, 4))
        graph = Graph(members=members, neighbours=2 * reach, threshold=2, agreeing=1, window=0)
        order = np.arange(members)
        alive, corrupt = generator.random(members) < 0.7, generator.random(members) < 0.15
        corrupt_in_two = max(
            sum(corrupt[(one + at) % members] + corrupt[(one + step + at) % members] for at in range(reach))
            for one in range(members)
            for step in range(reach, members - reach + 1)
        )
        honest = set(np.flatnonzero(alive & ~corrupt).tolist())
        together = _connected(honest, neighbours_of(order, graph))
        if fewest_in_two(order, alive, graph) > corrupt_in_two:
            assert together
        apart += not together
    assert apart > 10  # the rule had something to exclude


def _connected(members: set[int], near: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> bool:
    found, todo = set[int](), [next(iter(members))]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += [other for other in near[at].tolist() if other in members]
    return found == members


def test_the_circle_follows_from_the_seed() -> None:
    assert circle(b"a" * 32, 50).tolist() == circle(b"a" * 32, 50).tolist()
    assert circle(b"a" * 32, 50).tolist() != circle(b"b" * 32, 50).tolist()


def test_every_order_of_the_circle_is_as_likely() -> None:
    """720 seeds over the 6 orders of 3: chi-squared with 5 degrees of freedom, a false alarm in 1e-6 (seeds fixed)."""
    from scipy.stats import chi2

    orders = [tuple(circle(seed.to_bytes(32, "big"), 3).tolist()) for seed in range(720)]
    counts = np.array([orders.count(found) for found in set(orders)])
    assert len(counts) == 6
    assert ((counts - 120) ** 2 / 120).sum() < chi2.isf(1e-6, 5)


def test_small_sums_connect_everybody() -> None:
    assert make_graph(4, 0, 1) == Graph(members=4, neighbours=3, threshold=2, agreeing=3, window=0)
    assert make_graph(10, 1, 3) == Graph(members=10, neighbours=9, threshold=6, agreeing=6, window=0)


def test_what_no_threshold_can_do_is_refused_with_what_could_be() -> None:
    with pytest.raises(BadInput, match="at most 3 of 10 may drop out"):
        make_graph(10, 1, 4)
    with pytest.raises(BadInput, match="at most 449 of 1000 may drop out"):
        make_graph(1000, 100, 450)


def test_tails_are_those_of_the_law() -> None:
    tail = float(exact(99, 10, 20, range(5, 11)))
    assert least_safe(99, 10, 20, tail * 1.001) == 5
    assert least_safe(99, 10, 20, tail * 0.999) == 6
    below = float(exact(99, 80, 20, range(0, 12)))
    assert most_kept(99, 80, 20, below * 1.001) == 12
    assert most_kept(99, 80, 20, below * 0.999) == 11
