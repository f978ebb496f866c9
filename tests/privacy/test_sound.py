"""Sound plans: calibrated to the total, refused where nothing could be proven."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.algorithms import parse
from crowdml.core import NUMPY, BadInput
from crowdml.privacy import Plan, PrivacySettings, Releases, Sound, make_plan, require_delta
from crowdml.privacy.accounting import rho_budget
from crowdml.privacy.grid import make_fine_grid, make_grid
from crowdml.privacy.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, LAPLACE
from crowdml.privacy.sound import Sends, SoundMechanism, SoundStatistics, Stability, sample_sensitivity

GOOD: dict[str, Any] = {"epsilon": 8.0, "clip": 1.0, "max_uses": 10}
SHAPE = Releases(sound=True, size=640, rows=20, limit=30)


def plan(
    bound_of: Callable[[int], float | None] = lambda order: None, releases: Releases = SHAPE, **terms: Any
) -> Plan:
    return make_plan(PrivacySettings(**terms), bound_of, 10, True, releases=releases)


def sound(**terms: Any) -> Sound:
    made = plan(**(GOOD | terms)).sound
    assert made is not None
    return made


def test_pure_noise_is_calibrated_to_the_total() -> None:
    made = sound(mechanism="laplace")
    grid = make_grid(1, 640, 1.0, "example")
    assert made.update.grid == grid and made.update.law is DISCRETE_LAPLACE
    # Ten uses of ε = 0.8 each: scale 2·(L + √d)/0.8 levels.
    assert made.update.scale == pytest.approx(2 * grid.limit / 0.8, rel=1e-3)
    assert made.event.times(10).promise(0.0).epsilon <= 8.0
    assert made.event.times(10).promise(0.0).epsilon == pytest.approx(8.0, rel=1e-3)
    assert made.filter.kind == "pure" and made.uses == 10


def test_gaussian_noise_is_calibrated_to_the_total() -> None:
    made = sound(mechanism="gaussian", delta=1e-5)
    assert made.update.law is DISCRETE_GAUSSIAN and made.filter.kind == "rdp"
    assert 10 * made.event.rho <= rho_budget(8.0, 1e-5)
    assert 10 * made.event.rho == pytest.approx(rho_budget(8.0, 1e-5), rel=5e-3)
    assert math.isinf(made.event.pure)


def test_gaussian_noise_never_has_a_deviation_below_four_levels() -> None:
    """There the law of a simulation would no longer be that of a device."""
    loud = sound(mechanism="gaussian", delta=1e-5, epsilon=1000.0, max_uses=1, releases=Releases(sound=True, size=4))
    assert loud.update.scale == 4.0
    assert loud.event.promise(1e-5).epsilon < 900  # so it costs less than was promised
    assert sound(mechanism="laplace", epsilon=1000.0, max_uses=1).update.scale > 4.0


def test_many_pure_uses_are_enforced_by_whichever_sum_needs_less_noise() -> None:
    few, many = sound(delta=1e-6, max_uses=2), sound(delta=1e-6, max_uses=1000)
    assert (few.filter.kind, many.filter.kind) == ("pure", "rdp")
    assert many.update.scale < sound(max_uses=1000).update.scale
    assert sound(max_uses=1000).filter.kind == "pure"  # δ = 0 leaves no choice


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_statistics_are_inside_epsilon(mechanism: str) -> None:
    made = sound(mechanism=mechanism, delta=1e-5, statistics_epsilon=1.0)
    assert made.statistics is not None
    assert made.statistics.event.times(10).pure <= 1.0 + 1e-9
    assert made.statistics.event.times(10).pure == pytest.approx(1.0, rel=1e-2)
    assert made.event.times(10).promise(1e-5).epsilon <= 8.0 * (1 + 1e-9)
    assert made.update.scale > sound(mechanism=mechanism, delta=1e-5).update.scale
    # The label counts change by two for one sample, whatever the number of labels is.
    assert made.statistics.label_scale == pytest.approx(2 * made.statistics.error_scale, rel=1e-2)


def test_counts_that_would_have_taken_all_of_epsilon_are_added_on_their_own_side() -> None:
    """Half of ε for the counts of a single release: as ε²/2 they would cost more than the whole Σρ allows."""
    made = sound(mechanism="gaussian", delta=1e-5, max_uses=1, statistics_epsilon=4.0)
    assert made.filter.kind == "mixed" and made.statistics is not None
    assert made.statistics.event.rho * 2 > rho_budget(8.0, 1e-5)
    assert made.event.epsilon("mixed", 1e-5) == pytest.approx(8.0, rel=1e-3)
    assert made.event.epsilon("mixed", 1e-5) <= 8.0
    # The gradient then has what is left: no more noise than that takes.
    left = sound(mechanism="gaussian", delta=1e-5, max_uses=1, epsilon=8.0 - made.statistics.event.pure)
    assert made.update.scale == pytest.approx(left.update.scale, rel=1e-3)
    assert sound(mechanism="gaussian", delta=1e-5, max_uses=100, statistics_epsilon=4.0).filter.kind == "rdp"


def test_a_device_is_protected_by_a_bound_on_the_whole_release() -> None:
    made = sound(unit="device", statistics_epsilon=1.0)
    assert made.update.grid.per == "release" and made.uses == 30
    assert made.statistics is not None and made.statistics.rows == 20
    assert made.statistics.error_scale == pytest.approx(20 * 30 * 2 / 1.0, rel=1e-2)


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
            releases=Releases(sound=True, size=100, rows=20, limit=uses),
        ).sound
    except BadInput as error:
        assert "32 bits" in error.what
        return
    assert made is not None
    assert made.filter.covers(made.event.times(made.uses))
    # And not wasted: less than a twentieth less noise would pass it.
    if made.update.scale > 4.5:
        smaller = SoundMechanism(
            grid=made.update.grid, law=made.update.law, scale=math.floor(made.update.scale * 0.9 * 16) / 16
        )
        counts = made.statistics.event if made.statistics else smaller.event.times(0)
        assert not made.filter.covers(smaller.event.plus(counts).times(made.uses))


REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no epsilon": ({"epsilon": None}, "privacy.epsilon", "needs epsilon", "epsilon = 8.0"),
    "epsilon without meaning": ({"epsilon": 1001.0}, "privacy.epsilon", "promises nothing", 'mode = "none"'),
    "gaussian, no delta": ({"mechanism": "gaussian"}, "privacy.delta", "delta above zero", "1e-6"),
    "no uses": ({"max_uses": None}, "privacy.max-uses", "how many releases of one sample", "max-uses = 1"),
    "no releases": (
        {"unit": "device", "releases": Releases(sound=True)}, "stop.max-releases", "of one device", "max-releases = 10"
    ),
    "no bound": ({"clip": None}, "privacy.clip", "nothing bounds the gradient", "order 1"),
    "zero rows": ({"clip": None, "bound_of": lambda order: 0.0}, "privacy.clip", "zero", ""),
    "all statistics": ({"statistics_epsilon": 8.0}, "privacy.statistics-epsilon", "leaves nothing", "smaller"),
    "counts of any number of rows": (
        {"unit": "device", "statistics_epsilon": 1.0, "releases": Releases(sound=True, size=640, rows=None, limit=30)},
        "privacy.statistics-epsilon", "nothing bounds the rows", "leave it out",
    ),
    "add-remove": ({"adjacency": "add-remove"}, "privacy.adjacency", "in clear", '"replace"'),
    "integer law": ({"mechanism": "discrete-laplace"}, "privacy.mechanism", "cannot be named", "laplace"),
    "not a sound algorithm": ({"releases": Releases()}, "privacy.mode", "no sound form", "crowd-sgd"),
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
    require_delta(terms, 999)
    with pytest.raises(BadInput) as caught:
        require_delta(terms, 1000)
    assert (
        caught.value.where == "privacy.delta" and "1000 samples" in caught.value.what and "1e-05" in caught.value.hint
    )
    require_delta(PrivacySettings(mode="paper", delta=0.5), 1000)  # a paper may claim what it likes


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
    pure = SoundMechanism(grid=one, law=DISCRETE_LAPLACE, scale=scale).event
    assert Fraction(pure.pure) >= 2 * one.limit / exact
    gaussian = SoundMechanism(grid=two, law=DISCRETE_GAUSSIAN, scale=scale).event
    assert Fraction(gaussian.rho) >= 4 * two.limit / (2 * exact**2)
    stable = Stability(moved=0.01, rounding=0.001, row=1.0, part=1, steps=1)
    steps = SoundMechanism(grid=make_fine_grid(size, 1.0), law=DISCRETE_GAUSSIAN, scale=scale, stable=stable)
    moved = Fraction(sample_sensitivity(steps.grid, stable))
    assert Fraction(steps.event_of_sample.rho) >= moved**2 / (2 * exact**2)
    counts = SoundStatistics(error_scale=scale, label_scale=3 * scale, rows=rows).event
    assert Fraction(counts.pure) >= rows / exact + 2 * rows / (3 * exact)


@pytest.mark.parametrize("rows", [1, 2, 20])
def test_counts_are_charged_for_every_row_that_may_change(rows: int) -> None:
    counts = SoundStatistics(error_scale=10.0, label_scale=16.0, rows=rows)
    assert counts.event == counts.event_of(rows)
    assert counts.event.pure == pytest.approx(rows / 10 + 2 * rows / 16)
    made = sound(unit="device", statistics_epsilon=1.0)
    assert made.statistics is not None
    assert made.of_device(rows) == made.update.event.plus(made.statistics.event_of(rows))
    assert made.event == made.of_device(20)


def test_a_plan_whose_releases_cost_more_than_its_promise_is_refused() -> None:
    made = sound(mechanism="laplace")
    with pytest.raises(ValueError, match="11 releases cost more"):
        replace(made, uses=11)
    with pytest.raises(ValueError, match="cost more"):
        replace(made, update=replace(made.update, scale=made.update.scale - 50))
    # Gaussian noise on a first release has no ε at all where δ is 0, however little it is in Σρ.
    first = SoundMechanism(grid=make_grid(2, 640, 1.0, "example"), law=DISCRETE_GAUSSIAN, scale=2.0**26)
    assert first.event.rho < made.event.rho
    with pytest.raises(ValueError, match="first release costs more"):
        replace(made, opening=first)


@pytest.mark.parametrize(
    ("mechanism", "sends", "used"),
    [("gaussian", "change", True), ("gaussian", "gradient", False), ("laplace", "change", False)],
)
def test_a_proof_about_steps_is_used_for_whole_messages_in_l2_only(mechanism: str, sends: Sends, used: bool) -> None:
    stable = Stability(moved=0.01, rounding=0.0, row=1.0, part=1, steps=1)
    made = sound(mechanism=mechanism, delta=1e-5, releases=replace(SHAPE, sends=sends, stable=stable))
    assert (made.update.stable is not None) == used
    assert (made.update.event_of_sample == made.update.event) != used


def test_a_mechanism_refuses_a_norm_mismatch_and_continuous_noise() -> None:
    for order, law in ((2, DISCRETE_LAPLACE), (1, DISCRETE_GAUSSIAN), (1, LAPLACE)):
        with pytest.raises(ValueError, match="does not fit"):
            SoundMechanism(grid=make_grid(order, 10, 1.0, "example"), law=law, scale=1.0)
    with pytest.raises(ValueError, match="exact"):
        SoundMechanism(grid=make_grid(1, 10, 1.0, "example"), law=DISCRETE_LAPLACE, scale=0.1)
    for scale in (0.0, -1.0):
        with pytest.raises(ValueError, match="exact"):
            SoundMechanism(grid=make_grid(1, 10, 1.0, "example"), law=DISCRETE_LAPLACE, scale=scale)


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
    made = task.plan(task.model_for(NUMPY))
    assert made.mode == "sound" and made.sound is not None and made.sound.update.grid.size == 8
    assert task.hyper(made)["noise"] == made.sound.update.scale


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
    assert not task.plan(task.model_for(NUMPY)).promises
