"""A masked vector looks like nothing: tests of uniformity, each with its rate of false alarms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from crowdml.secure_aggregation.masked_vectors import unpack

ALARM = 1e-6
"""Each test below fails by chance this often; there are six of them."""


@pytest.fixture(scope="module")
def uploads() -> Any:
    """Uploads of the same vector, all zeros, by eight members in two attempts."""
    from crowdml.secure_aggregation import SumTerms, bits_for
    from tests.support.rehearsal import Members, Rehearsal

    members, slots, size = Members("t"), list(range(8)), 20_000
    terms = SumTerms(task="t", size=size, bits=bits_for(8, 1000), largest=1000, invited=8, least=6, corrupt=0)
    found = []
    for attempt in (1, 2):
        crowd = Rehearsal(terms, members, slots, attempt=attempt)
        crowd.greet()
        crowd.settle()
        crowd.exchange()
        crowd.upload({slot: np.zeros(size, np.int64) for slot in slots})
        found += [unpack(crowd.bodies[slot][: terms.body_bytes], size, terms.bits) for slot in slots]
    return np.array(found), terms.bits


def test_values_are_uniform(uploads: Any) -> None:
    found, bits = uploads
    counts = np.bincount(found.reshape(-1) >> np.uint32(bits - 8), minlength=256)
    expected = found.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(ALARM, 255)


def test_low_bits_are_uniform(uploads: Any) -> None:
    found, _ = uploads
    counts = np.bincount(found.reshape(-1) & np.uint32(255), minlength=256)
    expected = found.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(ALARM, 255)


def test_every_bit_is_a_fair_coin(uploads: Any) -> None:
    found, bits = uploads
    ones = np.array([int((found >> np.uint32(bit) & np.uint32(1)).sum()) for bit in range(bits)])
    assert (((ones - found.size / 2) ** 2) / (found.size / 4)).sum() < chi2.isf(ALARM, bits)


def test_one_value_after_the_other_is_independent(uploads: Any) -> None:
    found, bits = uploads
    top = (found >> np.uint32(bits - 4)).astype(int)
    pairs = np.bincount((top[:, :-1] * 16 + top[:, 1:]).reshape(-1)[::2], minlength=256)
    expected = pairs.sum() / 256
    assert ((pairs - expected) ** 2 / expected).sum() < chi2.isf(ALARM, 255)


def test_uploads_of_two_members_and_of_two_attempts_differ_uniformly(uploads: Any) -> None:
    """Pad reuse would make the differences of equal vectors zero."""
    found, bits = uploads
    differences = (found - np.roll(found, 8, axis=0)) & np.uint32((1 << bits) - 1)
    counts = np.bincount(differences[:8].reshape(-1) >> np.uint32(bits - 8), minlength=256)
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(ALARM, 255)


def test_the_distribution_as_a_whole_is_uniform(uploads: Any) -> None:
    found, bits = uploads
    assert kstest((found.reshape(-1)[:100_000] + 0.5) / (1 << bits), "uniform").pvalue > ALARM
