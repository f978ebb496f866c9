"""Odds against separate computations: densities integrated, every outcome listed, another library, and real attacks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy import Cost, Event
from crowdml.privacy.cost import Gaussian, Pure
from crowdml.privacy.noise.laws import DISCRETE_LAPLACE, ROUNDED_GAUSSIAN
from crowdml.privacy.noise.shares import DISCRETE_GAUSSIAN_SHARES, SKELLAM_SHARES, Shared, SumLaw
from crowdml.privacy.odds import Odds, coin_against_opposite, odds_after, odds_of
from crowdml.privacy.promise import Sampled, gaussian_mu
from crowdml.privacy.trade_off import trade_off

Floats = npt.NDArray[np.float64]


def gaussian(mu: float) -> Cost:
    return Cost.of(Gaussian(mu_squared=mu**2))


def integrated(mu: float, pure: tuple[float, ...] = ()) -> float:
    """(1 + TV)/2 by brute force: ½ Σ ∫ |p - q| over every outcome of the coins and a fine grid of the Gaussian."""
    x = np.linspace(-12.0, 12.0 + mu, 40_001)
    density = np.exp(-(x**2) / 2), np.exp(-((x - mu) ** 2) / 2)
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=len(pure)):
        right = math.prod((math.exp(e) if o else 1.0) / (1 + math.exp(e)) for o, e in zip(outcome, pure, strict=True))
        left = math.prod((1.0 if o else math.exp(e)) / (1 + math.exp(e)) for o, e in zip(outcome, pure, strict=True))
        total += float(np.abs(right * density[1] - left * density[0]).sum())
    return (1 + total * float(x[1] - x[0]) / math.sqrt(2 * math.pi) / 2) / 2


def test_the_example_of_every_page() -> None:
    """ε = 8 at δ = 1e-6 of Gaussian noise is 78 of 100; e^ε/(1 + e^ε) would say 99.97."""
    found = odds_of(gaussian(gaussian_mu(8.0, 1e-6)))
    assert found.of_100 == 78 and found.success == pytest.approx(0.7781, abs=5e-4)
    assert 100 * math.exp(8) / (1 + math.exp(8)) > 99.96


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 8.0, 300.0])
def test_a_pure_release_is_randomised_response_at_worst(epsilon: float) -> None:
    assert odds_of(Cost.of(Pure(epsilon=epsilon))).success == pytest.approx(1 / (1 + math.exp(-epsilon)), abs=2e-9)


@pytest.mark.parametrize(
    ("mu", "pure"),
    [(0.3, ()), (1.5, ()), (4.0, ()), (0.7, (0.5,)), (1.0, (0.5, 0.5, 0.5)), (0.2, (2.0, 0.1)), (2.0, (0.25,) * 6)],
)
def test_odds_are_the_integral_that_they_are(mu: float, pure: tuple[float, ...]) -> None:
    cost = gaussian(mu)
    for epsilon in pure:
        cost = cost.plus(Cost.of(Pure(epsilon=epsilon)))
    found, expected = odds_of(cost).success, integrated(mu, pure)
    assert expected - 1e-7 <= found <= expected + 1e-6, "never kinder, and as sharp"


def test_pure_releases_alone_are_listed() -> None:
    for pure in ((0.5, 0.5), (1.0,) * 5, (0.1,) * 9, (3.0, 1.0, 0.5)):
        cost = Cost(events=tuple((Pure(epsilon=epsilon), 1) for epsilon in pure))
        outcomes = itertools.product((0, 1), repeat=len(pure))
        worlds = [
            [
                math.prod(1 / (1 + math.exp(-e if o == world else e)) for o, e in zip(outcome, pure, strict=True))
                for world in (0, 1)
            ]
            for outcome in outcomes
        ]
        expected = sum(max(pair) for pair in worlds) / 2
        assert odds_of(cost).success == pytest.approx(expected, abs=1e-8)


def test_our_judge_agrees() -> None:
    """The privacy loss distributions of dp-accounting, at ε = 0; Laplace noise is no worse than its pure ε."""
    import dp_accounting

    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.GaussianDpEvent(5.0), 10).compose(dp_accounting.LaplaceDpEvent(4.0), 3)
    theirs = (1 + accountant.get_delta(0.0)) / 2
    ours = odds_of(Cost.of(Gaussian(mu_squared=1 / 25)).times(10).plus(Cost.of(Pure(epsilon=0.25)).times(3))).success
    assert theirs - 1e-4 <= ours <= theirs + 0.02
    only = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    only.compose(dp_accounting.GaussianDpEvent(5.0), 10)
    assert odds_of(Cost.of(Gaussian(mu_squared=1 / 25)).times(10)).success == pytest.approx(
        (1 + only.get_delta(0.0)) / 2, abs=1e-3
    )


def test_one_step_on_a_random_part_of_the_rows() -> None:
    """By hand: one Poisson step tells the worlds apart with the probability that the row is in it, times its TV."""
    step = Sampled(sampling="poisson", multiplier=1.5, share=0.2, batch=10)
    found = odds_of(Cost.of(step)).success
    expected = (1 + 0.2 * math.erf(1 / 1.5 / math.sqrt(8))) / 2
    assert expected - 1e-9 <= found <= expected + 1e-3
    fixed = Sampled(sampling="fixed", multiplier=1.5, share=0.2, batch=10)
    assert 0.5 < odds_of(Cost.of(fixed, 5)).success < 1 and odds_of(Cost.of(fixed, 5)).by == "Rényi divergences"


# Where only Rényi divergences are known.


def divergence(p: Floats, q: Floats, order: float) -> float:
    if order == 1.0:
        return float((p * np.log(p / q)).sum())
    return float(np.log((p**order * q ** (1 - order)).sum()) / (order - 1))


GRID = (1.0, 1.01, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.floats(-6, 6), min_size=2, max_size=6), st.lists(st.floats(-6, 6), min_size=6, max_size=6))
def test_no_pair_of_distributions_beats_what_its_divergences_allow(one: list[float], other: list[float]) -> None:
    """Any two distributions are ρ-zCDP for some ρ; their best guess must stay below the odds of that ρ."""
    p, q = (np.exp(np.array(logs[: len(one)])) for logs in (one, other))
    p, q = p / p.sum(), q / q.sum()
    rho = max(divergence(a, b, order) / order for order in GRID for a, b in ((p, q), (q, p)))
    # Divergences are worked out in floating point here, so ρ may be short of 1e-14, and the odds by half its root.
    assert 0.5 + np.abs(p - q).sum() / 4 <= coin_against_opposite(max(rho, 0.0) + 1e-14) + 1e-9


@pytest.mark.parametrize("rho", [1e-4, 0.05, 0.5, 1.2, 5.0])
def test_the_bound_is_reached_by_a_coin_that_obeys_every_order(rho: float) -> None:
    p = coin_against_opposite(rho)
    coin = np.array([p, 1 - p]) * (1 - 1e-12)
    assert max(divergence(coin, coin[::-1], order) / order for order in GRID) == pytest.approx(rho, rel=1e-6)
    # Sharper than both inequalities of the textbooks.
    variation = 2 * p - 1
    assert variation <= min(math.sqrt(rho / 2), math.sqrt(1 - math.exp(-rho))) + 1e-9


@pytest.mark.parametrize("rho", [0.02, 0.3, 1.2])
def test_the_largest_distance_is_found_on_the_whole_square_too(rho: float) -> None:
    """Without the argument of symmetry: every pair of coins on a grid, both directions, several orders."""
    p, q = np.meshgrid(np.linspace(0.001, 0.999, 700), np.linspace(0.001, 0.999, 700))
    allowed = np.ones_like(p, dtype=bool)
    for a, b in ((p, q), (q, p)):
        entropy = a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))
        square = np.log(a**2 / b + (1 - a) ** 2 / (1 - b))
        allowed &= (entropy <= rho) & (square <= 2 * rho)
    largest = (1 + float((p - q)[allowed].max())) / 2
    assert largest <= coin_against_opposite(rho) + 1e-9
    assert coin_against_opposite(rho) == pytest.approx(largest, abs=2e-3)


def share(law: SumLaw, variance: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """The law of one share, listed."""
    k = np.arange(-80, 81)
    if law is DISCRETE_GAUSSIAN_SHARES:
        chances = np.exp(-(k**2) / (2 * variance))
    else:
        from scipy.special import ive

        chances = ive(np.abs(k), variance)
    return k, chances / chances.sum()


@pytest.mark.parametrize("law", [DISCRETE_GAUSSIAN_SHARES, SKELLAM_SHARES], ids=lambda law: law.name)
@pytest.mark.parametrize("apart", [1, 4, 12])
def test_sums_of_shares_stay_below_their_odds(law: SumLaw, apart: int) -> None:
    """The exact law of a sum of five shares, shifted by what one device may change: convolved, not derived."""
    _, chances = share(law, 4.0)
    total = chances
    for _ in range(4):
        total = np.convolve(total, chances)
    shifted = np.concatenate([np.zeros(apart), total])
    exact = 0.5 + float(np.abs(shifted - np.concatenate([total, np.zeros(apart)])).sum()) / 4
    event = Shared(law=law, survivors=5).event(apart**2, 1, 2.0)
    found = odds_after(event, 1)
    assert found.by == "Rényi divergences"
    # The bound that Rényi divergences imply is not sharp; for whole orders only it is looser still.
    assert exact <= found.success <= exact + (0.09 if law is DISCRETE_GAUSSIAN_SHARES else 0.16)


def test_counts_beside_shares_take_the_smaller_of_two_bounds() -> None:
    rest = Event(pure=math.inf, rho=0.05)
    few = odds_of(Cost.of(Pure(epsilon=0.1)).plus(Cost.of(rest)))
    large = odds_of(Cost.of(Pure(epsilon=6.0)).plus(Cost.of(rest)))
    assert few.by == "Rényi divergences" and "Rényi" in large.by and "Σε" in large.by
    assert large.success < 1 and large.success >= odds_of(Cost.of(Pure(epsilon=6.0))).success


# Form, rounding, ledgers.


def test_figures_are_rounded_up_and_a_coin_stays_a_coin() -> None:
    assert odds_of(Cost()) == Odds(success=0.5, by="Σε") and odds_after(Event.of_pure(2.0), 0).of_100 == 50
    assert Odds(success=0.7700001, by="").of_100 == 78 and Odds(success=0.77, by="").of_100 == 77
    assert odds_of(Cost.of(Pure(epsilon=1e-9))).of_100 == 51
    assert odds_of(Cost.of(Pure(epsilon=5000.0))).of_100 == 100 and odds_of(gaussian(1e6)).of_100 == 100
    unlimited = odds_after(Event(pure=math.inf, rho=math.inf), 3)
    assert unlimited.of_100 == 100 and not unlimited.says_something


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 3.0), st.floats(0.01, 3.0), st.integers(1, 8))
def test_a_ledgers_sum_is_read_as_what_happened(epsilon: float, mu: float, uses: int) -> None:
    event = Event.of_pure(epsilon).plus(Event.of_rounded_gaussian(mu**2, 1.0))
    cost = Cost.of(Pure(epsilon=epsilon)).plus(gaussian(mu)).times(uses)
    assert odds_after(event, uses).success == pytest.approx(odds_of(cost).success, abs=1e-6)


def test_more_releases_never_make_guessing_harder() -> None:
    for event in (Event.of_pure(0.3), Event.of_rounded_gaussian(0.2, 1.0), Event(pure=math.inf, rho=0.03, whole=True)):
        found = [round(odds_after(event, uses).success, 12) for uses in range(30)]
        assert found == sorted(found) and found[0] == 0.5 < found[-1] < 1


# Attacks with real noise.


@pytest.mark.parametrize(("scale", "uses"), [(5.0, 1), (5.0, 4), (14.0, 9)])
def test_guessing_from_real_gaussian_noise_comes_close_and_no_further(scale: float, uses: int) -> None:
    """Integers ten apart, noise from the operating system, the likelihood ratio as the guess."""
    apart, trials = 10, 4000
    drawn = np.asarray(ROUNDED_GAUSSIAN.draw(DeviceCoins(), "update", scale, (trials * uses,))).reshape(trials, uses)
    world = np.arange(trials) % 2
    seen = drawn + apart * world[:, None]
    right = float(((seen.sum(axis=1) > uses * apart / 2) == world).mean())
    odds = odds_after(Event.of_rounded_gaussian(apart**2, scale**2), uses).success
    slack = 4 * math.sqrt(0.25 / trials)
    assert odds - slack - 0.01 <= right <= odds + slack


def test_guessing_from_real_laplace_noise_stays_below() -> None:
    apart, scale, trials = 10, 10.0, 4000
    drawn = np.asarray(DISCRETE_LAPLACE.draw(DeviceCoins(), "update", scale, (trials,)))
    world = np.arange(trials) % 2
    right = float(((drawn + apart * world > apart / 2) == world).mean())
    odds = odds_after(Event.of_pure(apart / scale), 1).success
    # Laplace noise is better than randomised response of the same ε: 1 - e^(-ε/2)/2 are right, here 0.70 of 0.73.
    assert right <= odds and right == pytest.approx(1 - math.exp(-0.5) / 2, abs=0.04)


# The trade-off curve.


def test_the_curve_of_gaussian_noise_is_the_known_one() -> None:
    from scipy.stats import norm

    first = np.linspace(0.001, 0.999, 97)
    found = trade_off(gaussian(1.3), first)
    assert np.allclose(found, norm.cdf(norm.ppf(1 - first) - 1.3), atol=2e-4)
    assert np.all(found <= norm.cdf(norm.ppf(1 - first) - 1.3) + 1e-9), "never above what is possible"


@pytest.mark.parametrize(
    "cost",
    [gaussian(1.0), Cost.of(Pure(epsilon=1.0)).times(3), Cost.of(Event(pure=math.inf, rho=0.4))],
    ids=["gaussian", "pure", "divergences"],
)
def test_odds_are_the_lowest_point_of_the_curve(cost: Cost) -> None:
    first = np.linspace(0.0, 1.0, 1001)
    lowest = float((first + trade_off(cost, first)).min())
    assert 1 - lowest / 2 == pytest.approx(odds_of(cost).success, abs=1e-3)
