"""Rounding of stable steps: what double precision adds is allowed for, and where it is not, nothing is claimed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.stability import LARGEST, SMALLEST, UNIT
from crowdml.core import NUMPY, Batch, trees
from crowdml.privacy.noise.grid import make_fine_grid, to_levels
from crowdml.privacy.sanitisers.walks import LONGEST, Stable
from tests.support.plans import update_of
from tests.support.stable import CASES, Given, Neighbours, Setting, at_rate, case_name, sound, walk_of


@pytest.mark.parametrize("part", [1, 7, 64])
@pytest.mark.parametrize("features", [3, 784])
def test_a_product_of_matrices_gives_a_row_the_same_whatever_the_other_rows_are(features: int, part: int) -> None:
    """What the proof assumes of NumPy: outputs at the broadcast are the same on both devices, bit for bit."""
    rng = np.random.default_rng(part)
    for outputs in (1, 2, 10, 33):
        w, rows = rng.standard_normal((outputs, features)) * 1e5, rng.standard_normal((part, features))
        other = rows.copy()
        other[-1] = rng.standard_normal(features) * 1e9
        np.testing.assert_array_equal((w @ rows.T)[:, :-1], (w @ other.T)[:, :-1])


@pytest.mark.parametrize(
    "case",
    [
        *CASES,
        Setting(regularisation=0.5, row=30.0, part=100, features=300),
        Setting(row=1e-6),
        Setting(regularisation=1.0, row=1e-3),  # all but the regulariser is small: the walked distance shows
    ],
    ids=case_name,
)
def test_rounding_is_allowed_for_term_by_term(case: Setting) -> None:
    """What each kind of operation may be off by, worked out here anew for the worst parameters; twice for two devices.

    None of these is ever reached by rows that a test could find, so they are compared one by one.
    """
    setting = replace(at_rate(case, None), count=50, epochs=1, recipe="local-sgd")
    stable = update_of(sound(setting.task())).stable
    assert stable is not None and stable.steps == 50
    eta, c, long, d = setting.rate, setting.steepest, math.hypot(setting.row, setting.bias), setting.features
    curvature = {"softmax": 0.5, "logistic": 0.25, "huber": 1.0}[setting.kind]
    # As far as gradients push if all go one way, and as far as a regulariser draws, at most to the other side of zero.
    walked = 50 * eta * c + min(50 * eta * setting.regularisation, 2.0) * LONGEST
    terms = {
        "outputs at the walked distance": eta * long * curvature * (d + setting.bias) * walked * long,
        "outputs far away": eta * long * curvature * (LONGEST + walked) * long,
        "largest output": eta * long * curvature * 2 * math.sqrt(setting.outputs) * (LONGEST + walked) * long,
        "slope": eta * long * (setting.outputs + 20),
        "mean": eta * (setting.part + 2) * c,
        "regulariser": eta * 4 * setting.regularisation * LONGEST,
        "step": walked,
    }
    each = {what: 2 * 50 * UNIT * term for what, term in terms.items()}
    assert sum(each.values()) <= stable.rounding <= 1.5 * sum(each.values()), each
    assert stable.rounding < 0.1 * stable.moved


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        (Setting(rate=SMALLEST / 2), "the rate is so small that what it moves would underflow"),
        (Setting(row=SMALLEST / 2, rate=1.0), "rows are so short"),
        (Setting(row=LARGEST * 2, rate=1e-89), "rows are so long"),
        (Setting(regularisation=SMALLEST / 2), "the regulariser is so weak"),
        (Setting(regularisation=LARGEST * 2, rate=1e-90), "the regulariser is so strong"),
        (Setting(part=1 << 21), "so many rows are added up"),
        (Setting(clip=1e-290), "a level is no normal number"),
        (Setting(row=1e7, rate=1e-20, count=100), "rounding would be a tenth of what a sample moves"),
        (Setting(row=1e4, rate=1e-20, recipe="fedavg", part=100), "too few steps would be proven for a device"),
        (Setting(recipe="fedavg", epochs=1 << 21, part=1), "no device could go through one row so often"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_rounding_is_not_proven_to_be_small_the_bound_on_the_whole_message_stands(
    setting: Setting, why: str
) -> None:
    made = sound(setting.task())
    assert update_of(made).stable is None, why
    assert made.last.cost(1) == made.last.cost(1, 100)


@pytest.mark.parametrize("clip", [1e-250, 1e-40, 3e43, 7e48, 1e49, 1e200])
def test_a_huge_clip_or_a_tiny_one_makes_a_level_no_longer_or_shorter(clip: float) -> None:
    """In single precision the factor from lengths to levels would be off by as much as itself."""
    grid = make_fine_grid(10, clip)
    vector = np.full((1, grid.size), clip / 10)
    levels = to_levels(grid, vector, NUMPY)
    np.testing.assert_allclose(levels * grid.step, vector, rtol=1e-12)


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="no wider numbers here")
@pytest.mark.parametrize("case", [case for case in CASES if case.recipe == "local-sgd"], ids=case_name)
def test_rounding_of_the_walk_is_within_what_the_proof_allows(case: Setting, record_property: Any) -> None:
    """Against the same walk with more digits, from broadcasts whose own products are exact."""
    setting, rng = replace(at_rate(case, None), count=4, part=8, features=40), np.random.default_rng(3)
    walk, worst = walk_of(setting), 0.0
    for size in (0.0, 1.0, 8.0, 2.0**19):
        # All outputs are large, and near to each other: a softmax is not sure, and its sums are rounded coarsely.
        w = np.zeros((setting.outputs, setting.features + setting.bias))
        w[:, 0] = size
        rows, labels = rng.standard_normal((32, setting.features)) / 20, rng.integers(0, 2, 32)
        rows[:, 0] = 0.5
        pair = Neighbours(w=w, rows=rows, labels=labels, row=rows[-1], label=0)
        batch, _ = pair.batches(setting)
        found, _, _ = walk.take(pair.broadcast(setting.bias), (), np.int32(1), batch, Given(0))
        exact = _walked_with_more_digits(walk, pair.broadcast(setting.bias), batch)
        off = sum(float(((a - b) ** 2).sum()) for a, b in zip(trees.leaves(found), exact, strict=True)) ** 0.5
        worst = max(worst, 2 * off / walk.stable.rounding)
    record_property("nearest", worst)
    print(f"rounding came to {worst:.3g} of what is allowed for it")
    assert (5e-4 if case.kind == "softmax" else 1e-8) < worst <= 1
    assert walk.stable.rounding < 1e-3 * walk.stable.moved and np.finfo(float).eps == 2 * UNIT


def _walked_with_more_digits(walk: Stable, broadcast: Any, batch: Batch) -> list[Any]:
    def wide(leaf: Any) -> Any:
        return leaf.astype(np.longdouble)

    origin, bounded = trees.map(wide, walk.near(broadcast)), walk.bounded(batch)
    walked, eta = trees.map(np.zeros_like, origin), wide(walk.eta(np.int32(1)))
    for at in range(0, len(bounded.mask), walk.work.size):
        some = slice(at, at + walk.work.size)
        part = Batch(rows=wide(bounded.rows[some]), targets=bounded.targets[some], mask=wide(bounded.mask[some]))
        slope = walk.gradient(origin, walked, part)
        walked = trees.map(lambda old, new: old - new * eta, walked, slope)
    return trees.leaves(walked)
