"""Counts of uses: whatever the order of adding and asking, the same as a plain count."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crowdml.privacy.ledger.spending import UsesState, packed

BATCHES = st.lists(st.lists(st.integers(0, 400), max_size=6, unique=True), max_size=25)


@given(BATCHES, st.sets(st.integers(0, 24)))
def test_counts_are_plain_counts(batches: list[list[int]], asked: set[int]) -> None:
    uses, plain = UsesState(), Counter[int]()
    for number, batch in enumerate(batches):
        uses.add(packed(np.array(batch, int)))
        plain.update(batch)
        if number in asked:
            assert uses.of(np.array(batch, int)) == max((plain[sample] for sample in batch), default=0)
    assert uses.most() == max(plain.values(), default=0)
    for sample in range(402):
        assert uses.of(np.array([sample])) == plain[sample]


def test_few_uses_in_a_long_table() -> None:
    uses = UsesState()
    uses.add(packed(np.arange(100_000)))
    assert uses.most() == 1
    uses.add(packed(np.array([5, 7])))
    uses.add(packed(np.array([7, 200_000])))
    assert uses.of(np.array([7])) == 3 and uses.of(np.array([200_000, 6])) == 1 and uses.most() == 3


@given(st.lists(st.none() | st.lists(st.integers(0, 20), max_size=4, unique=True), max_size=12))
def test_whatever_was_forgotten_counts_as_the_most_used_sample_did(events: list[list[int] | None]) -> None:
    """Also where it is forgotten a second time: what counted before is never given back."""
    uses, floor, plain = UsesState(), 0, Counter[int]()
    for event in events:
        if event is None:
            uses.forget()
            floor, plain = floor + max(plain.values(), default=0), Counter()
        else:
            uses.add(packed(np.array(event, int)))
            plain.update(event)
        assert uses.most() == floor + max(plain.values(), default=0)
        assert uses.each(np.arange(22)).tolist() == [floor + plain[sample] for sample in range(22)]
