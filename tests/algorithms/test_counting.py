"""Counting: errors over the counted rows, labels over all real rows, noise on these two only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.counting import Counting, is_low
from crowdml.core import NUMPY, Batch, Ops
from crowdml.privacy.plan import Statistics
from crowdml.simulation.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)


class Given:
    """Coins that give 1, 2, 3, … and note the scales asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        self.asked[stage] = scale
        return np.arange(1, int(np.prod(shape)) + 1, dtype=np.int32).reshape(shape)


def counting(ops: Ops, error_scale: float = 0.0, label_scale: float = 0.0) -> Counting:
    return Counting(classes=3, noise=Statistics(error_scale=error_scale, label_scale=label_scale), ops=ops)


def batch(ops: Ops) -> Batch:
    return Batch(
        rows=ops.xp.zeros((5, 1)),
        labels=ops.xp.asarray([0, 2, 2, 1, 1], dtype="int32"),
        mask=ops.xp.asarray([1, 1, 1, 1, 0], dtype="float32"),
    )


def plain(tree: Any) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in tree.items()}


@BOTH
def test_counts_by_hand(ops: Ops) -> None:
    wrong = ops.xp.asarray([True, True, False, True, True])
    made = counting(ops).count(batch(ops), wrong, ops.xp.asarray([0, 1, 1, 0, 0], dtype="float32"))
    assert plain(made) == {"rows": 4, "counted": 2, "errors": 1, "labels": [1, 1, 2]}
    assert all(leaf.dtype == np.int32 for leaf in made.values())


@BOTH
def test_a_batch_of_padding_counts_nothing(ops: Ops) -> None:
    nobody = Batch(rows=ops.xp.zeros((2, 1)), labels=ops.xp.zeros(2, dtype="int32"), mask=ops.xp.zeros(2))
    made = counting(ops).count(nobody, ops.xp.asarray([True, True]), nobody.mask)
    assert plain(made) == plain(counting(ops).empty()) == {"rows": 0, "counted": 0, "errors": 0, "labels": [0, 0, 0]}


@BOTH
def test_noise_goes_to_errors_and_labels_only(ops: Ops) -> None:
    coins = Given()
    counts = {
        "rows": ops.xp.int32(4), "counted": ops.xp.int32(2), "errors": ops.xp.int32(1),
        "labels": ops.xp.asarray([1, 1, 2], dtype="int32"),
    }  # fmt: skip
    made = counting(ops, error_scale=2.0, label_scale=7.0).sanitise(counts, coins)  # type: ignore[arg-type]
    assert plain(made) == {"rows": 4, "counted": 2, "errors": 2, "labels": [2, 3, 5]}
    assert coins.asked == {"counts/errors": 2.0, "counts/labels": 7.0}
    assert int(counts["errors"]) == 1


def test_without_noise_no_coins_are_asked() -> None:
    coins = Given()
    counts = counting(NUMPY).empty()
    assert counting(NUMPY).sanitise(counts, coins) == counts  # type: ignore[arg-type]
    assert coins.asked == {}


@BOTH
def test_sums_and_the_estimated_error(ops: Ops) -> None:
    own = counting(ops)
    assert float(own.error(own.empty())) == 1.0
    one = {"rows": 4, "counted": 3, "errors": 1, "labels": [1, 1, 2]}
    tree = {name: ops.xp.asarray(value, dtype="int32") for name, value in one.items()}
    twice = own.add(own.add(own.empty(), tree), tree)
    assert plain(twice) == {"rows": 8, "counted": 6, "errors": 2, "labels": [2, 2, 4]}
    assert float(own.error(twice)) == pytest.approx(1 / 3, rel=1e-6)
    assert own.error(twice).dtype == ops.wide


@BOTH
@pytest.mark.parametrize(("counted", "errors", "low"), [(9, 0, False), (10, 2, True), (10, 3, False), (100, 20, True)])
def test_the_rule_of_error_below(ops: Ops, counted: int, errors: int, low: bool) -> None:
    totals = {"counted": ops.xp.int32(counted), "errors": ops.xp.int32(errors)}
    assert bool(is_low(totals, error_below=0.25, error_rows=10)) == low
