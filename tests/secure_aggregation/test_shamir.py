from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.secure_aggregation import shamir
from crowdml.secure_aggregation.shamir import PRIME

SECRETS = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3)


@given(SECRETS, st.integers(1, 12), st.integers(0, 5), st.randoms())
@settings(max_examples=60, deadline=None)
def test_any_threshold_of_the_shares_give_the_secrets_back(
    secrets: list[bytes], threshold: int, more: int, random: Any
) -> None:
    points = np.array(random.sample(range(1, 5000), threshold + more), np.uint64)
    shares = shamir.split(secrets, points, threshold, os.urandom)
    chosen = random.sample(range(len(points)), threshold)
    for at, secret in enumerate(secrets):
        assert shamir.join(points[None, chosen], shares[None, chosen, at]) == [secret]


def test_many_secrets_are_joined_together() -> None:
    points = np.arange(1, 8, dtype=np.uint64)
    secrets = [os.urandom(32) for _ in range(20)]
    shares = shamir.split(secrets, points, 4, os.urandom)
    chosen = np.array([np.random.default_rng(at).permutation(7)[:4] for at in range(20)])
    picked = np.stack([shares[holder, at] for at, holder in enumerate(chosen)])
    assert shamir.join(points[chosen], picked) == secrets


def test_fewer_shares_fit_every_secret() -> None:
    """With one share less than the threshold, some last share leads to any secret whatever."""
    points = np.array([1, 2, 3], np.uint64)
    shares = shamir.split([bytes(32)], points, 3, os.urandom)[:, 0]
    other = shamir.to_limbs(bytes(range(32)))
    weights = shamir.at_zero(points[None])[0]
    known = (shamir.multiply(weights[0], shares[0]) + shamir.multiply(weights[1], shares[1])) % np.uint64(PRIME)
    last = shamir.multiply(shamir.subtract(other, known), shamir.invert(weights[2:3]))
    assert shamir.join(points[None], np.stack([shares[0], shares[1], last])[None]) == [bytes(range(32))]


def test_a_share_alone_is_uniform() -> None:
    """Chi-squared over 16 parts of the field, 4,500 draws: a false alarm in 1e-6."""
    from scipy.stats import chi2

    raw = [shamir.split([bytes(32)], np.array([7], np.uint64), 1, os.urandom) for _ in range(3)]
    assert all((share == 0).all() for share in raw)  # a threshold of 1 hides nothing, and says so
    shares = np.concatenate(
        [shamir.split([bytes(32)], np.array([7, 8], np.uint64), 2, os.urandom)[0].ravel() for _ in range(500)]
    )
    counts = np.bincount((shares // np.uint64(PRIME // 16 + 1)).astype(int), minlength=16)
    expected = len(shares) / 16
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 15)


def test_arithmetic_is_that_of_the_field() -> None:
    generator = np.random.default_rng(1)
    a, b = generator.integers(0, PRIME, (2, 500), dtype=np.uint64)
    assert shamir.multiply(a, b).tolist() == [int(x) * int(y) % PRIME for x, y in zip(a, b, strict=True)]
    assert shamir.subtract(a, b).tolist() == [(int(x) - int(y)) % PRIME for x, y in zip(a, b, strict=True)]
    assert (shamir.multiply(a, shamir.invert(a)) == (a > 0)).all()


def test_a_drawn_element_is_never_the_prime_itself() -> None:
    given_bytes = [b"\xff\xff\xff\xff" + bytes(4), bytes(range(4))]
    drawn = shamir.draw(lambda count: given_bytes.pop(0), 2)
    assert drawn.tolist() == [int.from_bytes(bytes(range(4)), "little"), 0]


def test_wrong_shares_are_noticed_or_give_another_secret() -> None:
    assert not shamir.are_shares(b"\xff" * shamir.SHARE_BYTES)
    assert not shamir.are_shares(bytes(5))
    assert shamir.are_shares(bytes(2 * shamir.SHARE_BYTES))
    assert shamir.from_limbs(np.full(shamir.LIMBS, PRIME - 1, np.uint64)) is None


@pytest.mark.parametrize("points", [[0, 1], [1, 1], [1, PRIME]])
def test_points_that_would_give_a_secret_away_are_refused(points: list[int]) -> None:
    with pytest.raises(ValueError, match="points"):
        shamir.split([bytes(32)], np.array(points, np.uint64), 2, os.urandom)


@pytest.mark.parametrize("threshold", [0, 3])
def test_a_threshold_is_within_the_shares(threshold: int) -> None:
    with pytest.raises(ValueError, match="threshold"):
        shamir.split([bytes(32)], np.array([1, 2], np.uint64), threshold, os.urandom)
