"""Exact samplers: the probabilities themselves, their statistics, another implementation, and fixed vectors."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from crowdml.privacy.noise.poisson import poisson, skellam
from crowdml.privacy.noise.response import RandomisedResponse
from crowdml.privacy.noise.rounded import rounded_gaussian
from crowdml.privacy.noise.samplers import GivenWords, OsWords, below, discrete_gaussian, discrete_laplace, flip_exp

VECTORS = Path(__file__).parents[2] / "vectors" / "samplers.json"
MODULES = ("noise.samplers", "noise.response")


class Tree:
    """Walks every outcome of a sampler's choices, and adds up exact probabilities."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        self.path: list[list[int]] = []
        self.at = 0
        for name in MODULES:
            module = sys.modules[f"crowdml.privacy.{name}"]
            monkeypatch.setattr(module, "below", self._below)

    def _below(self, _words: Any, limit: int, lanes: int) -> Any:
        found = []
        for _ in range(lanes):
            if self.at == len(self.path):
                if self.mass / limit < self.least:
                    raise TooUnlikely
                self.path.append([0, limit])
            self.mass /= limit
            found.append(self.path[self.at][0])
            self.at += 1
        return np.array(found, np.int64)

    def explore(self, sampler: Callable[[], Any], least: Fraction) -> tuple[dict[int, Fraction], Fraction]:
        """Return the probability of every outcome found, and what was left out as too unlikely."""
        found: dict[int, Fraction] = {}
        self.least, self.path = least, []
        while True:
            self.at, self.mass = 0, Fraction(1)
            try:
                drawn = int(sampler()[0])
                found[drawn] = found.get(drawn, Fraction(0)) + self.mass
            except TooUnlikely:
                pass
            while self.path and self.path[-1][0] == self.path[-1][1] - 1:
                self.path.pop()
            if not self.path:
                return found, 1 - sum(found.values(), Fraction(0))
            self.path[-1][0] += 1


class TooUnlikely(Exception):
    """A branch that is not worth following."""


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 2), Fraction(2, 3), Fraction(1), Fraction(5, 2)])
def test_the_flip_has_exactly_the_probability_it_should(gamma: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(monkeypatch)
    above = np.array([gamma.numerator])
    found, left = tree.explore(lambda: flip_exp(OsWords(), above, gamma.denominator), Fraction(1, 10**7))
    assert left < Fraction(1, 1000)
    true = float(found.get(1, Fraction(0)))
    assert true - 1e-12 <= math.exp(-gamma) <= true + float(left) + 1e-12


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(2), Fraction(3, 2), Fraction(1, 2)])
def test_discrete_laplace_has_exactly_its_probabilities(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(monkeypatch)
    found, left = tree.explore(lambda: discrete_laplace(OsWords(), scale, 1), Fraction(1, 200_000))
    assert left < Fraction(1, 4)
    ratio = math.exp(-1 / scale)
    for z in range(-3, 4):
        exact = (1 - ratio) / (1 + ratio) * ratio ** abs(z)
        assert float(found[z]) <= exact <= float(found[z] + left)
    # What is left out is left out on both sides alike.
    assert all(found[z] == found[-z] for z in found)


def test_discrete_gaussian_has_exactly_its_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(monkeypatch)
    found, left = tree.explore(lambda: discrete_gaussian(OsWords(), Fraction(1, 2), 1), Fraction(1, 80_000))
    assert left < Fraction(1, 3)
    total = sum(math.exp(-(z**2)) for z in range(-20, 21))
    for z in range(-2, 3):
        assert float(found[z]) <= math.exp(-(z**2)) / total <= float(found[z] + left)


def chi_square(draws: Any, pmf: Callable[[Any], Any], reach: int) -> float:
    """Return χ² over at most 201 cells and both tails as a standard normal deviate of the same probability."""
    width = max(1, (2 * reach + 1) // 200)
    edges = np.arange(-reach, reach + 1, width)
    cells = np.array([pmf(np.arange(edge, edge + width)).sum() for edge in edges[:-1]]) * len(draws)
    low, high = pmf(np.arange(-20 * reach, edges[0])).sum(), pmf(np.arange(edges[-1], 20 * reach)).sum()
    expected = np.concatenate([[low * len(draws)], cells, [high * len(draws)]])
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    common = expected > 20
    square = ((observed - expected)[common] ** 2 / expected[common]).sum()
    freedom = int(common.sum()) - 1
    return float(stats.norm.isf(max(stats.chi2.sf(square, freedom), 1e-300)))


def laplace_pmf(scale: Fraction) -> Callable[[Any], Any]:
    r = math.exp(-1 / scale)
    return lambda z: (1 - r) / (1 + r) * np.exp(-np.abs(z) / float(scale))


def gaussian_pmf(variance: Fraction) -> Callable[[Any], Any]:
    reach = np.arange(-40 * math.isqrt(math.ceil(variance)) - 40, 40 * math.isqrt(math.ceil(variance)) + 41)
    total = np.exp(-(reach.astype(float) ** 2) / (2 * float(variance))).sum()
    return lambda z: np.exp(-(z.astype(float) ** 2) / (2 * float(variance))) / total


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(15, 2), Fraction(400), Fraction(3001, 2)])
def test_a_million_discrete_laplace_draws(scale: Fraction) -> None:
    """False alarm: one of 5 cases beyond 4 standard deviations on either side, 1 in 3,000."""
    draws = discrete_laplace(OsWords(), scale, 1_000_000)
    assert abs(chi_square(draws, laplace_pmf(scale), int(12 * scale) + 2)) < 4


