"""A dataset refuses parts that do not fit, and can be split anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput, Labels, Number
from crowdml.data import Dataset, resplit


def make(**changes: Any) -> Dataset:
    parts: dict[str, Any] = {
        "name": "toy",
        "train_rows": np.arange(12.0, dtype=np.float32).reshape(6, 2),
        "train_targets": np.array([0, 1, 0, 1, 0, 1], np.int32),
        "test_rows": np.arange(12.0, 16.0, dtype=np.float32).reshape(2, 2),
        "test_targets": np.array([0, 1], np.int32),
        "target": Labels(names=("even", "odd")),
    }
    return Dataset(**(parts | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"train_targets": np.zeros(5, np.int32)},
        {"test_rows": np.zeros((2, 3), np.float32)},
        {"train_rows": np.zeros(6, np.float32)},
        {"train_targets": np.full(6, 2, np.int32)},
        {"test_targets": np.array([-1, 0], np.int32)},
        {"train_owners": np.zeros(3, np.int32)},
    ],
)
def test_parts_must_fit_together(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="toy"):
        make(**changes)


def a_number(**changes: Any) -> Dataset:
    target = Number(low=0.0, high=10.0, bins=5)
    train, test = target.encode([0, 1, 3, 5, 9, 10]), target.encode([4, 6])
    return make(**({"train_targets": train, "test_targets": test, "target": target} | changes))


def test_labels_are_names_and_a_number_has_none() -> None:
    assert make().label_names == ("even", "odd") and make().classes == 2
    assert make().train_bins.tolist() == [0, 1, 0, 1, 0, 1]
    assert a_number().label_names == () and a_number().classes == 0
    assert a_number().train_bins.tolist() == [0, 0, 1, 2, 4, 4]


@pytest.mark.parametrize("targets", [np.arange(6, dtype=np.int32), np.full(6, 1.5, np.float32), np.full(6, np.nan)])
def test_numbers_must_be_encoded(targets: Any) -> None:
    with pytest.raises(ValueError, match="toy"):
        a_number(train_targets=targets)


def test_other_bounds_encode_the_same_numbers() -> None:
    wider = Number(low=-10.0, high=10.0)
    again = a_number(validation_targets=a_number().test_targets).with_target(wider)
    np.testing.assert_allclose(again.target.decode(again.train_targets), [0, 1, 3, 5, 9, 10], atol=1e-5)
    assert again.validation_targets is not None and again.public_targets is None
    np.testing.assert_allclose(wider.decode(again.validation_targets), [4, 6], atol=1e-5)
    assert make().with_target(Labels(names=("a", "b"))).label_names == ("a", "b")


def test_resplit_draws_each_row_once_and_keeps_its_label() -> None:
    again = resplit(make(train_owners=np.arange(6, dtype=np.int32)), 5, 3, np.random.default_rng(0))
    rows = np.concatenate([again.train_rows, again.test_rows])
    assert sorted(rows[:, 0].tolist()) == [0, 2, 4, 6, 8, 10, 12, 14]
    labels = np.concatenate([again.train_targets, again.test_targets])
    np.testing.assert_array_equal(labels, (rows[:, 0] / 2) % 2)
    assert again.train_owners is None


@pytest.mark.parametrize(("train", "test"), [(0, 1), (1, 0), (7, 2)])
def test_resplit_refuses_what_is_not_there(train: int, test: int) -> None:
    with pytest.raises(BadInput, match="8 rows"):
        resplit(make(), train, test, np.random.default_rng(0))
