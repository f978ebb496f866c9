"""Reports: known facts, another implementation as judge, and the smallest valid figure by its name."""

from __future__ import annotations

import functools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.privacy import Cost, Event, Plan
from crowdml.privacy import figure as cost_figure
from crowdml.privacy.cost import EXACT, LOSSES, RENYI, SUM, Figure, Gaussian
from crowdml.privacy.promise import gaussian_epsilon
from crowdml.privacy.renyi import rdp_epsilon
from crowdml.privacy.sanitisers.paper import Paper
from crowdml.task import parse
from crowdml.task.explanation import explain
from tests.support.schedules import Schedule, figure, pld_epsilon

TASK = """
crowdml = 1
name = "reports"
[data]
features = 2
labels = ["a", "b", "c"]
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 4
statistics = false
[privacy]
mode = "paper"
epsilon = 10.0
[crowd]
passes = 5
"""

SOUND = ("privacy.mode=sound", "privacy.epsilon=50.0", "privacy.max-uses=5")


def judged(schedule: Schedule, delta: float) -> float:
    """Return ε by dp-accounting's loss distributions on a grid of 1e-4, which rounds up."""
    from dp_accounting.pld import common, privacy_loss_distribution

    grid = {"value_discretization_interval": 1e-4}
    parts = [
        privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, 0.0), **grid
        ).self_compose(count)
        for epsilon, count in schedule.pure
    ]
    parts += [
        privacy_loss_distribution.from_gaussian_mechanism(1 / mu, **grid).self_compose(count)
        for mu, count in schedule.gaussian
    ]
    return float(functools.reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(delta))


