"""Targets: what comes in is encoded or refused, what is counted adds at most 1 per row, what is measured is by hand."""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.core import NUMPY, BadInput, Labels, Number, Ops, Target, ZeroCoins
from crowdml.simulation.engine.jax_ops import JAX

# isort: split
import jax

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
PETS = Labels(names=("cat", "dog", "fish"))
HEAT = Number(low=10.0, high=30.0, bins=4, name="temperature", unit="°C")
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)


class Drawn(ZeroCoins):
    """Uniform draws as given."""

    def __init__(self, *draws: float) -> None:
        super().__init__()
        self.draws, self.stages = np.array(draws, np.float32), list[str]()

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        self.stages.append(stage)
        assert shape == self.draws.shape
        return self.draws


def encoded(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("value", "number"),
    [("dog", 1), (" dog ", 1), (2, 2), (np.int64(0), 0), (np.uint8(1), 1), (1.0, 1), (np.float32(2), 2)],
)
def test_a_label_is_a_name_or_a_number(value: Any, number: int) -> None:
    assert PETS.parse(value) == number


@pytest.mark.parametrize("names", [("1", "2", "3"), ("1", "0"), ("-1", "1")])
def test_where_names_are_numbers_a_number_is_a_name(names: tuple[str, ...]) -> None:
    labels = Labels(names=names)
    for value in (str, int, float, np.int64, np.float32):
        assert [labels.parse(value(name)) for name in names] == list(range(len(names)))
    assert labels.parse_all([*map(float, names), *map(int, names)], str).tolist() == [*range(len(names))] * 2
    with pytest.raises(BadInput, match=r"row 1: '7' is not a label\n  choose one of"):
        labels.parse(7, "row 1")


def test_truth_is_the_name_that_is_written_so() -> None:
    assert [Labels(names=("True", "False")).parse(value) for value in (False, np.bool_(True))] == [1, 0]


@pytest.mark.parametrize(
    ("value", "what", "hint"),
    [
        ("dgo", "'dgo' is not a label", 'did you mean "dog"?'),
        ("1", "'1' is not a label", "choose one of"),
        (3, "label 3 is not a number from 0 to 2", ""),
        (-1, "label -1 is not a number from 0 to 2", ""),
        (1.5, "1.5 is not a label", "a whole number"),
        (math.nan, "nan is not a label", "a whole number"),
        (np.float32(math.inf), "np.float32(inf) is not a label", "a whole number"),
        (3.0, "label 3 is not a number from 0 to 2", ""),
        (True, "True is not a label", "a whole number"),
        (None, "None is not a label", "a name"),
    ],
)
def test_what_is_no_label_is_refused_with_its_place(value: Any, what: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        PETS.parse(value, "a.csv, line 7")
    assert caught.value.what == what and caught.value.where == "a.csv, line 7" and hint in caught.value.hint


@pytest.mark.parametrize(
    ("value", "found"),
    [("15", -0.5), (" 30.0 ", 1.0), (20, 0.0), (np.float32(10), -1.0), ("-1e9", -1.0), (1e300, 1.0), ("2.5e1", 0.5)],
)
def test_a_number_is_read_and_clipped_to_its_bounds(value: Any, found: float) -> None:
    assert HEAT.parse(value) == found


@pytest.mark.parametrize("value", ["warm", "", None, [1.0], "nan", math.inf, "-inf", True, np.bool_(False)])
def test_what_is_no_finite_number_is_refused_with_what_would_be_right(value: Any) -> None:
    with pytest.raises(BadInput, match=r"not a (finite )?number") as caught:
        HEAT.parse(value, "a.csv, line 7")
    assert caught.value.where == "a.csv, line 7"
    assert caught.value.hint == "temperature in °C, from 10 to 30; values beyond count as 10 or 30"


def test_targets_have_their_type() -> None:
    assert PETS.encode(np.array([2, 0], np.uint8)).dtype == PETS.dtype == np.int32
    assert HEAT.encode([11, 12]).dtype == HEAT.dtype == np.float32


@pytest.mark.parametrize("values", [[0, 3], [-1], [0.5], [np.nan]])
def test_class_numbers_that_are_none_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="labels must"):
        PETS.encode(values)


