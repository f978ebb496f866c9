"""Attacks on promises: no honest recipe is refuted, the bounds come near, and what is planted is caught.

Each audit states its bounds at a confidence of 1 - 1e-6, so that a false alarm is not to be expected in years.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from crowdml.audit.attack import CLOPPER_PEARSON, ONE_THRESHOLD
from crowdml.audit.audit_report import Audit
from crowdml.audit.canaries import ONE_RUN
from crowdml.audit.promises import audit_promise
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy.noise.samplers import discrete_laplace
from crowdml.task import parse
from tests.audit.attacked_tasks import IN_STEPS, IN_SUMS, SOUND, attacked_task

SURE = 1 - 1e-6


def share(found: Audit, what: str, method: str) -> float:
    """Return how near a bound came to its claim."""
    return next(each.share for each in found.findings if (each.what, each.method) == (what, method))


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_one_release_with_laplace_noise_is_bounded_near_its_claim(unit: str, epsilon: float) -> None:
    found = audit_promise(attacked_task("crowd-sgd", unit, "laplace", epsilon=epsilon, uses=1), control=epsilon == 1.0)
    assert found.holds and found.apart > 0.98
    assert share(found, "one release", CLOPPER_PEARSON) > 0.7
    if epsilon == 1.0:
        assert found.findings[0].is_powerful and found.measured_control and not found.measured_control.holds


@pytest.mark.parametrize("unit", ["sample", "device"])
def test_gaussian_noise_is_bounded_near_its_claim_by_its_strength(unit: str) -> None:
    found = audit_promise(attacked_task("fedsgd", unit, "gaussian", uses=3))
    assert found.holds and found.apart > 0.98
    assert share(found, "all 3 releases", ONE_THRESHOLD) > 0.8
    assert [each.is_powerful for each in found.findings if each.method == ONE_THRESHOLD] == [True, True]
    assert found.family == 6  # four bounds, the canaries, and the noise of whole check-ins


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("recipe", [name for name in SOUND if name not in ("crowd-sgd", "fedsgd")])
def test_no_recipe_is_refuted_and_its_worst_neighbours_are_found(recipe: str, unit: str) -> None:
    # With 6,000 the share is 0.84 with an s.d. of 0.03, so that one of forty tests fell below by chance now and then.
    found = audit_promise(attacked_task(recipe, unit), trials=12_000, confidence=SURE, control=False)
    assert found.holds, found.verdict
    assert found.apart > 0.95
    assert share(found, "all 3 releases", ONE_THRESHOLD) > 0.75


@pytest.mark.parametrize(
    ("recipe", "unit", "law"),
    [
        ("fedsgd", "sample", "discrete-gaussian"),
        ("fedavg", "device", "skellam"),
        ("admm-sums", "device", "discrete-gaussian"),
        ("consensus-newton", "sample", "discrete-gaussian"),
        ("ridge", "sample", "discrete-gaussian"),
    ],
)
def test_no_secure_sum_is_refuted_with_no_more_noise_than_it_counts_on(recipe: str, unit: str, law: str) -> None:
    task = attacked_task(recipe, unit, law=law, uses=1 if recipe == "ridge" else 3)
    found = audit_promise(task, trials=2_000, confidence=SURE, control=False)
    assert found.holds, found.verdict
    assert recipe in IN_SUMS and found.rests_on == 12 and found.apart > 0.9
    assert max(each.share for each in found.findings) > 0.2  # few trials, and a family of one in a million


def test_counts_are_attacked_with_the_update_and_the_update_without_them() -> None:
    task = attacked_task("crowd-sgd", changes=("privacy.statistics-epsilon=1.0",), uses=1)
    found = audit_promise(task, trials=4_000, control=False)
    assert found.holds and [each.what for each in found.findings] == [
        "one release",
        "one release without its counts",
        "one release without its counts",
        "one training, 500 canaries",
    ]


def thin(self: DeviceCoins, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
    """Discrete Laplace noise of half the scale."""
    from fractions import Fraction

    draws = discrete_laplace(self._words, Fraction(float(scale)) / 2, int(np.prod(shape)))
    return draws.astype(np.int32).reshape(shape)


def test_half_the_noise_of_the_sampler_is_found_out_by_guesses_and_by_measuring() -> None:
    with mock.patch.object(DeviceCoins, "discrete_laplace", thin):
        found = audit_promise(attacked_task("crowd-sgd", mechanism="laplace", uses=1), confidence=SURE, control=False)
    assert not found.holds and found.verdict.startswith("BROKEN: only 0.")
    assert not found.measured.holds and not found.findings[0].holds


@pytest.mark.parametrize("recipe", list(IN_STEPS))
def test_noise_in_every_step_is_bounded_near_its_claim(recipe: str) -> None:
    found = audit_promise(attacked_task(recipe, steps=True), confidence=SURE, control=recipe == "fedavg")
    assert found.holds, found.verdict
    assert found.apart > 0.98 and share(found, "all 3 releases", ONE_THRESHOLD) > 0.78
    assert found.findings[-1].method == ONE_RUN and found.measured.numbers > 2_000
    if recipe == "fedavg":
        assert found.findings[0].is_powerful and found.measured_control
        assert found.measured_control.share == pytest.approx(0.25, rel=0.1) and not found.measured_control.holds


def test_steps_without_noise_are_found_out_by_guesses_by_measuring_and_by_canaries() -> None:
    nothing = mock.patch.object(
        DeviceCoins, "rounded_gaussian", lambda self, stage, scale, shape: np.zeros(shape, np.int32)
    )
    with nothing:
        found = audit_promise(attacked_task("fedavg", steps=True, uses=1, epsilon=1.0), control=False)
    assert not found.holds and not found.measured.holds
    assert [each.holds for each in found.findings] == [False, False, False]


def test_a_server_that_learns_from_public_rows_can_be_attacked() -> None:
    """Public rows are made up for it: no promise rests on them."""
    file = (Path(__file__).parents[2] / "examples" / "odpfl.toml").read_text(encoding="utf-8")
    changes = ["model={ kind = 'softmax' }", "privacy.max-uses=2", "stop.max-releases=2", "crowd.passes=2"]
    assert audit_promise(parse(file, changes=changes), trials=1_000, confidence=SURE, control=False).holds
