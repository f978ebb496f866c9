"""A dataset refuses parts that do not fit, and can be split anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.data import Dataset, resplit


def make(**changes: Any) -> Dataset:
    parts: dict[str, Any] = {
        "name": "toy",
        "train_rows": np.arange(12.0, dtype=np.float32).reshape(6, 2),
        "train_labels": np.array([0, 1, 0, 1, 0, 1], np.int32),
        "test_rows": np.arange(12.0, 16.0, dtype=np.float32).reshape(2, 2),
        "test_labels": np.array([0, 1], np.int32),
        "label_names": ("even", "odd"),
    }
    return Dataset(**(parts | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"train_labels": np.zeros(5, np.int32)},
        {"test_rows": np.zeros((2, 3), np.float32)},
        {"train_rows": np.zeros(6, np.float32)},
        {"train_labels": np.full(6, 2, np.int32)},
        {"test_labels": np.array([-1, 0], np.int32)},
        {"train_owners": np.zeros(3, np.int32)},
    ],
)
def test_parts_must_fit_together(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="toy"):
        make(**changes)


def test_resplit_draws_each_row_once_and_keeps_its_label() -> None:
    again = resplit(make(train_owners=np.arange(6, dtype=np.int32)), 5, 3, np.random.default_rng(0))
    rows = np.concatenate([again.train_rows, again.test_rows])
    assert sorted(rows[:, 0].tolist()) == [0, 2, 4, 6, 8, 10, 12, 14]
    labels = np.concatenate([again.train_labels, again.test_labels])
    np.testing.assert_array_equal(labels, (rows[:, 0] / 2) % 2)
    assert again.train_owners is None


@pytest.mark.parametrize(("train", "test"), [(0, 1), (1, 0), (7, 2)])
def test_resplit_refuses_what_is_not_there(train: int, test: int) -> None:
    with pytest.raises(BadInput, match="8 rows"):
        resplit(make(), train, test, np.random.default_rng(0))
