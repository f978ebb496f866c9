"""Freeing: no sequence of joins and ends, however chosen, makes a device spend more than its owner's cap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core.errors import BudgetExhausted, CapReached, TermsViolated
from crowdml.privacy import Event, Filter, Promise
from crowdml.privacy.accounting import FilterKind
from crowdml.privacy.gaussian import gaussian_budget
from crowdml.privacy.ledger.entries import AcceptedTerms
from crowdml.privacy.ledger.ledger_chain import Cap, LedgerChain
from crowdml.privacy.ledger.spending import MARKS, SpendingState, counted, counted_after, packed
from crowdml.privacy.renyi import rho_budget

DELTA = 1e-5
KINDS_OF_SUMS = pytest.mark.parametrize("kind", ["gaussian", "rdp"])


def pure(epsilon: float, uses: int, unit: Any = "device") -> AcceptedTerms:
    event = Event.of_pure(epsilon / uses)
    return AcceptedTerms(unit=unit, filter=Filter(kind="pure", epsilon=epsilon, delta=0.0), uses=uses, event=event)


def gaussian(epsilon: float, uses: int, unit: Any = "device", kind: FilterKind = "gaussian") -> AcceptedTerms:
    exact = kind == "gaussian"
    budget = gaussian_budget(epsilon, DELTA) if exact else rho_budget(epsilon, DELTA)
    event = Event(pure=math.inf, rho=budget / uses * (1 - 1e-9), gaussian=exact)
    return AcceptedTerms(unit=unit, filter=Filter(kind=kind, epsilon=epsilon, delta=DELTA), uses=uses, event=event)


def ended(terms: AcceptedTerms, releases: int) -> Promise:
    """What a task counts for that ended in public after so many releases."""
    state = SpendingState(terms=terms, task_hash="", releases=releases, charged=releases, closed=True, freed=True)
    return state.reserved()


def best_of_a_server(counts: list[float], rho: float) -> float:
    """E[1 - e^-(x⁺)] for the server that ends a task at the best moment, by backward induction.

    Args:
        counts: ε that the task counts for after 0, 1, … releases.
        rho: Cost of one release; its loss is Gaussian with mean ρ and variance 2ρ.
    """
    step, last = 0.02, len(counts) - 1
    losses = np.arange(-30.0, 40.0, step)
    half = round(7 * math.sqrt(2 * rho) / step) + 2
    at = np.arange(-half, half + 1) * step
    law = np.exp(-((at - rho) ** 2) / (4 * rho))
    law /= law.sum()

    def gain(releases: int) -> Any:
        return -np.expm1(-np.maximum(losses - counts[releases], 0.0))

    value = gain(last)
    for releases in range(last - 1, -1, -1):
        padded = np.pad(value, half, mode="edge")
        value = np.maximum(gain(releases), np.convolve(padded, law[::-1], mode="valid"))
    return float(value[np.argmin(np.abs(losses))])


@KINDS_OF_SUMS
def test_a_server_that_ends_a_task_at_the_best_moment_gains_no_more_than_the_task_counts_for(kind: FilterKind) -> None:
    terms = gaussian(8.0, 128, kind=kind)
    counts = [ended(terms, releases) for releases in range(terms.uses + 1)]
    assert {promise.delta for promise in counts[1:]} == {counts[-1].delta}, "δ is not given back after a release"
    gained = best_of_a_server([promise.epsilon for promise in counts], terms.event.rho)
    assert gained <= counts[-1].delta
    assert gained > counts[-1].delta / 1000, "the search finds something"


@KINDS_OF_SUMS
def test_what_was_spent_would_be_too_little_to_count_with(kind: FilterKind) -> None:
    """The control: ε after k releases at δ, for a k that the server chooses, is passed by several times δ."""
    terms = gaussian(8.0, 128, kind=kind)
    spent = [terms.event.times(releases).promise(DELTA).epsilon for releases in range(terms.uses + 1)]
    assert best_of_a_server(spent, terms.event.rho) > 2 * DELTA


def test_fewer_gaussian_releases_than_a_mark_count_with_that_mark_and_more_with_the_whole() -> None:
    terms = gaussian(8.0, 128)
    marks = [terms.uses // part for part in MARKS]
    assert marks == [8, 16, 32, 64]
    counts = [ended(terms, releases).epsilon for releases in range(terms.uses + 1)]
    assert counts[0] == 0.0 and counts == sorted(counts)
    assert counts[1] == counts[8] < counts[9] == counts[16] < counts[17] < counts[33] == counts[64] < counts[65] == 8.0
    assert counts[8] > terms.event.times(8).promise(DELTA).epsilon, "a mark costs more than what was spent"
    assert counted(terms.filter) == Promise(epsilon=8.0, delta=2 * DELTA)


def test_pure_releases_count_one_by_one() -> None:
    assert [ended(pure(2.0, 4), releases).epsilon for releases in range(5)] == [0.0, 0.5, 1.0, 1.5, 2.0]
    # Enforced by Rényi divergences, many pure releases may cost more in Σε than was promised: the whole stands.
    limit, event = Filter(kind="rdp", epsilon=4.0, delta=DELTA), Event.of_pure(0.1)
    counts = [counted_after(limit, event, 60, made).epsilon for made in (1, 10, 59, 60)]
    assert counts[0] == pytest.approx(0.1) and counts[1] == pytest.approx(1.0) and counts[2:] == [4.0, 4.0]


def test_what_a_task_counts_for_does_not_depend_on_which_samples_were_used() -> None:
    """Whether two releases share a sample depends on the rows; a cap that went by it would tell."""

    def after(second: list[int]) -> Promise:
        chain = LedgerChain()
        chain.append(chain.accept("task", "hash", pure(2.0, 4, "sample")))
        for key, samples in (("a", [0, 1]), ("b", second)):
            entry = chain.charge("task", key, b"", np.array(samples), 0)
            assert entry is not None
            chain.append(entry, packed(np.array(samples)))
        chain.append(chain.close("task", public=True))
        return chain.tasks["task"].reserved()

    assert after([2, 3]) == after([0, 1]) == Promise(epsilon=1.0)


def test_a_task_without_a_guarantee_is_freed_only_if_it_sent_nothing() -> None:
    assert ended(AcceptedTerms.of_nothing(), 0) == Promise(epsilon=0.0)
    assert ended(AcceptedTerms.of_nothing(), 1).epsilon == math.inf


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["join", "release", "end", "leave"]), st.integers(0, 9), st.integers(0, 3)), max_size=60
)
KINDS = [pure(2.0, 4), pure(1.5, 3, "sample"), gaussian(2.0, 16), gaussian(1.0, 2, "sample")]


@settings(deadline=None, max_examples=150)
@given(OPERATIONS)
def test_no_sequence_of_joins_releases_and_ends_passes_the_cap(operations: list[tuple[str, int, int]]) -> None:
    """The sums are worked out anew from the course of events, not asked of the ledger."""
    cap = Cap(epsilon=5.0, delta=5e-5)
    chain, made = LedgerChain(cap), dict[str, int]()
    public, left = set[str](), set[str]()
    for number, (what, which, kind) in enumerate(operations):
        task = f"task-{which}"
        try:
            if what == "join":
                chain.append(chain.accept(task, "hash", KINDS[kind]))
                made[task] = 0
            elif what == "release":
                samples = np.array([number]) if chain.tasks[task].terms.unit == "sample" else np.zeros(0, int)
                entry = chain.charge(task, f"key-{number}", b"", samples, 0)
                assert entry is not None and task not in public | left
                chain.append(entry, packed(samples))
                made[task] += 1
            else:
                chain.append(chain.close(task, public=what == "end"))
                (public if what == "end" else left).add(task)
        except (TermsViolated, BudgetExhausted, KeyError):
            continue
        epsilon = delta = 0.0
        for name, releases in made.items():
            terms = chain.tasks[name].terms
            marks = [mark for mark in (terms.uses // part for part in MARKS) if mark >= releases]
            whole, is_pure = name not in public, terms.filter.kind == "pure"
            # A release may be made at any time while a task is open; afterwards every one of them counts.
            if whole:
                epsilon += terms.filter.epsilon
            elif is_pure:
                epsilon += min(terms.filter.epsilon, releases * terms.event.pure)
            elif releases:
                at_mark = terms.event.times(marks[0]).promise(DELTA / len(MARKS)).epsilon if marks else math.inf
                epsilon += min(terms.filter.epsilon, at_mark)
            delta += 0.0 if is_pure or (not whole and not releases) else 2 * DELTA
        assert epsilon <= cap.epsilon * (1 + 1e-9) and delta <= cap.delta * (1 + 1e-9)


def test_a_full_cap_takes_another_task_once_one_has_ended_in_public() -> None:
    chain = LedgerChain(Cap(epsilon=3.0))
    chain.append(chain.accept("first", "s", pure(2.0, 4)))
    with pytest.raises(CapReached):
        chain.accept("second", "s", pure(2.0, 4))
    entry = chain.charge("first", "a", b"", np.zeros(0, int), 0)
    assert entry is not None
    chain.append(entry)
    chain.append(chain.close("first", public=True))
    chain.append(chain.accept("second", "s", pure(2.0, 4)))
    assert chain.reserved() == Promise(epsilon=2.5)
    with pytest.raises(BudgetExhausted, match="closed"):
        chain.charge("first", "b", b"", np.zeros(0, int), 0)
    with pytest.raises(CapReached):
        chain.accept("third", "s", pure(2.0, 4))