@pytest.mark.parametrize(
    "variance", [Fraction(1, 4), Fraction(4), Fraction(39, 4), Fraction(100**2), Fraction(2001**2)]
)
def test_a_million_discrete_gaussian_draws(variance: Fraction) -> None:
    """False alarm: as above."""
    draws = discrete_gaussian(OsWords(), variance, 1_000_000)
    assert abs(chi_square(draws, gaussian_pmf(variance), 5 * math.isqrt(math.ceil(variance)) + 3)) < 4


def test_a_wrong_scale_would_be_noticed() -> None:
    """A scale wrong by 3 % lies tens of deviations out, so it is missed by chance less than once in 10¹²."""
    draws = discrete_laplace(OsWords(), 400, 1_000_000)
    assert chi_square(draws, laplace_pmf(Fraction(412)), 4800) > 5
    draws = discrete_gaussian(OsWords(), 100**2, 1_000_000)
    assert chi_square(draws, gaussian_pmf(Fraction(103**2)), 500) > 5


def test_scales_beyond_machine_integers_are_exact_too() -> None:
    """False alarm: 4,000 squared draws have a relative deviation of at most √(5/4000) = 3.5 %; below 1 in 10⁶."""
    large = discrete_gaussian(OsWords(), (10**6 + 1) ** 2, 4_000)
    assert float(np.mean(large.astype(float) ** 2)) == pytest.approx((10**6 + 1) ** 2, rel=0.18)
    wide = discrete_laplace(OsWords(), Fraction(10**30, 7), 300)
    assert all(isinstance(z, int) for z in wide.tolist())
    assert float(np.mean(np.abs(wide.astype(float)))) == pytest.approx(1e30 / 7, rel=0.4)


def test_uniform_integers_refuse_the_uneven_rest() -> None:
    limit = 3 << 62  # 2^64 is one and a third of it, so a word of `limit` or more is refused
    given = GivenWords([limit, 5, (1 << 64) - 1, 6, limit - 1])
    assert below(given, limit, 3).tolist() == [6, 5, limit - 1]
    assert given.taken == 5
    assert below(GivenWords([1, 2]), 1 << 100, 1).tolist() == [1 + (2 << 64)]
    assert below(GivenWords([12]), 10, 1).tolist() == [2]
    with pytest.raises(ValueError):
        below(OsWords(), 0, 1)
    with pytest.raises(EOFError):
        below(GivenWords([]), 2, 1)


