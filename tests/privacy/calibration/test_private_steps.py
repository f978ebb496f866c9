"""Noise in local steps: the ε that is stated against dp-accounting asked directly, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.privacy import ModelBounds, Plan, PrivacySettings, Releases, Steps, make_plan
from crowdml.privacy.calibration.private_steps import PrivateSteps
from crowdml.privacy.noise.shares import SKELLAM_SHARES, Shared
from crowdml.privacy.promise import Sampled, steps_epsilon
from crowdml.privacy.sanitisers.grid_steps import GridSteps
from crowdml.privacy.sanitisers.paper import InSteps

POISSON: dict[str, Any] = {
    "mode": "paper",
    "adjacency": "add-remove",
    "mechanism": "gaussian",
    "noise_at": "steps",
    "sampling_rate": 0.02,
    "clip": 0.5,
    "epsilon": 2.0,
    "delta": 1e-5,
}
FIXED: dict[str, Any] = POISSON | {"adjacency": "replace", "sampling": "fixed", "sampling_rate": 0.05}
STEPS = Steps(rate=1.0, part=50, epochs=1, count=30)


def plan_of(terms: dict[str, Any], local: Steps | None = STEPS, limit: int | None = 4) -> Plan:
    return make_plan(PrivacySettings(**terms), Releases(sends="change", steps=local), ModelBounds(limit=limit))


def planned(terms: dict[str, Any], local: Steps | None = STEPS, limit: int | None = 4) -> PrivateSteps:
    plan = plan_of(terms, local, limit)
    assert isinstance(plan.last, InSteps) and plan.promises and plan.last.bounds_rows
    assert plan.noise == plan.last.steps.noise and plan.cost(1, rows=3) is None
    return plan.last.steps


def epsilon(terms: dict[str, Any], releases: int) -> float:
    found = plan_of(terms).figure(releases)
    assert found is not None
    return found.epsilon


def test_poisson_steps_cost_what_dp_accounting_says() -> None:
    import dp_accounting as dp

    made = planned(POISSON)
    assert (made.sensitivity, made.adjacency, made.each.least_rows) == (0.5, "add-remove", 1)
    # 4 releases of 30 steps, each row in a step with probability 0.02, noise in units of the clipping norm.
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.02, dp.GaussianDpEvent(made.noise / 0.5)), 120)
    expected = dp.pld.PLDAccountant().compose(event).get_epsilon(1e-5)
    assert epsilon(POISSON, 4) == pytest.approx(expected, rel=1e-6)
    assert 2.0 * 0.998 < epsilon(POISSON, 4) <= 2.0
    # Rényi divergences are another proof of nearly the same figure.
    looser = dp.rdp.RdpAccountant().compose(event).get_epsilon(1e-5)
    assert expected < looser < 1.3 * expected
    assert epsilon(POISSON, 1) < epsilon(POISSON, 2) < epsilon(POISSON, 4)


def test_fixed_batches_cost_what_dp_accounting_says() -> None:
    import dp_accounting as dp

    made = planned(FIXED)
    assert (made.sensitivity, made.adjacency, made.each.least_rows) == (1.0, "replace", 1000)
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    # Replacing a row changes the sum by twice the clipping norm.
    gaussian = dp.GaussianDpEvent(made.noise / (2 * 0.5))
    expected = accountant.compose(dp.SampledWithoutReplacementDpEvent(1000, 50, gaussian), 120).get_epsilon(1e-5)
    assert epsilon(FIXED, 4) == pytest.approx(expected, rel=1e-2)
    assert epsilon(FIXED, 4) >= expected * (1 - 1e-9)  # whole orders alone cannot give less
    assert 2.0 * 0.998 < epsilon(FIXED, 4) <= 2.0


def test_without_sampling_a_step_is_a_gaussian_release() -> None:
    from crowdml.privacy.promise import gaussian_epsilon

    step = Sampled(sampling="poisson", multiplier=5.0, share=1.0, batch=10)
    assert steps_epsilon(step, 4, 1e-5) == pytest.approx(gaussian_epsilon(2 / 5.0, 1e-5), rel=1e-3)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "adjacency": (POISSON | {"adjacency": "replace"}, "accounted for neighbours"),
    "adjacency of fixed": (FIXED | {"adjacency": "add-remove"}, "accounted for neighbours"),
    "mechanism": (POISSON | {"mechanism": "laplace"}, "is Gaussian"),
    "no epsilon": (POISSON | {"epsilon": None}, "needs this"),
    "no delta": (POISSON | {"delta": 0.0}, "needs this"),
    "no clip": (POISSON | {"clip": None}, "needs this"),
    "no rate": (POISSON | {"sampling_rate": None}, "needs this"),
    "unit": (POISSON | {"unit": "device"}, "about one sample"),
    "uses": (POISSON | {"max_uses": 3}, "only sound mode"),
    "scale": (POISSON | {"noise_scale": 1.0}, "follows from epsilon"),
    "counts": (POISSON | {"statistics_epsilon": 0.1}, "no counts"),
    "in turn": (POISSON | {"sampling": "in-turn", "adjacency": "replace"}, "rows at random"),
    "nothing to sample": (POISSON | {"noise_at": "message", "adjacency": "replace"}, "has no effect"),
    "nothing to sample in sound mode": (
        {"mode": "sound", "epsilon": 1.0, "max_uses": 1, "clip": 1.0, "clipping": "per-layer"},
        "has no effect",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_kept_is_refused(case: str) -> None:
    terms, words = REFUSED[case]
    with pytest.raises(BadInput, match=words):
        planned(terms)


SOUND: dict[str, Any] = {
    "mode": "sound",
    "mechanism": "gaussian",
    "noise_at": "steps",
    "clip": 0.5,
    "epsilon": 2.0,
    "delta": 1e-5,
    "max_uses": 4,
}
BY_WALK = Releases(sends="change", steps=replace(STEPS, by_walk=True), on_grid=True)


def sound(terms: dict[str, Any], releases: Releases = BY_WALK, model: ModelBounds | None = None) -> Plan:
    return make_plan(PrivacySettings(**terms), releases, model or ModelBounds(size=20))


def test_a_release_of_sound_steps_costs_a_sample_one_gaussian_release() -> None:
    from crowdml.privacy.gaussian import gaussian_epsilon_up

    plan = sound(SOUND)
    made = plan.last
    assert isinstance(made, GridSteps) and made.part == 50 and not plan.simulated
    mechanism = made.mechanism
    mu_squared = mechanism.grid.sensitivity**2 / mechanism.scale**2
    for uses in (1, 4):
        found = plan.figure(uses)
        assert found is not None
        assert found.epsilon == pytest.approx(gaussian_epsilon_up(mu_squared * uses / 2, 1e-5), rel=1e-9)
        assert uses == 1 or 1.99 < found.epsilon <= 2.0
    assert plan.event.times(4).rho == pytest.approx(2 * mu_squared)
    # A device of 120 rows is in three steps, with 50 rows at most.
    assert made.cost(1, 120).event().rho == pytest.approx(3 * 50**2 * mu_squared / 2)
    assert made.cost(1, 7).event().rho == pytest.approx(7**2 * mu_squared / 2)


def test_owners_choose_their_noise_in_steps() -> None:
    plan = sound(SOUND | {"owner_range": [0.5, 4.0]})
    careful, figure = plan.for_owner(0.5), plan.for_owner(0.5).figure(4)
    assert careful.noise > 3 * plan.noise and figure is not None and 0.49 < figure.epsilon <= 0.5


MANY = replace(BY_WALK, steps=replace(STEPS, by_walk=True, epochs=2))
MORE = replace(BY_WALK, steps=STEPS)
NOT_SOUND: dict[str, tuple[dict[str, Any], Releases, str]] = {
    "poisson": (SOUND | {"sampling": "poisson"}, BY_WALK, "divergences of many orders"),
    "rate": (SOUND | {"sampling_rate": 0.1}, BY_WALK, "rows go in turn"),
    "multiplier": (SOUND | {"noise_multiplier": 1.0}, BY_WALK, "rows go in turn"),
    "counts": (SOUND | {"statistics_epsilon": 0.5}, BY_WALK, "rows go in turn"),
    "device": (SOUND | {"unit": "device"}, BY_WALK, "promises something to samples"),
    "laplace": (SOUND | {"mechanism": "laplace"}, BY_WALK, "is Gaussian"),
    "add-remove": (SOUND | {"adjacency": "add-remove"}, BY_WALK, "add-remove is not protected"),
    "no clip": (SOUND | {"clip": None}, BY_WALK, "nothing bounds"),
    "epochs": (SOUND, MANY, "several steps of a release"),
    "other messages": (SOUND, MORE, "more is sent"),
    "gradients": (SOUND, replace(BY_WALK, steps=None), "no local steps"),
}


@pytest.mark.parametrize("case", list(NOT_SOUND))
def test_what_is_not_proven_of_sound_steps_is_refused(case: str) -> None:
    terms, releases, words = NOT_SOUND[case]
    with pytest.raises(BadInput, match=words):
        sound(terms, releases, ModelBounds(size=20, limit=4))


def test_sound_steps_are_not_shared() -> None:
    shared = Shared(law=SKELLAM_SHARES, survivors=5)
    with pytest.raises(BadInput, match="nothing left for others to share"):
        sound(SOUND, model=ModelBounds(size=20, shared=shared))


def test_steps_and_releases_must_be_known() -> None:
    with pytest.raises(BadInput, match="no local steps"):
        planned(POISSON, local=None)
    for steps in (replace(STEPS, count=None), replace(STEPS, epochs=2)):
        with pytest.raises(BadInput, match="counts steps, not times through the rows"):
            planned(POISSON, local=steps)
    with pytest.raises(BadInput, match="over how many releases"):
        planned(POISSON, limit=None)


@pytest.mark.parametrize("terms", [POISSON, FIXED], ids=["poisson", "fixed"])
def test_noise_may_be_given_and_its_epsilon_follows(terms: dict[str, Any]) -> None:
    given = {name: value for name, value in terms.items() if name != "epsilon"} | {"noise_multiplier": 1.4}
    plan, steps = plan_of(given), planned(given)
    assert steps.noise == pytest.approx(1.4 * 0.5), "in units of clip, however rows are taken"
    epsilon = steps_epsilon(steps.each, 120, 1e-5)
    assert plan.terms.claim is not None and plan.terms.claim.epsilon == pytest.approx(epsilon)
    # The other way round: the least noise for that ε is the noise that was given.
    again = planned(terms | {"epsilon": epsilon})
    assert again.noise == pytest.approx(steps.noise, rel=5e-3)


def test_noise_and_epsilon_are_not_both_given_nor_noise_without_steps() -> None:
    with pytest.raises(BadInput, match="either from epsilon or from noise-multiplier"):
        plan_of(POISSON | {"noise_multiplier": 1.0})
    with pytest.raises(BadInput, match="has no effect on noise that is added to the message"):
        plan_of({"mode": "paper", "epsilon": 1.0, "noise_multiplier": 1.0})


@pytest.mark.parametrize(("terms", "least"), [(POISSON, 0.25), (FIXED, 0.5)], ids=["poisson", "fixed"])
def test_noise_that_says_nothing_is_refused_before_its_epsilon_is_looked_for(
    terms: dict[str, Any], least: float
) -> None:
    """Of a ten-thousandth of a clip the distribution of losses would not fit into any memory."""
    given = {name: value for name, value in terms.items() if name != "epsilon"}
    planned(given | {"noise_multiplier": least})
    for multiplier, words in ((least * 0.99, "hides nothing"), (1e-4, "hides nothing"), (1e5, "hides everything")):
        with pytest.raises(BadInput, match=words):
            planned(given | {"noise_multiplier": multiplier})


def test_whoever_looks_for_user_level_privacy_is_led_to_sound_mode() -> None:
    with pytest.raises(BadInput) as caught:
        plan_of({"mode": "paper", "unit": "device", "epsilon": 1.0, "delta": 1e-5, "mechanism": "gaussian"})
    assert 'mode = "sound", unit = "device"' in caught.value.hint