SCHEDULES = [
    Schedule(pure=((0.1, 100),)),
    Schedule(pure=((10.0, 5),)),
    Schedule(pure=((0.5, 10), (0.05, 10))),
    Schedule(pure=((0.02, 300), (0.01, 300))),
    Schedule(gaussian=((0.3, 20),)),
    Schedule(pure=((0.05, 20),), gaussian=((0.3, 20), (0.1, 4))),
    Schedule(pure=((1.0, 3),), gaussian=((4.0, 2),)),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_our_judge_agrees(schedule: Schedule, delta: float) -> None:
    assert pld_epsilon(schedule, delta) == pytest.approx(judged(schedule, delta), rel=3e-6)


@pytest.mark.parametrize(
    ("each", "delta", "total"), [(0.1, 1e-3, 0.242), (0.1, 1e-5, 0.410), (1.0, 1e-3, 3.87), (1.0, 1e-5, 5.33)]
)
def test_twenty_gaussian_releases(each: float, delta: float, total: float) -> None:
    z = math.sqrt(2 * math.log(1.25 / 1e-3)) / each
    if each == 0.1:
        assert z == pytest.approx(37.8, abs=0.05)
    found = figure(Event(pure=math.inf, rho=20 / (2 * z * z)), Schedule(gaussian=((1 / z, 20),)), delta)
    assert found.epsilon == pytest.approx(total, abs=0.005) and found.by == LOSSES and found.delta == delta
    # Σρ is valid, so never below; and not far above.
    enforced = rdp_epsilon(20 / (2 * z * z), delta)
    assert found.epsilon <= enforced < 1.35 * found.epsilon


@settings(deadline=None, max_examples=80)
@given(st.floats(1e-3, 5.0), st.integers(1, 200), st.floats(-10, -2).map(lambda power: 10.0**power))
def test_the_loss_distribution_lies_below_the_sums_and_above_one_release(each: float, count: int, delta: float) -> None:
    event = Event.of_pure(each).times(count)
    found = pld_epsilon(Schedule(pure=((each, count),)), delta)
    assert found <= event.pure * (1 + 1e-6) and found <= rdp_epsilon(event.rho, delta) * (1 + 1e-6)
    # One release of randomised response at ε has exactly δ = (e^ε - e^ε')/(1 + e^ε) at ε'.
    alone = math.log(max(math.exp(each) - delta * (1 + math.exp(each)), 1.0))
    assert pld_epsilon(Schedule(pure=((each, 1),)), delta) == pytest.approx(alone, rel=1e-6, abs=1e-9)
    assert found >= alone * (1 - 1e-6)


def test_many_small_pure_releases_come_close_to_a_gaussian() -> None:
    event = Event.of_pure(0.1).times(100)
    found = figure(event, Schedule(pure=((0.1, 100),)), 1e-5)
    assert found.by == LOSSES and found.epsilon < rdp_epsilon(event.rho, 1e-5) < event.pure
    assert found.epsilon > gaussian_epsilon(math.sqrt(2 * event.rho), 1e-5) * 0.98


def test_without_a_schedule_the_sums_compete_and_a_tie_goes_to_the_pure_one() -> None:
    assert figure(Event.of_pure(0.1).times(100), None, 1e-5).by == RENYI
    assert figure(Event.of_pure(10.0).times(5), None, 1e-5) == Figure(epsilon=50.0, delta=0.0, by=SUM)
    assert figure(Event.of_pure(0.1).times(100), Schedule(pure=((0.1, 100),)), 0.0).by == SUM
    assert figure(Event(pure=math.inf, rho=0.1), None, 1e-5).by == RENYI


def test_borders() -> None:
    assert pld_epsilon(Schedule(), 1e-5) == 0.0
    assert pld_epsilon(Schedule(pure=((0.5, 3),)), 0.0) == 1.5
    assert pld_epsilon(Schedule(gaussian=((0.5, 3),)), 0.0) == math.inf
    assert pld_epsilon(Schedule(pure=((1e-4, 2),)), 0.1) == 0.0
    assert pld_epsilon(Schedule(pure=((800.0, 2),)), 1e-5) == pytest.approx(1600.0)


def paper_figure(plan: Plan, releases: int, rows: int | None = None) -> Figure:
    found = plan.figure(releases, rows)
    assert found is not None
    return found


def test_five_passes_at_pure_ten_give_fifty() -> None:
    """At δ = 0, and at any δ that means something: Σρ alone would say 357."""
    assert paper_figure(parse(TASK).calibrated, 5) == Figure(epsilon=50.0, delta=0.0, by=SUM)
    explained = explain(parse(TASK, changes=SOUND)).total["sample"]
    assert explained is not None and explained.by == SUM and explained.delta == 0.0
    assert 49.9 < explained.epsilon <= 50.0


def test_paper_figures_count_every_part() -> None:
    """Counts beside Gaussian noise: a loss distribution, smaller than the sum of both figures."""
    gaussian = ("privacy.mechanism=gaussian", "privacy.clip=0.5", "privacy.epsilon=1.0", "privacy.delta=1e-5")
    counts = ("privacy.statistics-epsilon=0.2", "algorithm.statistics=true")
    plain, both = (parse(TASK, changes=changes).calibrated for changes in (gaussian, (*gaussian, *counts)))
    assert paper_figure(plain, 1).epsilon == pytest.approx(1.0, rel=1e-6)
    assert isinstance(both.last, Paper) and both.last.counts is not None
    ((gaussian_release, _),) = both.last.mechanism.cost.events
    assert isinstance(gaussian_release, Gaussian)
    strength, pure = gaussian_release.mu_squared, both.last.counts.event().pure
    alone = gaussian_epsilon(math.sqrt(5 * strength), 1e-5)
    found = paper_figure(both, 5)
    assert found.by == LOSSES and alone < found.epsilon < alone + 5 * pure
    schedule = Schedule(pure=((3 * pure, 5),), gaussian=((3 * math.sqrt(strength), 5),))
    assert paper_figure(both, 5, 3).epsilon == pytest.approx(judged(schedule, 1e-5), rel=3e-6)


def test_an_explanation_names_what_enforces_and_what_proves() -> None:
    changes = (*SOUND, "privacy.delta=1e-5", "privacy.epsilon=4.0", "privacy.max-uses=60", "crowd.passes=60")
    found = explain(parse(TASK, changes=changes))
    content = found.to_json()
    assert content["enforced_by"] == RENYI
    assert content["total"]["sample"]["by"] == LOSSES and content["total"]["device"] is None
    last = content["curve"][-1]
    assert last["releases"] == 60 and last["valid"] == content["total"]["sample"]
    assert last["valid"]["epsilon"] < last["enforced"] <= 4.0
    figures = [point["valid"]["epsilon"] for point in content["curve"]]
    assert figures == sorted(figures)


def test_rounded_gaussian_noise_is_known_exactly() -> None:
    changes = (*SOUND, "privacy.mechanism=gaussian", "privacy.clip=0.5", "privacy.epsilon=4.0", "privacy.delta=1e-5")
    task = parse(TASK, changes=changes)
    explained = explain(task)
    found = explained.total["sample"]
    assert found is not None and found.by == EXACT and 3.95 < found.epsilon <= 4.0
    assert explained.enforced_by == EXACT
    # Rényi divergences would have stated an eighth more for the same noise.
    assert task.calibrated.event.times(5).epsilon("rdp", 1e-5) > 1.07 * found.epsilon
    assert found.epsilon == pytest.approx(explained.curve[-1][1], rel=1e-9)


def test_counts_beside_rounded_noise_are_reported_by_their_losses() -> None:
    changes = (*SOUND, "privacy.mechanism=gaussian", "privacy.clip=0.5", "privacy.epsilon=4.0", "privacy.delta=1e-5")
    counts = ("algorithm.statistics=true", "privacy.statistics-epsilon=2.0", "privacy.max-uses=1", "crowd.passes=1")
    explained = explain(parse(TASK, changes=(*changes, *counts)))
    found = explained.total["sample"]
    assert explained.enforced_by == EXACT and found is not None and found.by == LOSSES
    assert 0.6 * 4.0 < found.epsilon < explained.curve[-1][1] <= 4.0


def test_discrete_gaussian_noise_has_no_loss_distribution() -> None:
    event = Event.of_discrete_gaussian(1.0, 4.0)
    assert cost_figure(Cost.of_event(event), 1e-5).by == RENYI
    assert cost_figure(Cost.of_event(Event.of_rounded_gaussian(1.0, 4.0)), 1e-5).by == EXACT