@pytest.mark.parametrize("values", [[math.nan], [1.0, math.inf]])
def test_numbers_that_are_not_finite_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        HEAT.encode(values)


@given(st.floats(-1e30, 1e30), st.floats(1e-3, 1e30), st.floats(-0.5, 1.5))
def test_what_is_encoded_lies_in_range_and_comes_back(low: float, width: float, share: float) -> None:
    high = low + max(width, abs(low) * 1e-6)
    target = Number(low=low, high=high)
    value = low + share * (high - low)
    found = target.encode([value])
    assert -1 <= found[0] <= 1 and not target.problem(found)
    back = target.decode(found)[0]
    assert low <= back + 1e-6 * (high - low) and back <= high + 1e-6 * (high - low)
    assert abs(back - min(max(value, low), high)) <= 1e-6 * (high - low)


def test_the_ends_are_exact() -> None:
    assert HEAT.encode([10, 30]).tolist() == [-1, 1] and HEAT.decode(encoded(-1, 1, 7)).tolist() == [10, 30, 30]
    assert (HEAT.middle, HEAT.half_range) == (20, 10)
    assert HEAT.outside([9.99, 10, 30, 31]) == 2


@pytest.mark.parametrize(
    "given",
    [
        {"low": 1.0, "high": 1.0},
        {"low": 2.0, "high": 1.0},
        {"low": math.nan, "high": 1.0},
        {"low": 0, "high": math.inf},
    ],
)
def test_bounds_with_nothing_between_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="low below high"):
        Number(**given)  # type: ignore[arg-type]


def test_bounds_that_are_one_number_and_one_bin_are_refused() -> None:
    with pytest.raises(ValueError, match="too close"):
        Number(low=0.0, high=5e-324)
    with pytest.raises(ValueError, match="at least 2 bins"):
        Number(low=0.0, high=1.0, bins=1)


def test_encoded_targets_are_checked() -> None:
    assert PETS.problem(np.array([0, 2])) == "" and "0..2" in PETS.problem(np.array([0, 3]))
    assert HEAT.problem(encoded(-1, 1)) == "" and HEAT.problem(encoded()) == ""
    assert "int32" in HEAT.problem(np.array([0, 1], np.int32))
    for wrong in (1.01, -1.01, math.nan):
        assert "from -1 to 1" in HEAT.problem(encoded(0, wrong))


@BOTH
def test_cleaning_brings_anything_into_range(ops: Ops) -> None:
    assert ops.xp.asarray(PETS.clean(ops.xp.asarray([-5, 1, 99]), ops)).tolist() == [0, 1, 2]
    wild = ops.xp.asarray(encoded(math.nan, math.inf, -math.inf, 3e38, -1.5, 0.25))
    clean: Any = functools.partial(HEAT.clean, ops=ops)
    clean = jax.jit(clean) if ops is JAX else clean
    assert clean(wild).tolist() == [0, 1, -1, 1, -1, 0.25]
    assert clean(wild).dtype == np.float32


@BOTH
@pytest.mark.parametrize("target", [PETS, HEAT])
def test_every_row_is_in_exactly_one_bin(target: Target, ops: Ops) -> None:
    targets = ops.xp.asarray([0, 2, 1, 1] if target is PETS else encoded(-1, -0.5, 0.49, 1))
    spread = np.asarray(target.spread(targets, ops))
    assert spread.shape == (target.bins, 4) and spread.dtype == np.float32
    np.testing.assert_array_equal(spread.sum(axis=0), np.ones(4))
    np.testing.assert_array_equal(spread.argmax(axis=0), [0, 2, 1, 1] if target is PETS else [0, 1, 2, 3])
    np.testing.assert_array_equal(target.bin_of(targets, ops), spread.argmax(axis=0))


@given(st.lists(FLOATS, min_size=1, max_size=9))
def test_even_a_wild_target_is_in_one_bin_once_it_is_clean(values: list[float]) -> None:
    assert (HEAT.spread(HEAT.clean(encoded(*values), NUMPY), NUMPY).sum(axis=0) == 1).all()


def test_bins_have_names() -> None:
    assert PETS.bin_names == PETS.names
    assert HEAT.bin_names == ("10 to 15", "15 to 20", "20 to 25", "25 to 30")
    assert len(Number(low=0.0, high=1.0).bin_names) == 10


