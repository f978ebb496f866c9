"""Cost: a list of what happened becomes a ledger's sums and a report's figure, to the last bit where they are exact."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.privacy import (
    Cost,
    Event,
    ModelBounds,
    Plan,
    PrivacySettings,
    Promise,
    Releases,
    Steps,
    figure,
    make_plan,
)
from crowdml.privacy.cost import EXACT, LOSSES, MIXED, RENYI, SUM, Figure, Gaussian, Pure
from crowdml.privacy.noise.banded import sensitivity_squared
from crowdml.privacy.noise.laws import SUM_LAWS
from crowdml.privacy.noise.shares import Shared
from crowdml.privacy.promise import Sampled, gaussian_epsilon, gaussian_mu, losses_epsilon, steps_epsilon
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.privacy.sanitisers.paper import InSteps, Paper
from tests.support.schedules import Schedule
from tests.support.schedules import figure as judged


def planned(releases: Releases, bounds: ModelBounds = ModelBounds(limit=30), **terms: Any) -> Plan:  # noqa: B008
    return make_plan(PrivacySettings(**terms), releases, replace(bounds, gradient=lambda order: 0.5, classes=3))


def figure_of_sums(plan: Plan, releases: int, rows: int | None, delta: float) -> Figure:
    """What so many releases cost a sample, or a device with so many rows in each: events added one by one."""
    last, *first = (own for own in reversed(plan.sanitisers) if isinstance(own, OnGrid))
    mechanism, counts, by_rows = last.mechanism, last.counts, last.mechanism.grid.per == "example"
    if rows is None or by_rows:
        parts = [mechanism.event_of_sample] + ([counts.event(1)] if counts else [])
        parts = [part.grouped(rows or 1) for part in parts]
    else:
        parts = [mechanism.event] + ([counts.event(rows)] if counts else [])
    total = functools.reduce(Event.plus, parts).times(releases - len(first))
    for other in first:
        total = total.plus(other.mechanism.event.grouped(rows or 1))
    if total.gaussian and counts:
        mu = math.sqrt(2 * parts[0].rho)
        return judged(total, Schedule(pure=((parts[1].pure, releases),), gaussian=((mu, releases),)), delta)
    schedule = None if math.isinf(total.pure) else Schedule(pure=tuple((part.pure, releases) for part in parts))
    return judged(total, schedule, delta)


def shared(law: str) -> Shared:
    return Shared(law=SUM_LAWS[law], survivors=60)


SOUND: dict[str, Any] = {
    "laplace": {"mechanism": "laplace"},
    "laplace at δ": {"mechanism": "laplace", "delta": 1e-5},
    "gaussian": {"mechanism": "gaussian", "delta": 1e-5},
}
GRADIENT = Releases(sends="gradient", rows=20, counts=True, on_grid=True)
BOUNDS = ModelBounds(size=640, limit=30)
SENT: dict[str, tuple[Releases, ModelBounds]] = {
    "gradient": (GRADIENT, BOUNDS),
    "change": (replace(GRADIENT, sends="change"), BOUNDS),
    "shares": (GRADIENT, replace(BOUNDS, shared=shared("discrete-gaussian"))),
    "Skellam": (GRADIENT, replace(BOUNDS, shared=shared("skellam"))),
    "two phases": (
        replace(GRADIENT, rows=None, counts=False, first_uses=2, phases=2),
        ModelBounds(size=105, limit=30, features=105),
    ),
}


SETTINGS = [("sample", "gaussian", "two phases", 0.0)] + [
    (unit, noise, sent, counts)
    for unit, noise, sent, counts in itertools.product(("sample", "device"), SOUND, SENT, (0.0, 0.5))
    if sent in ("gradient", "change") or (noise == "gaussian" and sent != "two phases")
]
"""Every kind of task there is: sums have Gaussian noise, and two phases promise something to samples alone."""


@pytest.mark.parametrize(("unit", "noise", "sent", "counts"), SETTINGS)
def test_figures_of_sound_mode_are_the_same_to_the_last_bit(unit: str, noise: str, sent: str, counts: float) -> None:
    uses = {"max_uses": 12} if unit == "sample" else {}
    terms: dict[str, Any] = {"epsilon": 4.0, "clip": 1.0, "unit": unit, "statistics_epsilon": counts}
    plan = planned(*SENT[sent], **(terms | uses | SOUND[noise]))
    for releases, rows, delta in itertools.product((1, 2, 7, 12), (None, 1, 3, 20), (plan.terms.delta, 1e-7)):
        cost = plan.cost(releases, rows)
        assert cost is not None
        found, expected = figure(cost, delta), figure_of_sums(plan, releases, rows, delta)
        if cost.event().gaussian and plan.last.counts:
            assert found.by == expected.by and found.epsilon == pytest.approx(expected.epsilon, rel=1e-6)
        else:
            assert found == expected
    assert isinstance(plan.last, OnGrid)
    counted, rows = plan.last.counts, plan.terms.changing
    update = plan.last.mechanism.event if unit == "device" else plan.last.mechanism.event_of_sample
    assert plan.event == (update.plus(counted.event(rows or 1)) if counted else update), "what the ledger charges"
    assert plan.last.cost(9, rows).event() == plan.event.times(9)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "k-norm"])
@pytest.mark.parametrize("counts", [0.0, 0.2])
@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_figures_of_paper_mode_are_the_same(mechanism: str, counts: float, epsilon: float) -> None:
    terms: dict[str, Any] = {
        "mode": "paper",
        "epsilon": epsilon,
        "statistics_epsilon": counts,
        "delta": 1e-5,
        "clip": 0.5,
    }
    plan = planned(GRADIENT, mechanism=mechanism, **terms)
    assert isinstance(plan.last, Paper)
    ((alone, _),) = plan.last.mechanism.cost.events
    extra = plan.last.counts.event().pure if plan.last.counts else 0.0
    for releases, group in itertools.product((1, 5, 40), (1, 4)):
        pure: tuple[tuple[float, int], ...] = ((alone.epsilon * group, releases),) if isinstance(alone, Pure) else ()
        pure += ((extra * group, releases),) if extra else ()
        mu = math.sqrt(alone.mu_squared * releases) * group if isinstance(alone, Gaussian) else 0.0
        expected = min(losses_epsilon(pure, mu, 1e-5), math.inf if mu else sum(each * count for each, count in pure))
        now = plan.figure(releases, group)
        assert now is not None and now.by in (LOSSES, SUM)
        assert now.epsilon == pytest.approx(expected, rel=1e-6, abs=0)


def test_noise_on_rows_is_paid_for_once() -> None:
    terms = PrivacySettings(mode="paper", epsilon=4.0, mechanism="laplace")
    plan = make_plan(terms, Releases(sends="rows"), ModelBounds(row=1.0, classes=3))
    assert plan.figure(9) == plan.figure(1) == Figure(epsilon=3.0, delta=0.0, by=SUM)
    assert plan.figure(9, 6) == Figure(epsilon=18.0, delta=0.0, by=SUM)


def test_correlated_releases_are_one_gaussian_release() -> None:
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "clip": 0.5, "mechanism": "gaussian"}
    sequence: dict[str, Any] = {"noise_sequence": "banded", "noise_bands": 2}
    plan = planned(replace(GRADIENT, counts=False), mode="paper", **given, **sequence)
    columns = np.zeros((30, 2))
    columns[:, 0], columns[:-1, 1] = 0.8, 0.6
    known = plan.with_matrices(lambda shape: columns)
    with pytest.raises(ValueError, match="depends on its matrix"):
        plan.cost(2)
    for uses, group in itertools.product((1, 3), (1, 4)):
        mu = gaussian_mu(1.0, 1e-5) * math.sqrt(sensitivity_squared(columns, uses)) * group
        found = known.figure(uses, group)
        assert found is not None and found.by == LOSSES
        assert found.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-6)


@pytest.mark.parametrize(("sampling", "by"), [("poisson", LOSSES), ("fixed", RENYI)])
def test_sampled_steps_cost_what_the_accountant_says(sampling: Any, by: str) -> None:
    adjacency = "add-remove" if sampling == "poisson" else "replace"
    terms = {"noise_at": "steps", "sampling": sampling, "sampling_rate": 0.05, "adjacency": adjacency}
    rest = {"mode": "paper", "mechanism": "gaussian", "epsilon": 2.0, "delta": 1e-5, "clip": 0.5}
    sent = Releases(sends="change", steps=Steps(rate=1.0, part=50, epochs=1, count=30))
    plan = planned(sent, ModelBounds(limit=4), **terms, **rest)
    assert isinstance(plan.last, InSteps)
    step = Sampled(sampling=sampling, multiplier=plan.last.steps.each.multiplier, share=0.05, batch=50)
    for releases in (1, 4):
        exact = steps_epsilon(step, 30 * releases, 1e-5)
        assert plan.figure(releases) == Figure(epsilon=exact, delta=1e-5, by=by)
    twice = Cost.of(step, 30).plus(Cost.of(step, 90))
    assert twice.promise(1e-5).epsilon == steps_epsilon(step, 120, 1e-5)


def test_nothing_is_made_up_about_sampled_steps() -> None:
    step = Sampled(sampling="poisson", multiplier=1.0, share=0.1, batch=10)
    other = Sampled(sampling="poisson", multiplier=2.0, share=0.1, batch=10)
    for both in (Cost.of(step).plus(Cost.of(Pure(epsilon=1.0))), Cost.of(step).plus(Cost.of(other))):
        with pytest.raises(ValueError, match="nothing is proven"):
            figure(both, 1e-5)
    with pytest.raises(ValueError, match="no ledger"):
        Cost.of(step).event()
    with pytest.raises(ValueError, match="one sample"):
        Cost.of(step).grouped(2)
    assert Cost.of(step).grouped(1) == Cost.of(step)


def test_every_proof_wins_somewhere() -> None:
    counts, integers = Cost.of(Pure(epsilon=2.0)), Cost.of(Event(pure=math.inf, rho=0.5))
    assert figure(Cost.of(Pure(epsilon=10.0), 5), 1e-5) == Figure(epsilon=50.0, delta=0.0, by=SUM)
    assert figure(integers, 1e-5).by == RENYI
    assert figure(counts.plus(integers), 1e-5).by == MIXED
    assert figure(Cost.of(Event.of_rounded_gaussian(1.0, 1.0)), 1e-5).by == EXACT
    assert figure(Cost.of(Pure(epsilon=0.1), 100), 1e-5).by == LOSSES
    assert figure(counts.plus(Cost.of(Gaussian(mu_squared=1.0))), 1e-5).by == LOSSES
    assert figure(Cost.of(Gaussian(mu_squared=0.25), 4), 1e-5).epsilon == gaussian_epsilon(1.0, 1e-5)
    assert figure(Cost(), 1e-5) == Figure(epsilon=0.0, delta=0.0, by=SUM)
    assert Cost.of(Event(pure=math.inf, rho=math.inf)).promise(1e-5) == Promise(epsilon=math.inf)


RELEASES = st.one_of(
    st.floats(1e-3, 3.0).map(lambda epsilon: Pure(epsilon=epsilon)),
    st.floats(1e-4, 2.0).map(lambda rho: Event(pure=math.inf, rho=rho)),
    st.floats(1e-4, 2.0).map(lambda rho: Event(pure=math.inf, rho=rho, gaussian=True)),
    st.floats(1e-4, 2.0).map(lambda rho: Event(pure=math.inf, rho=rho, whole=True)),
    st.floats(1e-4, 4.0).map(lambda squared: Gaussian(mu_squared=squared)),
)
COSTS = st.lists(st.tuples(RELEASES, st.integers(1, 20)), max_size=4).map(lambda parts: Cost(events=tuple(parts)))


@settings(deadline=None, max_examples=100)
@given(COSTS, COSTS, st.floats(-9, -3).map(lambda power: 10.0**power))
def test_costs_add_up_and_never_fall(one: Cost, other: Cost, delta: float) -> None:
    both = one.plus(other)
    assert sum(times for _, times in both.events) == sum(times for _, times in one.events + other.events)
    apart, sums = one.event().plus(other.event()), both.event()
    assert sums.rho == pytest.approx(apart.rho, rel=1e-12) and sums.whole == apart.whole
    assert sums.pure == apart.pure or sums.pure == pytest.approx(apart.pure, rel=1e-12)
    slack = 1 + 1e-6
    assert figure(one, delta).epsilon <= figure(both, delta).epsilon * slack + 1e-12
    assert figure(one, delta).epsilon <= figure(one.times(2), delta).epsilon * slack
    assert figure(one, delta).epsilon <= figure(one.grouped(2), delta).epsilon * slack
    assert both.promise(delta).epsilon <= min(both.event().promise(delta).epsilon, math.inf)
    assert one.times(0) == Cost() and one.plus(one) == one.times(2)


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-3, 9.0), st.floats(1e-4, 3.0), st.booleans(), st.integers(1, 50), st.integers(1, 50))
def test_a_ledgers_sum_is_read_back_as_it_was(epsilon: float, rho: float, whole: bool, times: int, size: int) -> None:
    counts = Event.of_pure(epsilon).plus(Event.of_pure(epsilon / 3))
    for event in (counts, Event.of_pure(epsilon), Event(pure=math.inf, rho=rho, whole=whole, gaussian=not whole)):
        assert Cost.of_event(event).event() == event
        assert Cost.of_event(event).times(times).event() == event.times(times)
        assert Cost.of_event(event).grouped(size).event() == event.grouped(size)
    with pytest.raises(ValueError, match="does not say"):
        Cost.of_event(counts.plus(Event(pure=math.inf, rho=rho)))
