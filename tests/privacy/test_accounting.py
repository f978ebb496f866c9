"""Filters: facts that were found by other means, and another implementation as judge."""

from __future__ import annotations

import math
import time
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.privacy import Event, Filter, Promise
from crowdml.privacy.accounting import BY_RHO, FilterKind
from crowdml.privacy.promise import gaussian_epsilon
from crowdml.privacy.renyi import _at_order, rdp_epsilon, rho_budget
from tests.support.schedules import Schedule, pld_epsilon


def test_five_pure_releases_at_ten_give_fifty_and_rho_alone_would_say_357() -> None:
    five = Event.of_pure(10.0).times(5)
    assert five.promise(0.0) == Promise(epsilon=50.0)
    assert five.promise(1e-5) == Promise(epsilon=50.0)
    assert five.epsilon("rdp", 1e-5) == pytest.approx(357, abs=3)  # 357 on a coarse set of orders
    assert Filter(kind="pure", epsilon=50.0, delta=0.0).covers(five)
    assert not Filter(kind="pure", epsilon=49.9, delta=0.0).covers(five)


def test_our_judge_agrees_on_rho() -> None:
    import dp_accounting

    orders = [1 + x / 50 for x in range(1, 2000)] + list(range(41, 5000, 3))
    for rho in (1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0):
        judge = dp_accounting.rdp.RdpAccountant(orders=orders)
        judge.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
        for delta in (1e-3, 1e-6):
            theirs = judge.get_epsilon(delta)
            assert theirs * 0.995 - 1e-6 <= rdp_epsilon(rho, delta) <= theirs * (1 + 1e-9)


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-8, 500.0), st.floats(-12, -0.5).map(lambda power: 10.0**power))
def test_rho_is_never_below_the_truth_of_an_ideal_gaussian(rho: float, delta: float) -> None:
    found = rdp_epsilon(rho, delta)
    assert found >= gaussian_epsilon(math.sqrt(2 * rho), delta) - 1e-9
    assert rdp_epsilon(rho * 1.01, delta) >= found - 1e-12


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("rho", [1e-320, 1e-200, 1e-3, 1.0, 1560.0, 1e300])
def test_no_delta_is_so_small_that_a_sum_costs_nothing(rho: float, whole: bool) -> None:
    """1/δ is infinite below 6e-309: once any noise kept any ε there."""
    deltas = (5e-324, 1e-320, 5e-309, 6e-309, 1e-300, 1e-100, 1e-12)
    found = [rdp_epsilon(rho, delta, whole) for delta in deltas]
    assert found == sorted(found, reverse=True) and found[0] > 0
    if rho > 1e-10:
        assert rho_budget(6.0, deltas[0]) < rho_budget(6.0, deltas[-1]) < 6.0


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 900.0), st.floats(-12, -1).map(lambda power: 10.0**power))
def test_the_budget_is_used_up_and_not_passed(epsilon: float, delta: float) -> None:
    rho = rho_budget(epsilon, delta)
    assert rdp_epsilon(rho, delta) <= epsilon
    assert rdp_epsilon(rho * 1.0001, delta) > epsilon * 0.99999


@settings(deadline=None, max_examples=25)
@given(
    each=st.floats(0.05, 2.0),
    count=st.sampled_from([1, 2, 8]),
    mu=st.floats(0.2, 3.0),
    delta=st.sampled_from([1e-3, 1e-6]),
)
def test_counts_beside_gaussian_noise_never_cost_less_than_the_truth(
    each: float, count: int, mu: float, delta: float
) -> None:
    """The judge is the loss distribution of the worst pure releases and an ideal Gaussian one, which is exact."""
    event = Event.of_pure(each).times(count).plus(Event(pure=math.inf, rho=mu**2 / 2, gaussian=True))
    truth = pld_epsilon(Schedule(pure=((each, count),), gaussian=((mu, 1),)), delta)
    figures = [event.epsilon(kind, delta) for kind in ("rdp", "mixed", "gaussian")]
    assert figures[2] <= figures[1]
    assert min(figures) >= truth * (1 - 1e-6) - 1e-4  # the grid of the distribution
    assert event.promise(delta) == Promise(epsilon=min(figures), delta=delta)
    assert event.epsilon("pure", delta) == math.inf


def test_few_large_counts_and_many_small_ones_are_told_by_different_sums() -> None:
    gaussian = Event.of_discrete_gaussian(1.0, 1.0)
    few, many = gaussian.plus(Event.of_pure(4.0)), gaussian.plus(Event.of_pure(0.04).times(100))
    assert few.epsilon("mixed", 1e-5) < 0.6 * few.epsilon("rdp", 1e-5)
    assert many.epsilon("rdp", 1e-5) < 0.7 * many.epsilon("mixed", 1e-5)
    assert few.epsilon("mixed", 1e-5) == pytest.approx(4.0 + gaussian.epsilon("rdp", 1e-5))
    assert Filter(kind="mixed", epsilon=10.0, delta=1e-5).covers(few)
    assert not Filter(kind="rdp", epsilon=10.0, delta=1e-5).covers(few)