def test_refused_lanes_draw_again_in_lane_order() -> None:
    limit = (1 << 61) + 1
    top = (1 << 64) // limit * limit
    given = GivenWords([top, 1, top, 2, 3, 4])
    assert below(given, limit, 4).tolist() == [3, 1, 4, 2]


def test_randomised_response_keeps_its_probability_and_its_price() -> None:
    """False alarm: 10⁶ flips, five standard deviations, below 1 in 10⁶."""
    made = RandomisedResponse.calibrated(1.0, 4)
    assert made.event.pure <= 1.0
    assert made.event.pure == pytest.approx(1.0, abs=1e-8)
    moved = made.answer(OsWords(), np.full(1_000_000, 2))
    share = np.bincount(moved, minlength=4) / 1e6
    other = (1 - float(made.keep)) / 3
    assert share[2] == pytest.approx(float(made.keep), abs=0.0025)
    assert share[[0, 1, 3]] == pytest.approx([other] * 3, abs=0.0025)


def test_a_million_draws_in_a_second_of_cpu() -> None:
    """Half the speed that an idle machine has: a busy one must not fail."""
    draws: list[Callable[[], Any]] = [
        lambda: discrete_laplace(OsWords(), 4140, 200_000),
        lambda: discrete_gaussian(OsWords(), 10**6, 200_000),
        lambda: skellam(OsWords(), 10**6, 200_000),
    ]
    for draw in draws:
        draw()
        times = []
        for _ in range(5):
            began = time.process_time()
            draw()
            times.append(time.process_time() - began)
        assert min(times) < 0.4


def test_vectors() -> None:
    """Given words, the same draws in every runtime, and the same number of words taken."""
    for case in json.loads(VECTORS.read_text()):
        given = GivenWords([int(word) for word in case["words"]])
        assert run_case(case, given) == [int(draw) for draw in case["draws"]], case["sampler"]
        assert given.taken == len(case["words"])


def run_case(case: dict[str, Any], given: GivenWords) -> list[int]:
    name, lanes = case["sampler"], case["lanes"]
    if name == "below":
        return [int(value) for value in below(given, int(case["limit"]), lanes)]
    if name == "flip-exp":
        above = np.array([int(value) for value in case["above"]])
        return [int(value) for value in flip_exp(given, above, int(case["out-of"]))]
    fraction = Fraction(case["parameter"])
    if name == "randomised-response":
        labels = np.array([int(value) for value in case["labels"]])
        response = RandomisedResponse(classes=case["classes"], keep=fraction)
        return [int(value) for value in response.answer(given, labels)]
    sampler = {
        "discrete-laplace": discrete_laplace,
        "discrete-gaussian": discrete_gaussian,
        "rounded-gaussian": rounded_gaussian,
        "poisson": poisson,
        "skellam": skellam,
    }[name]
    return [int(value) for value in sampler(given, fraction, lanes)]


@pytest.mark.parametrize("scale", [1, pytest.param(9, marks=pytest.mark.live)])
def test_another_implementation_agrees(scale: int) -> None:
    """False alarm: two samples of 20,000 compared cell by cell at 5 standard deviations, below 1 in 10⁴."""
    dp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed")
    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    theirs = dp.m.make_laplace(*space, scale=float(scale))
    normal = dp.m.make_gaussian(*space, scale=float(scale))
    for draw, judge in (
        (discrete_laplace(OsWords(), scale, 20_000), theirs),
        (discrete_gaussian(OsWords(), scale**2, 20_000), normal),
    ):
        judged = np.array([judge(0) for _ in range(20_000)])
        for z in range(-2 * scale, 2 * scale + 1):
            mine, other = int((draw == z).sum()), int((judged == z).sum())
            assert abs(mine - other) <= 5 * math.sqrt(mine + other + 1)
