"""Sound plans: calibrated to the total, refused where nothing could be proven."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core import BadInput
from crowdml.privacy import ModelBounds, Plan, PrivacySettings, Releases, make_plan, require_delta
from crowdml.privacy.calibration.least_noise import Wanted, calibrate
from crowdml.privacy.gaussian import gaussian_budget
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.grid import GridMechanism, Stability, make_fine_grid, make_grid, sample_sensitivity
from crowdml.privacy.noise.laws import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, LAPLACE, ROUNDED_GAUSSIAN
from crowdml.privacy.releases import Sends
from crowdml.privacy.renyi import rho_budget
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.task import parse

GOOD: dict[str, Any] = {"epsilon": 8.0, "clip": 1.0, "max_uses": 10}
SHAPE = Releases(sends="gradient", rows=20, counts=True, on_grid=True)
BOUNDS = ModelBounds(size=640, limit=30, classes=10)


def plan(releases: Releases = SHAPE, bounds: ModelBounds = BOUNDS, **terms: Any) -> Plan:
    return make_plan(PrivacySettings(**terms), releases, bounds)


def sound(**terms: Any) -> Plan:
    return plan(**(GOOD | terms))


def update(made: Plan) -> GridMechanism:
    assert isinstance(made.last, OnGrid)
    return made.last.mechanism


def counts_of(made: Plan) -> CountNoise:
    assert made.last.counts is not None
    return made.last.counts


def test_pure_noise_is_calibrated_to_the_total() -> None:
    made = sound(mechanism="laplace")
    grid = make_grid(1, 640, 1.0, "example")
    assert update(made).grid == grid and update(made).law is DISCRETE_LAPLACE
    # Ten uses of ε = 0.8 each: scale 2·(L + √d)/0.8 levels.
    assert update(made).scale == pytest.approx(2 * grid.limit / 0.8, rel=1e-3)
    assert made.event.times(10).promise(0.0).epsilon <= 8.0
    assert made.event.times(10).promise(0.0).epsilon == pytest.approx(8.0, rel=1e-3)
    assert made.terms.limit.kind == "pure" and made.terms.uses == 10


def test_gaussian_noise_is_calibrated_to_the_total() -> None:
    made = sound(mechanism="gaussian", delta=1e-5)
    assert update(made).law is ROUNDED_GAUSSIAN and made.terms.limit.kind == "gaussian"
    assert 10 * made.event.rho <= gaussian_budget(8.0, 1e-5)
    assert 10 * made.event.rho == pytest.approx(gaussian_budget(8.0, 1e-5), rel=5e-3)
    assert math.isinf(made.event.pure)
    assert made.event.times(10).epsilon("gaussian", 1e-5) <= 8.0 < made.event.times(10).epsilon("rdp", 1e-5)


def test_only_discrete_gaussian_noise_needs_four_levels() -> None:
    """Below them a simulation would no longer have the law of a device. Rounded noise has the same law in both."""
    loud = sound(mechanism="gaussian", delta=1e-5, epsilon=1000.0, max_uses=1, bounds=ModelBounds(size=4))
    assert update(loud).scale < 4.0
    assert 990 < loud.event.promise(1e-5).epsilon <= 1000
    wanted = Wanted(epsilon=1000.0, delta=1e-5, uses=1)
    discrete, _, limit = calibrate(DISCRETE_GAUSSIAN, update(loud).grid, None, wanted)
    assert discrete.scale == 4.0 and limit.kind == "rdp"
    assert update(sound(mechanism="laplace", epsilon=1000.0, max_uses=1)).scale > 4.0


def test_many_pure_uses_are_enforced_by_whichever_sum_needs_less_noise() -> None:
    few, many = sound(delta=1e-6, max_uses=2), sound(delta=1e-6, max_uses=1000)
    assert (few.terms.limit.kind, many.terms.limit.kind) == ("pure", "rdp")
    assert update(many).scale < update(sound(max_uses=1000)).scale
    assert sound(max_uses=1000).terms.limit.kind == "pure"  # δ = 0 leaves no choice


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_statistics_are_inside_epsilon(mechanism: str) -> None:
    made = sound(mechanism=mechanism, delta=1e-5, statistics_epsilon=1.0)
    assert counts_of(made).event().times(10).pure <= 1.0 + 1e-9
    assert counts_of(made).event().times(10).pure == pytest.approx(1.0, rel=1e-2)
    assert made.event.times(10).promise(1e-5).epsilon <= 8.0 * (1 + 1e-9)
    assert update(made).scale > update(sound(mechanism=mechanism, delta=1e-5)).scale
    # The label counts change by two for one sample, whatever the number of labels is.
    assert counts_of(made).spread == pytest.approx(2 * counts_of(made).errors, rel=1e-2)


def test_counts_that_would_have_taken_all_of_epsilon_are_added_on_their_own_side() -> None:
    """Half of ε for the counts of a single release: as ε²/2 they would cost more than the whole Σρ allows."""
    made = sound(mechanism="gaussian", delta=1e-5, max_uses=1, statistics_epsilon=4.0)
    assert made.terms.limit.kind == "gaussian"
    assert counts_of(made).event().rho * 2 > rho_budget(8.0, 1e-5)
    assert made.event.epsilon("gaussian", 1e-5) == pytest.approx(8.0, rel=1e-3)
    assert made.event.epsilon("gaussian", 1e-5) <= 8.0 < made.event.epsilon("mixed", 1e-5)
    # The gradient then has what is left: no more noise than that takes.
    left = sound(mechanism="gaussian", delta=1e-5, max_uses=1, epsilon=8.0 - counts_of(made).event().pure)
    assert update(made).scale == pytest.approx(update(left).scale, rel=1e-3)
    assert sound(mechanism="gaussian", delta=1e-5, max_uses=100, statistics_epsilon=4.0).terms.limit.kind == "rdp"


def test_a_device_is_protected_by_a_bound_on_the_whole_release() -> None:
    made = sound(unit="device", statistics_epsilon=1.0)
    assert update(made).grid.per == "release" and made.terms.uses == 30
    assert counts_of(made).errors == pytest.approx(20 * 30 * 2 / 1.0, rel=1e-2)


@settings(deadline=None, max_examples=60)
@given(
    mechanism=st.sampled_from(["laplace", "gaussian"]),
    epsilon=st.floats(0.05, 1000.0),
    delta=st.floats(-9, -3).map(lambda power: 10.0**power),
    uses=st.integers(1, 500),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    unit=st.sampled_from(["sample", "device"]),
)
def test_the_promise_is_covered_by_the_sum_that_enforces(
    mechanism: str, epsilon: float, delta: float, uses: int, share: float, unit: str
) -> None:
    try:
        made = plan(
            mechanism=mechanism,
            epsilon=epsilon,
            delta=delta,
            unit=unit,
            clip=0.5,
            units=100,  # few enough for every δ that is tried
            max_uses=uses,
            statistics_epsilon=share * epsilon,
            bounds=ModelBounds(size=100, limit=uses),
        )
    except BadInput as error:
        assert "32 bits" in error.what
        return
    assert made.terms.limit.covers(made.event.times(made.terms.uses))
    # And not wasted: less than a twentieth less noise would pass it.
    if update(made).scale > 4.5:
        smaller = GridMechanism(
            grid=update(made).grid, law=update(made).law, scale=math.floor(update(made).scale * 0.9 * 16) / 16
        )
        rows = made.terms.changing or 1
        counts = made.last.counts.event(rows) if made.last.counts else smaller.event.times(0)
        assert not made.terms.limit.covers(smaller.event.plus(counts).times(made.terms.uses))


REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no epsilon": ({"epsilon": None}, "privacy.epsilon", "needs epsilon", "epsilon = 8.0"),
    "epsilon without meaning": ({"epsilon": 1001.0}, "privacy.epsilon", "promises nothing", 'mode = "none"'),
    "gaussian, no delta": ({"mechanism": "gaussian"}, "privacy.delta", "delta above zero", "1e-6"),
    "no uses": ({"max_uses": None}, "privacy.max-uses", "how many releases of one sample", "max-uses = 1"),
    "no releases": (
        {"unit": "device", "bounds": ModelBounds()}, "stop.max-releases", "of one device", "max-releases = 10"
    ),
    "no bound": ({"clip": None}, "privacy.clip", "nothing bounds the gradient", "order 1"),
    "zero rows": ({"clip": None, "bounds": replace(BOUNDS, gradient=lambda order: 0.0)}, "privacy.clip", "zero", ""),
    "all statistics": ({"statistics_epsilon": 8.0}, "privacy.statistics-epsilon", "leaves nothing", "smaller"),
    "counts of any number of rows": (
        {"unit": "device", "statistics_epsilon": 1.0, "releases": replace(SHAPE, rows=None)},
        "privacy.statistics-epsilon", "nothing bounds the rows", "leave it out",
    ),
    "add-remove": ({"adjacency": "add-remove"}, "privacy.adjacency", "in clear", '"replace"'),
    "integer law": ({"mechanism": "discrete-laplace"}, "privacy.mechanism", "cannot be named", "laplace"),
    "not a sound algorithm": (
        {"releases": replace(SHAPE, on_grid=False)}, "privacy.mode", "no sound form", "crowd-sgd"
    ),
    "owner range": ({"owner_range": [1.0, 4.0]}, "privacy.owner-range", "outside", "owner"),
    "too much noise": ({"epsilon": 1e-6}, "privacy.epsilon", "32 bits", "larger epsilon"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_refusals_say_where_what_and_what_would_be_right(case: str) -> None:
    terms, where, what, hint = REFUSED[case]
    plan(**GOOD)  # without the fault it is accepted
    with pytest.raises(BadInput) as caught:
        plan(**(GOOD | terms))
    assert caught.value.where == where
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_a_delta_that_allows_publishing_a_unit_is_refused() -> None:
    terms = PrivacySettings(mechanism="gaussian", delta=1e-3)
    require_delta(terms.delta, 999, terms.unit)
    with pytest.raises(BadInput) as caught:
        require_delta(terms.delta, 1000, terms.unit)
    assert (
        caught.value.where == "privacy.delta" and "1000 samples" in caught.value.what and "1e-05" in caught.value.hint
    )


@pytest.mark.parametrize("size", [2, 640, 10**7])
def test_what_a_sample_moves_is_counted_with_all_that_rounding_adds(size: int) -> None:
    grid = make_fine_grid(size, 0.3)
    stable = Stability(moved=0.01, rounding=0.001, row=1.0, part=1, steps=1)
    levels, off = Fraction(0.011) * grid.levels / Fraction(0.3), Fraction(2 * (size + 8) * grid.levels, 2**53)
    found = Fraction(sample_sensitivity(grid, stable))
    assert levels + off + Fraction(math.sqrt(size)) < found < (levels + off + Fraction(math.sqrt(size))) * (1 + 2e-9)
    wide = Stability(moved=1.0, rounding=0.0, row=1.0, part=1, steps=1)
    assert sample_sensitivity(grid, wide) == sample_sensitivity(grid, None) == grid.sensitivity


@settings(deadline=None, max_examples=100)
@given(sixteenths=st.integers(1, 10**6), size=st.integers(1, 1000), rows=st.integers(1, 100))
def test_no_cost_is_rounded_down(sixteenths: int, size: int, rows: int) -> None:
    """Not by one unit in the last place: the ledger adds them up as they are."""
    scale, exact = sixteenths / 16, Fraction(sixteenths, 16)
    one, two = (make_grid(order, size, 1.0, "example") for order in (1, 2))
    pure = GridMechanism(grid=one, law=DISCRETE_LAPLACE, scale=scale).event
    assert Fraction(pure.pure) >= 2 * one.limit / exact
    gaussian = GridMechanism(grid=two, law=DISCRETE_GAUSSIAN, scale=scale).event
    assert Fraction(gaussian.rho) >= 4 * two.limit / (2 * exact**2)
    stable = Stability(moved=0.01, rounding=0.001, row=1.0, part=1, steps=1)
    steps = GridMechanism(grid=make_fine_grid(size, 1.0), law=DISCRETE_GAUSSIAN, scale=scale, stable=stable)
    moved = Fraction(sample_sensitivity(steps.grid, stable))
    assert Fraction(steps.event_of_sample.rho) >= moved**2 / (2 * exact**2)
    counts = CountNoise(errors=scale, spread=3 * scale).event(rows)
    assert Fraction(counts.pure) >= rows / exact + 2 * rows / (3 * exact)


@pytest.mark.parametrize("rows", [1, 2, 20])
def test_counts_are_charged_for_every_row_that_may_change(rows: int) -> None:
    assert CountNoise(errors=10.0, spread=16.0).event(rows).pure == pytest.approx(rows / 10 + 2 * rows / 16)
    made = sound(unit="device", statistics_epsilon=1.0)
    cost = made.last.cost(1, rows)
    assert cost is not None and cost.event() == update(made).event.plus(counts_of(made).event(rows))
    assert made.event == update(made).event.plus(counts_of(made).event(20))


def test_a_plan_whose_releases_cost_more_than_its_promise_is_refused() -> None:
    made = sound(mechanism="laplace")
    assert isinstance(made.last, OnGrid)
    with pytest.raises(ValueError, match="11 releases cost more"):
        replace(made, terms=replace(made.terms, uses=11))
    smaller = replace(update(made), scale=update(made).scale - 50)
    with pytest.raises(ValueError, match="cost more"):
        replace(made, sanitisers=(replace(made.last, mechanism=smaller),))
    # Gaussian noise on a first release has no ε at all where δ is 0, however little it is in Σρ.
    first = GridMechanism(grid=make_grid(2, 640, 1.0, "example"), law=DISCRETE_GAUSSIAN, scale=2.0**26)
    assert first.event.rho < made.event.rho
    with pytest.raises(ValueError, match="first release costs more"):
        replace(made, sanitisers=(OnGrid(mechanism=first, first=True), made.last))


@pytest.mark.parametrize(
    ("mechanism", "sends", "used"),
    [("gaussian", "change", True), ("gaussian", "gradient", False), ("laplace", "change", False)],
)
def test_a_proof_about_steps_is_used_for_whole_messages_in_l2_only(mechanism: str, sends: Sends, used: bool) -> None:
    stable = Stability(moved=0.01, rounding=0.0, row=1.0, part=1, steps=1)
    made = sound(
        mechanism=mechanism, delta=1e-5, releases=replace(SHAPE, sends=sends), bounds=replace(BOUNDS, stable=stable)
    )
    assert (update(made).stable is not None) == used
    assert (update(made).event_of_sample == update(made).event) != used


def test_a_mechanism_refuses_a_norm_mismatch_and_continuous_noise() -> None:
    for order, law in ((2, DISCRETE_LAPLACE), (1, DISCRETE_GAUSSIAN), (1, LAPLACE)):
        with pytest.raises(ValueError, match="does not fit"):
            GridMechanism(grid=make_grid(order, 10, 1.0, "example"), law=law, scale=1.0)
    with pytest.raises(ValueError, match="exact"):
        GridMechanism(grid=make_grid(1, 10, 1.0, "example"), law=DISCRETE_LAPLACE, scale=0.1)
    for scale in (0.0, -1.0):
        with pytest.raises(ValueError, match="exact"):
            GridMechanism(grid=make_grid(1, 10, 1.0, "example"), law=DISCRETE_LAPLACE, scale=scale)


TASK = """
crowdml = 1
name = "sound"
[data]
features = 4
labels = ["a", "b"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
epsilon = 2.0
clip = 1.0
max-uses = 3
[crowd]
passes = 3
"""


def test_a_task_file_is_sound_unless_it_says_otherwise() -> None:
    task = parse(TASK)
    made = task.calibrated
    assert made.terms.mode == "sound" and made.terms.promised and update(made).grid.size == 8
    assert task.hyper(made)["noise"] == update(made).scale


def test_a_pass_that_the_ledger_cannot_cover_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        parse(TASK, changes=["crowd.passes=4"])
    assert "crowd.passes" in caught.value.where
    assert "pass 4 of 4 is not covered" in caught.value.what and "passes = 3" in caught.value.hint


@pytest.mark.parametrize("kind", ["central-sgd", "central-batch"])
def test_algorithms_without_a_sound_form_are_refused(kind: str) -> None:
    with pytest.raises(BadInput, match="no sound form"):
        parse(TASK, changes=[f"algorithm={{ kind = '{kind}' }}"])


def test_an_algorithm_that_sends_nothing_needs_no_terms() -> None:
    task = parse(TASK, changes=["algorithm={ kind = 'decentral' }"])
    assert not task.calibrated.promises
