"""Plans: bound, noise and cost from the terms, and the refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.privacy import MECHANISMS, ModelBounds, Plan, PrivacySettings, Promise, Releases, make_plan
from crowdml.privacy.cost import Gaussian
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.promise import gaussian_mu
from crowdml.privacy.sanitisers.floats import NoNoise
from crowdml.privacy.sanitisers.paper import Paper, PerturbedInputs


def nothing_known(order: int) -> float | None:
    return None


def by_order(order: int) -> float | None:
    return {1: 2.0, 2: math.sqrt(2.0)}[order]


def plan(
    bound_of: Callable[[int], float | None] = by_order, classes: int = 10, counts: bool = True, **terms: Any
) -> Plan:
    bounds = ModelBounds(gradient=bound_of, classes=classes)
    return make_plan(PrivacySettings(**terms), Releases(sends="gradient", counts=counts), bounds)


def paper(made: Plan) -> Paper:
    assert isinstance(made.last, Paper)
    return made.last


def epsilon(made: Plan, uses: int = 1, delta: float = 0.0) -> float:
    cost = made.cost(uses)
    assert cost is not None
    return cost.promise(delta).epsilon


def test_no_noise_and_no_claim_in_mode_none() -> None:
    made = plan(mode="none", epsilon=3.0, clip=1.0)
    assert isinstance(made.last, NoNoise) and made.terms.claim is None and made.scales == {}
    assert made.last.counts == CountNoise()
    assert made.cost(100) is None
    assert plan(mode="none", counts=False).last.counts is None


def test_paper_mode_with_laplace_noise_and_the_models_bound() -> None:
    made = plan(mode="paper", epsilon=10.0)
    bound = paper(made).mechanism.bound
    assert (bound.order, bound.radius, bound.clipped) == (1, 2.0, False)
    # Theorem 1 of Crowd-ML 2015: scale 4 / (b ε) on the mean, so 4/ε on the sum.
    assert made.noise == pytest.approx(4.0 / 10.0)
    assert epsilon(made) == pytest.approx(10.0)
    assert epsilon(made, 5) == pytest.approx(50.0)
    assert made.terms.claim == Promise(epsilon=10.0, delta=0.0)
    assert made.last.counts is None  # statistics-epsilon = 0: counts are not sent


@pytest.mark.parametrize("rows", [None, 20])
def test_counts_of_a_device_cost_for_all_its_rows_also_where_its_message_is_bounded_as_a_whole(
    rows: int | None,
) -> None:
    """No recipe of ours counts beside local steps; one of somebody else's may."""
    terms = PrivacySettings(epsilon=4.0, clip=1.0, max_uses=2, statistics_epsilon=1.0)
    releases = Releases(sends="change", rows=rows, counts=True, on_grid=True)
    made = make_plan(terms, releases, ModelBounds(size=5))
    assert made.last.counts is not None and not made.last.bounds_rows
    if rows is None:
        assert made.grows_with_rows and made.event_of_device is None
        return
    update, counted = made.event.pure - made.last.counts.event().pure, made.last.counts.event(rows).pure
    assert made.event_of_device is not None
    assert made.event_of_device.pure == pytest.approx(update + counted)
    assert 0.98 * rows * 0.5 < counted <= rows * 0.5


def test_a_clip_takes_the_place_of_the_models_bound() -> None:
    made = plan(nothing_known, mode="paper", epsilon=2.0, clip=0.25)
    assert (paper(made).mechanism.bound.radius, paper(made).mechanism.bound.clipped) == (0.25, True)
    assert made.noise == pytest.approx(2 * 0.25 / 2.0)


def test_paper_mode_with_gaussian_noise() -> None:
    made = plan(mode="paper", mechanism="gaussian", epsilon=1.0, delta=1e-5)
    assert (paper(made).mechanism.bound.order, paper(made).mechanism.bound.radius) == (2, 2.0**0.5)
    assert made.noise == pytest.approx(2 * 2.0**0.5 / gaussian_mu(1.0, 1e-5))
    assert epsilon(made, delta=1e-5) == pytest.approx(1.0, rel=1e-6)
    assert made.terms.claim == Promise(epsilon=1.0, delta=1e-5)
    assert made.terms.delta == 1e-5


@pytest.mark.parametrize("classes", [2, 10])
def test_statistics_cost_less_than_the_paper_says(classes: int) -> None:
    """The total is ε_g + ε_e/2 + ε_y, where the paper charges ε_g + ε_e + C·ε_y."""
    made = plan(mode="paper", epsilon=10.0, statistics_epsilon=2.0, classes=classes)
    error, label = 1.0, 1.0 / classes  # ε_e, and ε_y with C·ε_y = 1
    counts = made.last.counts
    assert counts is not None
    # Equations (11) and (12): p ∝ exp(-ε/2 |z|), so scale 2/ε.
    assert counts.errors == pytest.approx(2 / error)
    assert counts.spread == pytest.approx(2 / label)
    assert paper(made).mechanism.cost.promise(0.0).epsilon == pytest.approx(8.0)
    assert epsilon(made) == pytest.approx(8.0 + error / 2 + label)
    assert epsilon(made, 3) == pytest.approx(3 * (8.0 + error / 2 + label))
    assert made.terms.claim is not None and made.terms.claim.epsilon == 10.0


def test_no_counts_no_cost() -> None:
    made = plan(mode="paper", epsilon=10.0, statistics_epsilon=2.0, counts=False)
    assert made.last.counts is None
    assert epsilon(made) == pytest.approx(8.0)


