"""Random features: fixed for ever, blind to mirrors and brightness, and good for something."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.data import Dataset, apply_all
from crowdml.data.transforms import Pca, RandomFeatures, Standardise
from crowdml.data.transforms.random_features import PATCHES, bank


def pictures(count: int = 3) -> np.ndarray:
    """Smooth pictures of random blobs, as bytes."""
    generator = np.random.RandomState(0)
    coarse = generator.randint(0, 256, (count, 8, 8, 3))
    return np.kron(coarse, np.ones((1, 4, 4, 1))).astype(np.uint8).reshape(count, -1)


def apply(rows: np.ndarray) -> np.ndarray:
    return RandomFeatures(filters=16).fit(rows).apply(rows)


def test_the_filters_never_change() -> None:
    assert bank(6, 3, 16).shape == (108, 16)
    assert float(np.abs(bank(6, 3, 16)).sum()) == pytest.approx(433.66418, rel=1e-5)


def test_filters_do_not_answer_to_a_constant() -> None:
    for patch in PATCHES:
        np.testing.assert_allclose(bank(patch, 3, 16).sum(axis=0), 0, atol=1e-5)


def test_shape_sign_and_determinism() -> None:
    rows = pictures()
    features = apply(rows)
    assert features.shape == (3, 12 * 16) and features.dtype == np.float32
    assert (features >= 0).all() and features.std() > 0
    np.testing.assert_array_equal(features, apply(rows))
    np.testing.assert_allclose(apply(rows[1:2]), features[1:2], rtol=1e-4, atol=1e-5)


def test_mirrors_and_brightness_make_no_difference() -> None:
    rows = pictures()
    features = apply(rows)
    mirrored = rows.reshape(-1, 32, 32, 3)[:, :, ::-1].reshape(len(rows), -1)
    np.testing.assert_allclose(apply(mirrored), features, atol=2e-3)
    np.testing.assert_allclose(apply(rows.astype(np.float32) + 40), features, atol=2e-3)
    turned = rows.reshape(-1, 32, 32, 3)[:, ::-1].reshape(len(rows), -1)
    assert np.abs(apply(turned) - features).max() > 0.05, "up and down do matter"


def test_flat_pictures_give_zeros() -> None:
    np.testing.assert_array_equal(apply(np.full((1, 3072), 200, np.uint8)), 0)


def test_grey_pictures_and_wrong_sizes() -> None:
    grey = RandomFeatures(size=28, colours=1, filters=8)
    assert grey.fit(np.zeros((1, 784))).apply(np.zeros((2, 784))).shape == (2, 96)
    with pytest.raises(BadInput, match="784 features"):
        grey.fit(np.zeros((1, 784))).apply(np.zeros((1, 3072)))


@pytest.mark.slow
def test_they_beat_pixels_by_far(full: Callable[[str], Dataset]) -> None:
    """Least squares on 100 components: a quick stand-in for a linear classifier."""
    data = full("cifar10")
    small = dataclasses.replace(
        data,
        train_rows=data.train_rows[:6000],
        train_targets=data.train_targets[:6000],
        test_rows=data.test_rows[:2000],
        test_targets=data.test_targets[:2000],
    )

    def error(*chain: RandomFeatures | Pca | Standardise) -> float:
        ready = apply_all(chain, small)
        targets = np.eye(10, dtype=np.float32)[ready.train_targets]
        weights, *_ = np.linalg.lstsq(ready.train_rows, targets - 0.1, rcond=None)
        return float(((ready.test_rows @ weights).argmax(axis=1) != ready.test_targets).mean())

    assert error(RandomFeatures(), Pca(components=100)) < 0.48 < 0.58 < error(Pca(components=100))
