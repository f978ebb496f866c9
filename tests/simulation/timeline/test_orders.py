"""Orders found by sorting whole numbers are the stable orders, whatever the numbers are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.simulation.timeline.orders import CROWDED, arrived_before, order_by_device, order_in_time

NUMBERS = st.lists(st.integers(0, 2**20), max_size=50) | st.lists(st.sampled_from([0, 1, 65535, 65536]), max_size=50)
TIMES = st.lists(st.floats(0, 1e15), max_size=60) | st.lists(st.sampled_from([0.0, 0.5, 1.0, 1e-300, 7e9]), max_size=60)


@given(NUMBERS)
def test_devices_keep_their_order(numbers: list[int]) -> None:
    device = np.array(numbers, np.int32)
    np.testing.assert_array_equal(order_by_device(device), np.argsort(device, kind="stable"))


def test_device_numbers_that_need_more_than_32_bits_with_their_places() -> None:
    device = np.random.default_rng(0).integers(0, 2**30, 5000).astype(np.int32)
    device[::7] = device[0]
    np.testing.assert_array_equal(order_by_device(device), np.argsort(device, kind="stable"))


@given(TIMES)
def test_times_keep_their_order(numbers: list[float]) -> None:
    times = np.array(numbers, np.float64)
    np.testing.assert_array_equal(order_in_time(times), np.argsort(times, kind="stable"))


def test_times_that_differ_in_their_last_bits_only() -> None:
    times = np.float64(1e6) + np.random.default_rng(0).permutation(3000) * np.float64(2.0**-33)
    assert len(set(times.tolist())) > 1
    np.testing.assert_array_equal(order_in_time(times), np.argsort(times, kind="stable"))


@given(TIMES, st.lists(st.floats(-10, 2e15), max_size=30))
def test_arrivals_before_a_reading(numbers: list[float], others: list[float]) -> None:
    arrival = np.sort(np.array(numbers, np.float64))
    read = np.concatenate([arrival, arrival[::-1] - 0.5, np.array(others, np.float64)])
    np.testing.assert_array_equal(arrived_before(arrival, read), np.searchsorted(arrival, read, side="left"))


@pytest.mark.parametrize("last", [10.0, 1e12])
def test_arrivals_that_crowd_into_one_slice_of_time(last: float) -> None:
    generator = np.random.default_rng(0)
    arrival = np.sort(np.append(generator.random(20 * CROWDED), last))
    read = generator.permutation(arrival) - generator.random(len(arrival))
    np.testing.assert_array_equal(arrived_before(arrival, read), np.searchsorted(arrival, read, side="left"))


@pytest.mark.parametrize("gap", [1, 3, 50])
def test_ticks_that_are_all_different_keep_their_order(gap: int) -> None:
    times = np.random.default_rng(0).permutation(500).astype(np.float64) * gap
    np.testing.assert_array_equal(order_in_time(times), np.argsort(times, kind="stable"))