def test_noise_on_rows_and_labels_costs_less_than_the_paper_says() -> None:
    """Equations (15) and (16) of Crowd-ML 2015 with ε_x = ε_y = ε/2: the label really costs ε_y/2."""
    total, bound, classes = 8.0, 3.0, 4
    terms = PrivacySettings(mode="paper", epsilon=total)
    made = make_plan(terms, Releases(sends="rows"), ModelBounds(row=bound, classes=classes))
    assert isinstance(made.last, PerturbedInputs) and made.promises and made.last.once
    # Two rows differ by at most twice the bound in L1; Laplace noise of that over ε_x costs ε_x.
    assert 2 * bound / made.last.row_scale == pytest.approx(total / 2)
    # The likeliest answer of one label against the same answer of another.
    other = (1 - made.last.keep) / (classes - 1)
    assert math.log(made.last.keep / other) == pytest.approx(total / 4)
    assert epsilon(made) == pytest.approx(total / 2 + total / 4)
    assert made.cost(50) == made.cost(1)  # rows are sent once, however often they are used
    assert made.terms.claim == Promise(epsilon=total)


def test_rows_without_a_bound_cannot_be_sent() -> None:
    with pytest.raises(BadInput, match="nothing bounds the L1 norm of a row"):
        make_plan(PrivacySettings(mode="paper", epsilon=1.0), Releases(sends="rows"), ModelBounds(gradient=by_order))


def test_an_algorithm_that_sends_nothing_promises_nothing() -> None:
    made = make_plan(PrivacySettings(mode="paper", epsilon=1.0), Releases(sends="nothing", counts=True))
    assert not made.promises and made.terms.claim is None and made.scales == {}
    assert plan(mode="paper", epsilon=1.0).promises and not plan(mode="none").promises


REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"mode": "sound"}, "privacy.mode", "no sound form", 'mode = "paper"'),
    ({"mode": "paper"}, "privacy.epsilon", "needs epsilon", "epsilon = 10.0"),
    ({"mode": "paper", "epsilon": 1.0, "mechanism": "discrete-laplace"}, "privacy.mechanism", "counts", "laplace"),
    ({"mode": "paper", "epsilon": 1.0, "mechanism": "gaussian"}, "privacy.delta", "delta above zero", "1e-5"),
    ({"mode": "paper", "epsilon": 1.0, "statistics_epsilon": 1.0}, "privacy.statistics-epsilon", "nothing", "smaller"),
    ({"mode": "paper", "epsilon": 1.0, "statistics_epsilon": 1.5}, "privacy.statistics-epsilon", "nothing", "smaller"),
    ({"mode": "paper", "epsilon": 1.0, "adjacency": "add-remove"}, "privacy.adjacency", "in clear", '"replace"'),
]


@pytest.mark.parametrize(("terms", "where", "what", "hint"), REFUSED, ids=lambda part: str(part)[:40])
def test_refusals_say_where_what_and_what_would_be_right(
    terms: dict[str, Any], where: str, what: str, hint: str
) -> None:
    with pytest.raises(BadInput) as caught:
        plan(**terms)
    assert caught.value.where == where
    assert what in caught.value.what
    assert hint in caught.value.hint


@pytest.mark.parametrize(("mechanism", "order"), [("laplace", 1), ("gaussian", 2)])
def test_an_unbounded_gradient_is_refused(mechanism: str, order: int) -> None:
    with pytest.raises(BadInput) as caught:
        plan(nothing_known, mode="paper", epsilon=1.0, delta=1e-5, mechanism=mechanism)
    assert caught.value.where == "privacy.clip"
    assert caught.value.what == "nothing bounds the gradient of one example"
    assert f"order {order}" in caught.value.hint


def test_a_bound_in_the_other_norm_is_not_taken() -> None:
    only_l2: Callable[[int], float | None] = {1: None, 2: 1.0}.get
    with pytest.raises(BadInput, match="nothing bounds"):
        plan(only_l2, mode="paper", epsilon=1.0, mechanism="laplace")
    made = plan(only_l2, mode="paper", epsilon=1.0, delta=1e-5, mechanism="gaussian").cost(1)
    assert made is not None and isinstance(made.events[0][0], Gaussian)


@pytest.mark.parametrize("mode", ["paper", "none"])
def test_an_unknown_mechanism_is_refused_in_every_mode_with_its_key(mode: str) -> None:
    with pytest.raises(BadInput) as caught:
        plan(mode=mode, epsilon=1.0, mechanism="gausian")
    assert 'did you mean "gaussian"?' in caught.value.hint
    assert caught.value.where == "privacy.mechanism"


def test_gradients_that_are_always_zero_have_a_plan_or_are_refused_in_words() -> None:
    """A row scaled by zero makes the bound zero: nothing is revealed, and nothing may divide by it."""
    try:
        made = plan(lambda order: 0.0, mode="paper", epsilon=1.0)
    except BadInput:
        return
    assert epsilon(made) <= 1.0


def test_every_mechanism_is_named_as_it_is_registered() -> None:
    assert all(law.name == name for name, law in MECHANISMS.items())


def test_sound_is_the_default_and_every_term_is_described() -> None:
    assert PrivacySettings().mode == "sound"
    assert all(field.description for field in PrivacySettings.model_fields.values())


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 0.0}, {"epsilon": -1.0}, {"clip": 0.0}, {"clip": -1.0}, {"delta": 1.0}, {"delta": -1e-9},
        {"statistics_epsilon": -0.1}, {"max_uses": 0}, {"owner_range": [1.0]}, {"owner_range": [0.0, 1.0]},
        {"owner_range": [1.0, 2.0, 3.0]}, {"unit": "person"}, {"adjacency": "remove"}, {"mode": "safe"},
        {"epsilon": float("nan")}, {"clip": float("inf")}, {"owner_range": [8.0, 1.0]},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_terms_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        PrivacySettings(**({"mode": "none"} | terms))