def test_a_label_is_wrong_without_a_coin() -> None:
    coins = Drawn()
    assert PETS.wrong(np.array([0, 1]), np.array([0, 2]), coins, NUMPY).tolist() == [False, True]
    assert coins.stages == []


def test_a_number_is_wrong_with_the_probability_of_its_relative_error() -> None:
    """Errors of 0, a quarter, all of the range, and beyond it, against draws below and above."""
    predicted, targets = encoded(0.5, 0.5, 0.5, 1, 9), encoded(0.5, 0, 0, -1, -1)
    coins = Drawn(1e-6, 0.24, 0.26, 0.9999999, 0.9999999)
    assert HEAT.wrong(predicted, targets, coins, NUMPY).tolist() == [False, True, False, True, True]
    assert coins.stages == ["wrong"]


def test_a_prediction_that_is_none_is_wrong() -> None:
    assert HEAT.wrong(encoded(math.nan), encoded(0), Drawn(0.9), NUMPY).tolist() == [True]


def test_the_mean_of_wrong_rows_is_the_relative_error() -> None:
    random = np.random.default_rng(0)
    predicted, targets = random.uniform(-1, 1, (2, 100_000)).astype(np.float32)
    wrong = HEAT.wrong(predicted, targets, Drawn(*random.uniform(size=100_000)), NUMPY)
    measured = HEAT.measures(predicted, targets, NUMPY)["test_error"]
    assert wrong.dtype == bool and abs(wrong.mean() - measured) < 0.005


@BOTH
def test_labels_are_measured_by_their_error(ops: Ops) -> None:
    found = PETS.measures(ops.xp.asarray([0, 1, 2, 2]), ops.xp.asarray([0, 1, 2, 1]), ops)
    assert {name: float(value) for name, value in found.items()} == {"test_error": 0.25}
    assert list(PETS.measures(np.array([0]), np.array([0]), NUMPY, "validation")) == ["validation_error"]


@BOTH
def test_a_number_is_measured_in_its_own_unit(ops: Ops) -> None:
    predicted, targets = HEAT.encode([12, 20, 30]), HEAT.encode([10, 20, 24])
    found = HEAT.measures(ops.xp.asarray(predicted), ops.xp.asarray(targets), ops)
    assert list(found) == ["test_error", "mae", "rmse", "r2"]
    by_hand = {"test_error": 8 / 3 / 20, "mae": 8 / 3, "rmse": math.sqrt(40 / 3), "r2": 1 - 40 / 104}
    for name, value in by_hand.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-5)
    named = HEAT.measures(predicted, targets, NUMPY, "validation")
    assert list(named) == ["validation_error", "validation_mae", "validation_rmse", "validation_r2"]


def test_r2_is_that_of_scikit_learn_also_where_nothing_varies() -> None:
    from sklearn.metrics import r2_score

    random = np.random.default_rng(3)
    targets = random.uniform(-1, 1, 50).astype(np.float32)
    predicted = (0.5 * targets + 0.1).astype(np.float32)
    found = HEAT.measures(predicted, targets, NUMPY)["r2"]
    assert float(found) == pytest.approx(r2_score(targets, predicted), abs=1e-5)
    flat = np.full(4, 0.5, np.float32)
    assert HEAT.measures(flat, flat, NUMPY)["r2"] == 1 and HEAT.measures(flat * 0, flat, NUMPY)["r2"] == 0


def test_a_prediction_beyond_the_bounds_counts_as_the_bound() -> None:
    assert HEAT.measures(encoded(50), encoded(1), NUMPY)["mae"] == 0


def test_what_a_file_says_of_its_target() -> None:
    assert json.loads(PETS.metadata["labels"]) == ["cat", "dog", "fish"]
    assert json.loads(HEAT.metadata["target"]) == {"name": "temperature", "unit": "°C", "low": 10.0, "high": 30.0}
    assert PETS.described == "one of: cat, dog, fish"
    assert Number(low=0.0, high=1.0).described == "a number, from 0 to 1"
    assert PETS.decode(np.array([2, 0])).tolist() == ["fish", "cat"]
