"""The ledger's chain: refusals, sums, canonical bytes, and what a replay finds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core.errors import BudgetExhausted, TermsViolated
from crowdml.privacy import Event, Filter, Promise
from crowdml.privacy.accounting import FilterKind
from crowdml.privacy.ledger.entries import AcceptedTerms, accepted, decimal_up
from crowdml.privacy.ledger.entry_bytes import canonical
from crowdml.privacy.ledger.ledger_chain import Cap, LedgerChain, next_hash
from crowdml.privacy.ledger.spending import packed

VECTORS = Path(__file__).parents[2] / "vectors" / "ledger.json"
NOBODY = np.zeros(0, np.int64)


def pure(uses: int = 3, each: float = 0.5, unit: Any = "sample", epsilon: float | None = None) -> AcceptedTerms:
    limit = uses * each if epsilon is None else epsilon
    return AcceptedTerms(
        unit=unit, filter=Filter(kind="pure", epsilon=limit, delta=0.0), uses=uses, event=Event.of_pure(each)
    )


def gaussian(uses: int = 3) -> AcceptedTerms:
    event = Event(pure=math.inf, rho=0.01)
    return AcceptedTerms(unit="sample", filter=Filter(kind="rdp", epsilon=2.0, delta=1e-5), uses=uses, event=event)


def begun(terms: AcceptedTerms, cap: Cap = Cap()) -> LedgerChain:  # noqa: B008  a frozen record
    chain = LedgerChain(cap)
    chain.append(chain.accept("task", "hash", terms))
    return chain


def charge(chain: LedgerChain, key: str, samples: Any, body: bytes = b"bytes", task: str = "task") -> None:
    entry = chain.charge(task, key, body, np.asarray(samples), 0)
    if entry is not None:
        chain.append(entry, packed(np.asarray(samples)))


def test_a_sample_is_used_as_often_as_the_terms_say() -> None:
    chain = begun(pure(uses=2))
    charge(chain, "a", [0, 1])
    charge(chain, "b", [1, 2])
    assert chain.spent("task") == Promise(epsilon=1.0) and chain.left("task") == 0
    with pytest.raises(BudgetExhausted, match="used 2 of 2 times"):
        charge(chain, "c", [1, 3])
    charge(chain, "c", [0, 2, 3])  # others may still be used: disjoint batches compose in parallel
    assert chain.spent("task") == Promise(epsilon=1.0)
    # The device as a whole: three releases, three samples at once.
    assert chain.tasks["task"].of_device().pure == pytest.approx(3 * 3 * 0.5)


def test_a_release_that_counts_for_several_uses_takes_as_many() -> None:
    chain, samples = begun(pure(uses=3)), np.array([0, 1])
    entry = chain.charge("task", "a", b"bytes", samples, 0, uses=2)
    assert entry is not None and entry["uses"] == 2 and entry["most"] == 2
    raw = chain.append(entry, packed(samples))
    assert chain.spent("task") == Promise(epsilon=1.0) and chain.left("task") == 1
    assert chain.tasks["task"].releases == 1
    assert chain.tasks["task"].of_device().pure == pytest.approx(2 * 2 * 0.5)  # two uses, two samples at once
    with pytest.raises(BudgetExhausted, match="used 2 of 3 times"):
        chain.charge("task", "b", b"bytes", samples, 0, uses=2)
    charge(chain, "b", [1])
    again = begun(pure(uses=3))
    again.replay(raw, packed(samples))
    assert again.spent("task") == Promise(epsilon=1.0)


@pytest.mark.parametrize("kind", ["mixed", "gaussian"])
def test_counts_beside_gaussian_noise_are_kept_on_their_own_side(kind: FilterKind) -> None:
    """Discrete noise as in ledgers of before, and rounded noise."""
    noise = Event.of_rounded_gaussian(1.0, 50.0) if kind == "gaussian" else Event.of_discrete_gaussian(1.0, 50.0)
    event = noise.plus(Event.of_pure(1.0))
    limit = Filter(kind=kind, epsilon=event.times(3).epsilon(kind, 1e-5), delta=1e-5)
    terms = AcceptedTerms(unit="device", filter=limit, uses=3, event=event)
    chain = begun(terms)
    for key in "abc":
        charge(chain, key, NOBODY)
    assert chain.left("task") == 0
    # As zCDP alone the three counts would have cost more than the limit.
    assert event.times(3).epsilon("rdp", 1e-5) > limit.epsilon
    assert chain.spent("task").epsilon == pytest.approx(limit.epsilon, rel=1e-9)
    assert chain.agrees("task", "hash", terms)
    read = LedgerChain()
    read.replay(canonical(LedgerChain().accept("task", "hash", terms)))
    assert read.tasks["task"].terms == chain.tasks["task"].terms
    assert read.tasks["task"].terms.event.gaussian == (kind == "gaussian")
    with pytest.raises(TermsViolated, match="filter of a ledger"):
        LedgerChain().replay(canonical(LedgerChain().accept("task", "hash", terms) | {"filter": "other"}))


def test_a_release_bounded_as_a_whole_costs_a_device_the_same_for_any_number_of_rows() -> None:
    whole = [None, Event.of_pure(0.5), Event.of_pure(0.7), Event.of_rounded_gaussian(1.0, 10.0)]
    for device, epsilon in zip(whole, (1.5, 0.5, 0.7, math.inf), strict=True):
        terms = dataclasses.replace(pure(), device=device)
        chain = begun(terms)
        charge(chain, "a", [0, 1, 2])
        assert chain.tasks["task"].of_device().pure == pytest.approx(epsilon)
        assert (chain.tasks["task"].terms.device is None) == (device is None)
        assert chain.agrees("task", "hash", terms)


def test_counts_in_the_cost_of_a_device_are_not_taken_for_gaussian_noise() -> None:
    """A ledger keeps only the sums of that cost: with counts in them ρ is no longer μ²/2."""
    plain, both = Event.of_rounded_gaussian(1.0, 10.0), Event.of_rounded_gaussian(1.0, 10.0).plus(Event.of_pure(2.0))
    for device, known in ((plain, True), (both, False)):
        chain = begun(dataclasses.replace(pure(), device=device))
        charge(chain, "a", [0])
        spent = chain.tasks["task"].of_device()
        assert spent.gaussian == known
        assert spent.epsilon("rdp", 1e-5) >= device.epsilon("rdp", 1e-5)
        assert spent.promise(1e-5).epsilon >= device.promise(1e-5).epsilon


def test_no_filter_takes_other_noise_for_gaussian() -> None:
    terms = dataclasses.replace(
        pure(), event=Event.of_discrete_gaussian(1.0, 50.0), filter=Filter(kind="gaussian", epsilon=99.0, delta=1e-5)
    )
    with pytest.raises(TermsViolated, match="cost more"):
        begun(terms)


def test_a_device_is_charged_for_every_release() -> None:
    chain = begun(pure(uses=2, unit="device"))
    charge(chain, "a", NOBODY)
    charge(chain, "b", NOBODY)
    with pytest.raises(BudgetExhausted, match="2 of 2 releases"):
        charge(chain, "c", NOBODY)
    assert chain.spent("task") == Promise(epsilon=1.0)


def test_a_resend_is_free_and_other_bytes_are_refused() -> None:
    chain = begun(pure())
    charge(chain, "a", [0])
    before = chain.head, chain.length
    charge(chain, "a", [0])
    assert (chain.head, chain.length) == before and chain.spent("task").epsilon == 0.5
    with pytest.raises(TermsViolated, match="other bytes"):
        charge(chain, "a", [0], b"changed")


def test_terms_are_immutable_and_must_add_up() -> None:
    chain = begun(pure())
    with pytest.raises(TermsViolated, match="already accepted"):
        chain.accept("task", "hash", pure())
    with pytest.raises(TermsViolated, match="not those accepted"):
        chain.accept("task", "another", pure())
    with pytest.raises(TermsViolated, match="cost more"):
        chain.accept("dear", "hash", pure(uses=3, each=0.5, epsilon=1.4))
    with pytest.raises(TermsViolated, match="never accepted"):
        chain.charge("unknown", "a", b"", np.array([1]), 0)


def test_the_owners_cap_holds_over_all_tasks() -> None:
    chain = begun(pure(), Cap(epsilon=2.5, delta=1e-4))
    with pytest.raises(TermsViolated, match="the owner's cap"):
        chain.accept("second", "s", pure())
    charge(chain, "a", [0])
    chain.append(chain.close("task", public=True))
    chain.append(chain.accept("second", "s", pure()))  # the first counts 0.5 now, not 1.5
    with pytest.raises(BudgetExhausted, match="closed"):
        charge(chain, "b", [1])
    with pytest.raises(TermsViolated, match=r"δ = 0\.002"):
        LedgerChain(Cap(epsilon=9.0, delta=1e-4)).accept(
            "t",
            "s",
            AcceptedTerms(
                unit="sample",
                filter=Filter(kind="rdp", epsilon=2.0, delta=1e-3),
                uses=1,
                event=Event(pure=math.inf, rho=0.01),
            ),
        )


def test_a_task_that_did_not_end_in_public_goes_on_counting_with_its_whole_promise() -> None:
    """How many releases there were may say something about the rows; what is left must not be seen from outside."""
    for spent in (0, 1, 3):
        chain = begun(pure(), Cap(epsilon=2.5))
        for number in range(spent):
            charge(chain, f"k{number}", [0])
        chain.append(chain.close("task"))
        assert chain.tasks["task"].reserved() == Promise(epsilon=1.5)
        with pytest.raises(TermsViolated, match="the owner's cap"):
            chain.accept("second", "s", pure())
        with pytest.raises(TermsViolated, match="already closed"):
            chain.close("task", public=True)


def test_gaussian_releases_are_added_up_in_rho() -> None:
    chain = begun(gaussian(uses=4))
    for number in range(4):
        charge(chain, f"k{number}", [7])
    assert chain.spent("task") == Event(pure=math.inf, rho=float(decimal_up(0.01))).times(4).promise(1e-5)
    assert chain.spent("task").epsilon <= 2.0


def test_a_cost_that_is_proven_at_whole_orders_only_stays_so() -> None:
    event = Event(pure=math.inf, rho=0.25, whole=True)
    terms = AcceptedTerms(unit="device", filter=Filter(kind="rdp", epsilon=9.0, delta=1e-5), uses=4, event=event)
    chain = begun(terms)
    charge(chain, "a", NOBODY)
    assert chain.tasks["task"].terms == terms and chain.agrees("task", "hash", terms)
    assert chain.spent("task") == event.promise(1e-5) != Event(pure=math.inf, rho=0.25).promise(1e-5)


def test_samples_must_be_named_once_each() -> None:
    chain = begun(pure())
    for samples in ([1, 1], [-1], [1 << 31], NOBODY):
        with pytest.raises(ValueError):
            charge(chain, "a", samples)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True), max_size=30), st.integers(1, 4))
def test_no_course_of_events_passes_the_limit_and_a_replay_finds_the_same(batches: list[list[int]], uses: int) -> None:
    chain = begun(pure(uses=uses))
    kept = []
    counts: dict[int, int] = {}
    spent = [0.0]
    for number, batch in enumerate(batches):
        entry = None
        try:
            entry = chain.charge("task", str(number), b"b", np.array(batch), 0)
        except BudgetExhausted:
            assert max(counts.get(sample, 0) for sample in batch) == uses
            continue
        assert entry is not None
        kept.append((chain.append(entry, packed(np.array(batch))), packed(np.array(batch))))
        for sample in batch:
            counts[sample] = counts.get(sample, 0) + 1
        spent.append(chain.spent("task").epsilon)
    assert spent == sorted(spent) and spent[-1] <= uses * 0.5
    assert spent[-1] == 0.5 * max(counts.values(), default=0)
    again = begun(pure(uses=uses))
    for raw, samples in kept:
        again.replay(raw, samples)
    assert again.head == chain.head and again.spent("task") == chain.spent("task")


def test_entries_hold_integers_and_strings_only() -> None:
    with pytest.raises(TypeError):
        canonical({"epsilon": 0.5})
    with pytest.raises(TypeError):
        canonical({"yes": True})
    assert canonical({"z": 1, "a": "é"}) == b'{"a":"\\u00e9","z":1}'


@given(st.floats(1e-30, 1e6))
def test_costs_are_written_rounded_up(value: float) -> None:
    written = decimal_up(value)
    assert value <= float(written) <= value * (1 + 1e-10) and "e" not in written.lower()


def test_ledgers_of_before_still_open() -> None:
    """Entries that name no noise: nothing is taken for Gaussian, and they are written again as they were."""
    found = [case["entry"] for case in json.loads(VECTORS.read_text()) if case["entry"]["kind"] == "accept"]
    old = [entry for entry in found if "noise" not in entry]
    old.append(old[0] | {"task": "both", "filter": "mixed", "apart": "0.1", "rest": "0.1179"})
    assert {entry["filter"] for entry in old} == {"pure", "rdp", "mixed"} and len(found) == len(old) + 1
    for entry in found + old[-1:]:
        chain = LedgerChain()
        chain.replay(canonical(entry))
        terms = chain.tasks[entry["task"]].terms
        assert terms.event.gaussian == ("noise" in entry)
        # What was rounded up once is not rounded again.
        assert accepted(entry["task"], entry["task-hash"], terms).keys() == entry.keys()
        assert terms.filter.covers(terms.event)


def test_vectors() -> None:
    """The same entries, bytes and hashes in every runtime."""
    before = bytes(32)
    for case in json.loads(VECTORS.read_text()):
        raw = canonical(case["entry"])
        assert raw.decode() == case["raw"]
        before = next_hash(before, raw)
        assert before.hex() == case["hash"] == hashlib.sha256(bytes.fromhex(case["before"]) + raw).hexdigest()
