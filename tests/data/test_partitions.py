"""Partitions cover everything exactly once, leave nobody empty, and do what their names say."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from crowdml.core import BadInput
from crowdml.core.settings import OneOf
from crowdml.data.partitions import PARTITIONS, Dirichlet, Iid, Partition, Shards, Unbalanced, Writer

ALWAYS = [Iid(), Shards(per_device=1), Unbalanced(sigma=0.0), Unbalanced(sigma=3.0)]


@st.composite
def crowds(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    """Labels, a number of devices that the rows suffice for, and a seed."""
    rows = draw(st.integers(1, 200))
    classes = draw(st.integers(1, 5))
    seed = draw(st.integers(0, 2**32 - 1))
    labels = np.random.default_rng(seed).integers(classes, size=rows).astype(np.int32)
    return labels, draw(st.integers(1, rows)), seed


@pytest.mark.parametrize("partition", ALWAYS, ids=repr)
@settings(max_examples=60, deadline=None)
@given(crowd=crowds())
def test_every_row_has_a_device_and_every_device_a_row(
    partition: Partition, crowd: tuple[np.ndarray, int, int]
) -> None:
    labels, devices, seed = crowd
    device = partition.assign(labels, None, devices, np.random.default_rng(seed))
    assert device.dtype == np.int32 and device.shape == labels.shape
    assert set(device.tolist()) == set(range(devices))


@settings(max_examples=60, deadline=None)
@given(crowd=crowds())
def test_iid_sizes_differ_by_one_row_at_most(crowd: tuple[np.ndarray, int, int]) -> None:
    labels, devices, seed = crowd
    sizes = np.bincount(Iid().assign(labels, None, devices, np.random.default_rng(seed)))
    assert sizes.max() - sizes.min() <= 1


@settings(max_examples=60, deadline=None)
@given(crowd=crowds(), alpha=st.floats(1e-6, 100.0))
def test_dirichlet_keeps_its_promise_or_refuses(crowd: tuple[np.ndarray, int, int], alpha: float) -> None:
    labels, devices, seed = crowd
    try:
        device = Dirichlet(alpha=alpha).assign(labels, None, devices, np.random.default_rng(seed))
    except BadInput as refusal:
        assert "larger alpha" in refusal.hint
    else:
        assert set(device.tolist()) == set(range(devices))


@settings(max_examples=60, deadline=None)
@given(crowd=crowds())
def test_writer_never_splits_an_owner(crowd: tuple[np.ndarray, int, int]) -> None:
    owners, _, seed = crowd
    people = len(np.unique(owners))
    device = Writer().assign(np.zeros_like(owners), owners, people, np.random.default_rng(seed))
    assert set(device.tolist()) == set(range(people))
    assert all(len(set(device[owners == person].tolist())) == 1 for person in np.unique(owners))


def test_same_generator_state_gives_same_answer() -> None:
    labels = np.arange(100, dtype=np.int32) % 10
    for partition in (*ALWAYS, Dirichlet(alpha=1.0)):
        first = partition.assign(labels, None, 5, np.random.default_rng(7))
        np.testing.assert_array_equal(first, partition.assign(labels, None, 5, np.random.default_rng(7)))
        other = partition.assign(labels, None, 5, np.random.default_rng(8))
        assert not np.array_equal(first, other), partition


def test_two_shards_mean_few_classes_and_iid_means_all() -> None:
    labels = np.repeat(np.arange(10, dtype=np.int32), 100)
    generator = np.random.default_rng(0)
    shards = Shards().assign(labels, None, 10, generator)
    assert max(len(set(labels[shards == device].tolist())) for device in range(10)) <= 4
    iid = Iid().assign(labels, None, 10, generator)
    assert min(len(set(labels[iid == device].tolist())) for device in range(10)) == 10


def test_alpha_governs_how_much_devices_differ() -> None:
    labels = np.repeat(np.arange(10, dtype=np.int32), 300)

    def largest_share(alpha: float) -> float:
        device = Dirichlet(alpha=alpha).assign(labels, None, 5, np.random.default_rng(3))
        counts = np.stack([np.bincount(labels[device == number], minlength=10) for number in range(5)])
        return float((counts.max(axis=0) / counts.sum(axis=0)).mean())

    assert largest_share(0.1) > 0.6 > 0.3 > largest_share(1000.0)


def test_dirichlet_shares_follow_the_law() -> None:
    """The variance of a share is (1/k)(1 - 1/k) / (k alpha + 1)."""
    labels, devices, alpha = np.zeros(2000, np.int32), 4, 1.0
    generator = np.random.default_rng(0)
    shares = [
        np.bincount(Dirichlet(alpha=alpha).assign(labels, None, devices, generator), minlength=devices)[0] / 2000
        for _ in range(800)
    ]
    expected = 0.25 * 0.75 / (devices * alpha + 1)
    assert np.mean(shares) == pytest.approx(0.25, abs=0.03)
    assert np.var(shares) == pytest.approx(expected, rel=0.25)


def test_unbalanced_sizes_are_spread_as_sigma_says() -> None:
    labels = np.zeros(100_000, np.int32)
    sizes = np.bincount(Unbalanced(sigma=1.0).assign(labels, None, 200, np.random.default_rng(0)))
    assert np.log(sizes).std() == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("name", list(PARTITIONS))
@pytest.mark.parametrize("devices", [0, -1, 11])
def test_impossible_crowds_are_refused(name: str, devices: int) -> None:
    partition = Dirichlet(alpha=1.0) if name == "dirichlet" else PARTITIONS[name](kind=name)
    labels = np.zeros(10, np.int32)
    with pytest.raises(BadInput, match="device"):
        partition.assign(labels, labels, devices, np.random.default_rng(0))


def test_what_a_partition_needs_is_said() -> None:
    labels, generator = np.zeros(10, np.int32), np.random.default_rng(0)
    with pytest.raises(BadInput, match="who produced"):
        Writer().assign(labels, None, 2, generator)
    with pytest.raises(BadInput, match="at most 1"):
        Writer().assign(labels, labels, 2, generator)
    with pytest.raises(BadInput, match="per-device must be at most 2"):
        Shards(per_device=3).assign(labels, None, 5, generator)
    with pytest.raises(BadInput, match="larger alpha"):
        Dirichlet(alpha=1e-9).assign(labels, None, 5, generator)


def test_a_task_file_chooses_by_kind() -> None:
    reader: TypeAdapter[Partition] = TypeAdapter(Annotated[Partition, OneOf(PARTITIONS)])
    assert reader.validate_python({"kind": "shards", "per-device": 3}) == Shards(per_device=3)
    with pytest.raises(ValidationError):
        reader.validate_python({"kind": "dirichlet", "alpha": 0.0})
    with pytest.raises(ValidationError):
        reader.validate_python({"kind": "iid", "alpha": 1.0})