def test_sides_add_up_repeat_and_group_on_their_own() -> None:
    both = Event.of_discrete_gaussian(2.0, 4.0).plus(Event.of_pure(0.5))
    assert both.mixed == (0.5, 0.25) and both.rho == 0.25 + 0.125
    assert both.times(4).mixed == (2.0, 1.0) and both.grouped(3).mixed == (1.5, 2.25)
    assert both.plus(both) == both.times(2)
    assert Event.of_pure(1.0).plus(Event.of_pure(2.0)).mixed is None
    assert Event.of_rounded_gaussian(1.0, 1.0).plus(Event()).mixed is None
    # Where there is only one side, the third sum is one of the first two.
    assert Event.of_pure(1.0).epsilon("mixed", 1e-5) == 1.0
    assert Event.of_rounded_gaussian(1.0, 1.0).epsilon("mixed", 1e-5) == Event.of_rounded_gaussian(1.0, 1.0).epsilon(
        "rdp", 1e-5
    )


@settings(deadline=None, max_examples=200)
@given(st.floats(1e-6, 50.0), st.integers(1, 3000), st.floats(1e-6, 50.0))
def test_sums_are_rounded_up_and_the_limit_is_exact(each: float, times: int, other: float) -> None:
    total = Event.of_pure(each).times(times).plus(Event.of_pure(other))
    true = Fraction(each) * times + Fraction(other)
    assert true <= Fraction(total.pure) <= true * (1 + Fraction(1, 1 << 51))
    assert Fraction(total.rho) >= (Fraction(each) ** 2 * times + Fraction(other) ** 2) / 2
    assert Filter(kind="pure", epsilon=total.pure, delta=0.0).covers(total)
    assert not Filter(kind="pure", epsilon=math.nextafter(total.pure, 0.0), delta=0.0).covers(total)


def test_a_limit_missed_by_a_billionth_is_missed() -> None:
    assert not Filter(kind="pure", epsilon=0.3, delta=0.0).covers(Event.of_pure(0.1).times(3))
    assert not Filter(kind="pure", epsilon=1.0, delta=0.0).covers(Event.of_pure(1.0 + 1e-12))
    total = Event(pure=math.inf, rho=0.5)
    reached = total.epsilon("rdp", 1e-5)
    assert not Filter(kind="rdp", epsilon=reached * (1 - 1e-10), delta=1e-5).covers(total)


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-8, 500.0), st.floats(-12, -0.5).map(lambda power: 10.0**power))
def test_epsilon_at_an_order_is_not_below_its_exact_value(rho: float, delta: float) -> None:
    with localcontext(Context(prec=60)):
        for excess in (0.01, 0.7, 3.0, 40.0):
            alpha = 1 + Decimal(excess)
            logs = Decimal(delta).ln() + alpha.ln()
            exact = float(Decimal(rho) * alpha + (1 - 1 / alpha).ln() - logs / (alpha - 1))
            found = _at_order(rho, delta, excess)
            assert exact <= found <= exact + 1e-13 * (abs(exact) + 100 + 40 / excess)


def test_borders() -> None:
    assert rdp_epsilon(0.0, 1e-5) == 0.0 and rdp_epsilon(1.0, 0.0) == math.inf
    assert Event().times(3) == Event() and Event.of_discrete_gaussian(4.0, 2.0) == Event(pure=math.inf, rho=1.0)
    assert Event.of_rounded_gaussian(4.0, 2.0) == Event(pure=math.inf, rho=1.0, gaussian=True)
    assert Event(pure=math.inf, rho=1.0).times(0) == Event()
    assert Event(pure=1.0, rho=0.5).grouped(3) == Event(pure=3.0, rho=4.5)
    for kind in BY_RHO:
        with pytest.raises(ValueError):
            Filter(kind=kind, epsilon=1.0, delta=0.0)


@pytest.mark.parametrize("kind", BY_RHO)
def test_a_charge_is_decided_in_few_milliseconds(kind: FilterKind) -> None:
    filter_ = Filter(kind=kind, epsilon=8.0, delta=1e-5)
    began = time.process_time()
    for count in range(200):
        filter_.covers(Event(pure=math.inf, rho=1e-3, gaussian=True).times(count))
    assert (time.process_time() - began) / 200 < 3e-3


@pytest.mark.parametrize(("delta", "row"), [(1e-4, "1e-4"), (1e-5, "1e-5"), (1e-6, "1e-6")])
def test_gaussian_promises_are_over_stated_by_as_much_as_the_page_says(delta: float, row: str) -> None:
    """Against the exact ε of continuous Gaussian noise of the same strength."""
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "privacy-model.md").read_text()
    over = [
        epsilon / gaussian_epsilon(math.sqrt(2 * rho_budget(epsilon, delta)), delta) - 1
        for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    ]
    assert f"| {row} | " + " | ".join(f"{100 * part:.1f} %" for part in over) + " |" in page
