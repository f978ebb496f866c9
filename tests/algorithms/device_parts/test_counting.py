"""Counting: errors over the counted rows, targets over all real rows, noise on these two only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.device_parts.gradient import Counting, estimated_error, is_low
from crowdml.core import NUMPY, Batch, Ops, Tally
from crowdml.core.ops import ZeroCoins
from crowdml.core.targets import Labels
from crowdml.privacy.noise.counts import CountNoise
from crowdml.simulation.engine.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)


class Given:
    """Coins that give 1, 2, 3, … and note the scales asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        self.asked[stage] = scale
        return np.arange(1, int(np.prod(shape)) + 1, dtype=np.int32).reshape(shape)


def counting(ops: Ops) -> Counting:
    return Counting(target=Labels(names=("a", "b", "c")), ops=ops)


def batch(ops: Ops) -> Batch:
    return Batch(
        rows=ops.xp.zeros((5, 1)),
        targets=ops.xp.asarray([0, 2, 2, 1, 1], dtype="int32"),
        mask=ops.xp.asarray([1, 1, 1, 1, 0], dtype="float32"),
    )


def tally(ops: Ops, rows: int, counted: int, errors: int, spread: list[int]) -> Tally:
    whole = ops.xp.int32
    return Tally(
        rows=whole(rows),
        counted=whole(counted),
        errors=whole(errors),
        spread=ops.xp.asarray(spread, dtype="int32"),
    )


def plain(made: Any) -> dict[str, Any]:
    return {name: np.asarray(getattr(made, name)).tolist() for name in ("rows", "counted", "errors", "spread")}


@BOTH
def test_counts_by_hand(ops: Ops) -> None:
    predicted = ops.xp.asarray([1, 0, 2, 0, 0])  # only the third is right
    marked = ops.xp.asarray([0, 1, 1, 0, 0], dtype="float32")
    made = counting(ops).count(batch(ops), predicted, marked, ZeroCoins())
    assert plain(made) == {"rows": 4, "counted": 2, "errors": 1, "spread": [1, 1, 2]}
    assert all(leaf.dtype == np.int32 for leaf in (made.rows, made.counted, made.errors, made.spread))


@BOTH
def test_a_batch_of_padding_counts_nothing(ops: Ops) -> None:
    nobody = Batch(rows=ops.xp.zeros((2, 1)), targets=ops.xp.zeros(2, dtype="int32"), mask=ops.xp.zeros(2))
    made = counting(ops).count(nobody, ops.xp.asarray([1, 1]), nobody.mask, ZeroCoins())
    assert plain(made) == plain(counting(ops).empty()) == {"rows": 0, "counted": 0, "errors": 0, "spread": [0, 0, 0]}


@BOTH
def test_noise_goes_to_errors_and_targets_only(ops: Ops) -> None:
    coins, counts = Given(), tally(ops, 4, 2, 1, [1, 1, 2])
    made = CountNoise(errors=2.0, spread=7.0).add(counts, {}, coins)  # type: ignore[arg-type]
    assert plain(made) == {"rows": 4, "counted": 2, "errors": 2, "spread": [2, 3, 5]}
    assert coins.asked == {"counts/errors": 2.0, "counts/labels": 7.0}
    assert int(counts.errors) == 1


def test_a_driver_hands_in_each_devices_scales() -> None:
    coins, noise = Given(), CountNoise(errors=2.0, spread=7.0)
    given = {name: 10 * scale for name, scale in noise.scales.items()}
    noise.add(tally(NUMPY, 4, 2, 1, [1, 1, 2]), given, coins)  # type: ignore[arg-type]
    assert coins.asked == {"counts/errors": 20.0, "counts/labels": 70.0}


def test_without_noise_no_coins_are_asked() -> None:
    coins = Given()
    counts = counting(NUMPY).empty()
    assert plain(CountNoise().add(counts, {}, coins)) == plain(counts)  # type: ignore[arg-type]
    assert coins.asked == {}


@BOTH
def test_sums_and_the_estimated_error(ops: Ops) -> None:
    made = counting(ops)
    assert float(estimated_error(made.empty(), ops)) == 1.0
    one = tally(ops, 4, 3, 1, [1, 1, 2])
    twice = made.add(made.add(made.empty(), one), one)
    assert plain(twice) == {"rows": 8, "counted": 6, "errors": 2, "spread": [2, 2, 4]}
    assert float(estimated_error(twice, ops)) == pytest.approx(1 / 3, rel=1e-6)
    assert estimated_error(twice, ops).dtype == ops.wide


@BOTH
@pytest.mark.parametrize(("counted", "errors", "low"), [(9, 0, False), (10, 2, True), (10, 3, False), (100, 20, True)])
def test_the_rule_of_error_below(ops: Ops, counted: int, errors: int, low: bool) -> None:
    totals = tally(ops, counted, counted, errors, [0, 0, 0])
    assert bool(is_low(totals, error_below=0.25, error_rows=10)) == low
