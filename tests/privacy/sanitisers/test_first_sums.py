"""Noise on the first cut: the integer bound holds for any sums, and an attack finds the proven strength and no more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from crowdml.audit.bounds import Guesses, count, epsilon_bound, mu_bound
from crowdml.core import BadInput
from crowdml.privacy import ModelBounds, Plan, PrivacySettings, Releases, make_plan
from crowdml.privacy.noise.samplers import OsWords
from crowdml.privacy.sanitisers.first_sums import FirstCut

SIZE, CLIP, TRIALS, ERROR = 12, 2.0, 20_000, 1e-6
"""A bound of an honest mechanism fails once in a million runs."""
RELEASES = Releases(sends="pieces", bound=CLIP, label_epsilon=1.0, on_grid=True, unprotected="as they are")
TERMS = PrivacySettings(mode="sound", mechanism="gaussian", epsilon=6.0, delta=1e-6)
Attacked = Callable[[FirstCut, np.ndarray], np.ndarray]


def plan_of(terms: PrivacySettings = TERMS, releases: Releases = RELEASES) -> Plan:
    return make_plan(terms, releases, ModelBounds(classes=3, first_sums=SIZE))


def cut_of() -> FirstCut:
    found = plan_of().last
    assert isinstance(found, FirstCut)
    return found


class Still:
    """Words in which noise is zero and rounding goes down or up alike."""

    def take(self, count: int) -> np.ndarray:
        return np.full(count, (1 << 63) - 1, np.uint64)


def test_what_is_sent_obeys_the_integer_bound_whatever_the_sums() -> None:
    generator, grid = np.random.default_rng(0), cut_of().mechanism.grid
    sums = generator.standard_normal((200, SIZE)) * 10.0 ** generator.uniform(-3, 30, (200, 1))
    sums[0, 0], sums[1, 1], sums[2, :], sums[3, :] = np.nan, np.inf, 0.0, -1e38
    with np.errstate(over="ignore", invalid="ignore"):
        sent = cut_of().columns(sums.astype(np.float32), Still())
    levels = np.rint(sent.astype(np.float64) / grid.step)
    assert sent.shape == (SIZE, 200) and np.isfinite(sent).all()
    assert (np.sum(levels**2, axis=0) <= grid.limit).all()


def test_noise_and_answers_have_the_law_that_is_charged() -> None:
    cut = cut_of()
    assert cut.labels is not None
    sent = cut.columns(np.zeros((4000, SIZE), np.float32), OsWords())
    assert abs(sent.std() / cut.deviation() - 1) < 0.03
    answers = cut.answers(np.full(20_000, 2), OsWords())
    kept = float(np.mean(answers == 2))
    assert abs(kept - float(cut.labels.keep)) < 0.02 and abs(np.mean(answers == 0) - np.mean(answers == 1)) < 0.03
    assert math.log(float(cut.labels.keep) * 2 / (1 - float(cut.labels.keep))) == pytest.approx(1.0, abs=1e-6)


def test_the_promise_is_kept_by_what_the_ledger_adds_up() -> None:
    plan = plan_of()
    assert plan.terms.promised and plan.terms.uses == 1 and plan.terms.limit.epsilon == 6.0
    assert plan.terms.limit.covers(plan.event)
    assert not plan.terms.limit.covers(plan.event.times(2))
    assert plan.event.apart[0] == pytest.approx(1.0, abs=1e-6)
    mu = cut_of().mechanism.grid.sensitivity / cut_of().mechanism.scale
    assert 2 * plan.event.apart[1] == pytest.approx(mu**2, rel=1e-9)


# The attack: a row whose sums are as long as the bound allows, or its opposite; who sees a column guesses which it was.


def honest(cut: FirstCut, sums: np.ndarray) -> np.ndarray:
    return cut.columns(sums, OsWords())


def no_noise(cut: FirstCut, sums: np.ndarray) -> np.ndarray:
    return cut.columns(sums, Still())


def half_noise(cut: FirstCut, sums: np.ndarray) -> np.ndarray:
    return replace(cut, mechanism=replace(cut.mechanism, scale=cut.mechanism.scale / 2)).columns(sums, OsWords())


def redrawn(cut: FirstCut, sums: np.ndarray) -> np.ndarray:
    """A replay and two passes that each draw anew: the mean of three columns."""
    return np.asarray(np.mean([cut.columns(sums, OsWords()) for _ in range(3)], axis=0))


def without_bound(cut: FirstCut, sums: np.ndarray) -> np.ndarray:
    grid = replace(cut.mechanism.grid, radius=10 * CLIP, levels=10 * cut.mechanism.grid.levels, limit=1 << 40)
    return replace(cut, mechanism=replace(cut.mechanism, grid=grid)).columns(sums, OsWords())


def strength(attacked: Attacked, length: float = CLIP) -> float:
    """Return a lower bound on μ that fails once in a million runs."""
    cut, row = cut_of(), np.zeros((TRIALS, SIZE), np.float32)
    row[:, 3] = length
    first, second = attacked(cut, row)[3].astype(np.float64), attacked(cut, -row)[3].astype(np.float64)
    found: Guesses = count(0.0, first, second)
    return mu_bound(found, ERROR)


def test_the_attack_finds_nearly_the_proven_strength_and_no_more() -> None:
    cut = cut_of()
    proven = cut.mechanism.grid.sensitivity / cut.mechanism.scale
    found = strength(honest)
    # The integer limit leaves room that a row on one axis cannot use.
    assert 0.8 * proven < found <= proven


@pytest.mark.parametrize(("fault", "length"), [(no_noise, CLIP), (half_noise, CLIP), (redrawn, CLIP)])
def test_the_attack_catches_planted_faults(fault: Attacked, length: float) -> None:
    cut = cut_of()
    assert strength(fault, length) > cut.mechanism.grid.sensitivity / cut.mechanism.scale


def test_the_attack_catches_a_bound_that_is_not_kept() -> None:
    cut = cut_of()
    proven = cut.mechanism.grid.sensitivity / cut.mechanism.scale
    assert strength(honest, 10 * CLIP) <= proven < strength(without_bound, 10 * CLIP)


def test_the_attack_on_answers_stays_below_their_part_and_catches_open_labels() -> None:
    cut = cut_of()
    assert cut.labels is not None

    def bound(answer: Callable[[np.ndarray], np.ndarray]) -> float:
        first, second = (answer(np.full(TRIALS, label)) for label in (0, 1))
        said = Guesses(hits=int((first == 0).sum()), alarms=int((second == 0).sum()), trials=TRIALS)
        return epsilon_bound(said, 0.0, ERROR)

    assert 0.8 < bound(lambda labels: cut.answers(labels, OsWords())) <= cut.labels.event.pure
    assert bound(lambda labels: labels) > cut.labels.event.pure


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mechanism": "laplace"}, "is Gaussian"),
        ({"unit": "device"}, "promises something to samples"),
        ({"epsilon": None}, "needs epsilon"),
        ({"delta": 0.0}, "needs delta above zero"),
        ({"max_uses": 3}, "enters one release"),
        ({"clip": 1.0}, "bounded by algorithm.cut-clip"),
        ({"adjacency": "add-remove"}, "travels in clear"),
        ({"epsilon": 0.9}, "leaves nothing of epsilon"),
        ({"statistics_epsilon": 1.0}, "noise follows from epsilon"),
        ({"epsilon": 1e6}, "promises nothing anyone could rely on"),
    ],
)
def test_what_is_not_proven_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        plan_of(TERMS.model_copy(update=change))


def test_without_labels_that_are_answered_there_is_no_promise() -> None:
    with pytest.raises(BadInput, match="as they are"):
        plan_of(releases=replace(RELEASES, label_epsilon=0.0))
    with pytest.raises(BadInput, match="as they are"):
        plan_of(TERMS.model_copy(update={"mode": "paper"}))
    assert FirstCut.of_noise(SIZE, CLIP, 1.0).cost(1) is None
