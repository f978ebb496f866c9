"""Passes that are laid out and cut many at a time are those that are cut one by one, whatever devices hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.simulation.timeline import passes as module
from crowdml.simulation.timeline.passes import passes_of


def one_by_one(owner: np.ndarray, passes: int, batch: int, seed: int) -> list[tuple[int, list[int], float]]:
    """Cut every pass by looking at one row after the other: device, rows, and when the batch was full."""
    generator, found = np.random.default_rng(seed), []
    for number in range(passes):
        gathered: dict[int, list[list[int]]] = {}
        for tick, row in enumerate(generator.permutation(len(owner)).tolist()):
            batches = gathered.setdefault(int(owner[row]), [[]])
            batches[-1].append(row)
            if len(batches[-1]) == batch:
                found.append((number, int(owner[row]), len(batches), batches[-1], number * len(owner) + tick))
                batches.append([])
    return [(device, rows, float(tick)) for _, device, _, rows, tick in sorted(found, key=lambda each: each[:3])]


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40),
    st.integers(1, 7),
    st.integers(1, 5),
    st.sampled_from([1, 64, 1 << 16]),
)
def test_batches_are_those_of_a_look_at_one_row_after_the_other(
    devices: list[int], passes: int, batch: int, at_once: int
) -> None:
    owner = np.array(devices, np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", at_once)
        patch.setattr(module, "MOST_ROOM", 100)
        laid = passes_of(owner, np.bincount(owner, minlength=5), batch)
        assert laid is not None
        device, rows, counts, filled = laid.cut(passes, np.random.default_rng(3))
    found = list(zip(device.tolist(), rows.tolist(), filled.tolist(), strict=True))
    assert found == one_by_one(owner, passes, batch, 3)
    assert (counts == batch).all() and rows.dtype == np.int32 and device.dtype == np.int32


def test_devices_that_are_too_unequal_are_not_laid_out() -> None:
    owner = np.repeat([0, 1, 2, 3], [97, 1, 1, 1]).astype(np.int32)
    assert passes_of(owner, np.bincount(owner), 1) is None
