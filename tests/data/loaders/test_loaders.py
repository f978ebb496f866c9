"""Loaders: the real files give what their authors say, small made-up files test every fault."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Labels, Number
from crowdml.data import DATASETS, Dataset, load
from crowdml.data.loaders import activity, adult, cifar10, embedded, idx
from crowdml.data.transforms import Bounds, Intercept

Full = Callable[[str], Dataset]


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "cifar10"])
def test_the_catalogue_tells_the_truth(name: str, full: Full) -> None:
    data, source = full(name), DATASETS[name]
    assert (len(data.train_rows), len(data.test_rows)) == source.rows
    assert data.features == source.features == int(np.prod(source.shape))
    assert data.target == source.target and data.label_names == source.label_names
    if isinstance(data.target, Labels):
        assert set(np.unique(data.train_targets)) == set(np.unique(data.test_targets)) == set(range(data.classes))
    assert data.train_rows.dtype in (np.uint8, np.float32) and data.train_targets.dtype == data.target.dtype
    with pytest.raises(ValueError, match="read-only"):
        data.train_rows[0, 0] = 1


def test_digits_split_is_fixed() -> None:
    digits = load("digits")
    assert digits.train_targets[:10].tolist() == [1, 1, 4, 5, 3, 8, 4, 4, 8, 0]
    assert digits.train_rows.max() == 16 and digits.train_rows.sum() + digits.test_rows.sum() == 561718


def test_diabetes_is_that_of_scikit_learn() -> None:
    from sklearn.datasets import load_diabetes

    ours, theirs = load("diabetes"), load_diabetes(scaled=False)
    assert isinstance(ours.target, Number)
    raw = np.concatenate([ours.train_rows, ours.test_rows])
    outcome = np.concatenate([ours.target.decode(part) for part in (ours.train_targets, ours.test_targets)])
    order = np.random.RandomState(embedded.SPLIT_SEED).permutation(442)
    np.testing.assert_allclose(outcome, theirs.target[order], atol=1e-4)
    low, high = np.array(list(embedded.MEASUREMENTS.values())).T
    np.testing.assert_allclose(raw, ((theirs.data - low) / (high - low) * 2 - 1)[order], atol=1e-6)
    assert np.abs(raw).max() == 1 and ours.target.outside(theirs.target) == 0


def test_least_squares_explains_of_diabetes_what_the_loader_says() -> None:
    data = load("diabetes")
    rows, more = (np.c_[part, np.ones(len(part))] for part in (data.train_rows, data.test_rows))
    weights = np.linalg.lstsq(rows, data.train_targets, rcond=None)[0]
    found = data.target.measures((more @ weights).astype(np.float32), data.test_targets, NUMPY)
    assert float(found["r2"]) == pytest.approx(0.472, abs=0.002)
    assert float(found["mae"]) == pytest.approx(45.0, abs=0.2) and float(found["rmse"]) == pytest.approx(56.3, abs=0.2)


def test_files_of_scikit_learn_that_are_damaged_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "home", lambda: tmp_path)
    (tmp_path / "diabetes_target.csv").write_bytes(b"1.0\n2.0\n")
    (tmp_path / "diabetes_data_raw.csv").write_bytes(b"1 2 3\n4 5\n")
    with pytest.raises(BadInput, match="not a table of numbers"):
        embedded.load_diabetes()
    (tmp_path / "diabetes_data_raw.csv").write_bytes(b"1 2 3\n4 5 6\n")
    with pytest.raises(BadInput, match=r"shape \(2, 3\) instead of \(442, 10\)"):
        embedded.load_diabetes()
    monkeypatch.setattr(embedded, "home", lambda: None)
    with pytest.raises(BadInput, match="not installed"):
        embedded.load_digits()


def test_mnist_counts_and_writers(full: Full) -> None:
    mnist = full("mnist")
    assert np.bincount(mnist.train_targets).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.test_targets).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    if mnist.train_owners is not None:
        sizes = np.unique(mnist.train_owners, return_counts=True)[1]
        assert (len(sizes), sizes.min(), sizes.max()) == (539, 19, 131)


def test_fashion_is_balanced(full: Full) -> None:
    assert np.bincount(full("fashion-mnist").train_targets).tolist() == [6000] * 10


@pytest.mark.slow
def test_cifar10_means_are_the_published_ones(full: Full) -> None:
    data = full("cifar10")
    assert (len(data.train_rows), len(data.test_rows)) == DATASETS["cifar10"].rows
    means = data.train_rows.reshape(-1, 3).mean(axis=0) / 255
    np.testing.assert_allclose(means, [0.49140, 0.48216, 0.44653], atol=1e-5)
    assert np.bincount(data.test_targets).tolist() == [1000] * 10


@pytest.mark.slow
def test_cifar10_binary_batches_give_the_same_rows(full: Full, tmp_path: Path) -> None:
    data = full("cifar10")
    rows, labels = data.test_rows, data.test_targets.astype(np.uint8)
    planar = rows.reshape(10_000, 1024, 3).swapaxes(1, 2).reshape(10_000, 3072)
    content = np.concatenate([labels[:, None], planar], axis=1).tobytes()
    for batch in cifar10.BATCHES:
        (tmp_path / f"{batch}.bin").write_bytes(content)
    again = cifar10.load(tmp_path)
    np.testing.assert_array_equal(again.test_rows, rows)
    np.testing.assert_array_equal(again.train_targets[:10_000], data.test_targets)


def test_cifar10_faults_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"labels\.npz: is missing"):
        cifar10.load(tmp_path)
    np.savez(tmp_path / "labels.npz", y_train=np.zeros(50_000, np.uint8), y_test=np.zeros(10_000, np.uint8))
    (tmp_path / "data_batch_1.webp").write_bytes(b"RIFF0000WEBPxxxx")
    with pytest.raises(BadInput, match=r"data_batch_1\.webp"):
        cifar10.load(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(b"\0" * 100)
    with pytest.raises(BadInput, match=r"data_batch_1\.bin: has 100 bytes instead of 30730000"):
        cifar10.load(tmp_path)


def test_adult_has_the_complete_rows_and_columns(full: Full) -> None:
    data = full("adult")
    assert len(data.train_rows) + len(data.test_rows) == 45222
    assert np.bincount(data.train_targets).tolist() == [22654, 7508]
    assert data.train_rows.min() == 0 and data.train_rows.max() == 1
    # Six numbers and sex in one column each, six attributes with exactly one 1 among their columns.
    first = data.train_rows[0]
    assert int((first == 1).sum()) >= 7
    assert (data.train_rows[:, 1:9].sum(axis=1) == 1).all()
    assert Intercept().bounds(Bounds(features=data.features)).features == 105, "as in the paper"


ADULT_LINE = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)


def adult_folder(folder: Path, line: str) -> Path:
    (folder / "adult.data").write_text(line + "\n\n")
    with gzip.open(folder / "adult.test.gz", "wt") as stream:
        stream.write(f"|1x3 Cross validator\n{ADULT_LINE}.\n{ADULT_LINE.replace('White', '?')}.\n")
    return folder


def test_adult_reads_plain_and_gzipped_and_drops_incomplete_rows(tmp_path: Path) -> None:
    data = adult.load(adult_folder(tmp_path, ADULT_LINE))
    assert data.train_rows.shape == data.test_rows.shape == (1, 104)
    np.testing.assert_array_equal(data.train_rows, data.test_rows)
    assert data.train_rows[0, 0] == pytest.approx((39 - 17) / (90 - 17))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (ADULT_LINE.replace("White", "Green"), "race has the unknown value 'Green'"),
        (ADULT_LINE.replace("39,", "old,"), "age"),
        (ADULT_LINE.replace("39,", "nan,"), "finite"),
        (ADULT_LINE.replace("39, ", ""), "14 values instead of 15"),
        (ADULT_LINE.replace("<=50K", "rich"), "label"),
        ("", "no complete row"),
    ],
)
def test_adult_faults_are_named(tmp_path: Path, line: str, fault: str) -> None:
    with pytest.raises(BadInput, match=fault) as caught:
        adult.load(adult_folder(tmp_path, line))
    assert "adult.data" in caught.value.where


def write_idx(path: Path, array: np.ndarray, packed: bool = False) -> None:
    code = {"uint8": 8, "int32": 12}[array.dtype.name]
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


def mnist_folder(folder: Path, packed: bool) -> np.ndarray:
    images = np.arange(3 * 28 * 28).reshape(3, 28, 28).astype(np.uint8)
    for prefix in ("train", "t10k"):
        write_idx(folder / f"{prefix}-images-idx3-ubyte", images, packed)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", np.array([1, 2, 9], np.uint8), packed)
    return images


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_plain_or_gzipped(tmp_path: Path, packed: bool) -> None:
    images = mnist_folder(tmp_path, packed)
    data = idx.load_mnist(tmp_path)
    np.testing.assert_array_equal(data.train_rows, images.reshape(3, -1))
    assert data.test_targets.tolist() == [1, 2, 9] and data.train_owners is None
    table = np.zeros((3, 8), np.int32)
    table[:, 2] = [70, 80, 70]
    write_idx(tmp_path / "qmnist-train-labels-idx2-int", table, packed)
    owners = idx.load_mnist(tmp_path).train_owners
    assert owners is not None and owners.tolist() == [70, 80, 70]


def test_idx_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="neither train-images-idx3-ubyte nor"):
        idx.load_mnist(tmp_path)
    mnist_folder(tmp_path, False)
    path = tmp_path / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    for content, fault in (
        (whole[:-1], "header says"),
        (whole + b"x", "header says"),
        (whole[:7], "not an IDX file"),
        (b"hello" + whole[5:], "not an IDX file"),
        (whole[:4] + b"\xff" * 12, "header says"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=fault) as caught:
            idx.load_mnist(tmp_path)
        assert "train-images-idx3-ubyte" in caught.value.where
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(BadInput, match="cannot be read"):
        idx.load_mnist(tmp_path)


def test_idx_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mnist_folder(tmp_path, True)
    monkeypatch.setattr(idx, "LIMIT", 1000)
    with pytest.raises(BadInput, match="more than 1000 bytes"):
        idx.load_mnist(tmp_path)


def test_activity_sessions_stand_on_one_side(full: Full) -> None:
    data = full("activity")
    assert data.train_owners is not None and len(np.unique(data.train_owners)) == 9
    assert np.bincount(data.train_targets).tolist() == [2879, 1984, 4689]
    assert "every third" in data.note
    hapt = full("activity-hapt")
    assert hapt.train_owners is not None and hapt.train_owners.max() == 21


def test_activity_archives_with_faults_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "activity_tmd.npz"
    path.write_bytes(b"PK not really")
    with pytest.raises(BadInput, match=r"activity_tmd\.npz: is not the expected archive"):
        activity.load_tmd(tmp_path)
    np.savez(path, t_ms=np.array([None, {}], dtype=object))
    with pytest.raises(BadInput, match="is not the expected archive"):
        activity.load_tmd(tmp_path)
    columns: dict[str, Any] = {name: np.zeros(4, np.uint8) for name in ("session", "user", "label")}
    names = np.array(["Still", "Walking", "Car", "Bus", "Train"])
    np.savez(path, t_ms=np.arange(4), acc=np.zeros((3, 3)), label_names=names, **columns)
    with pytest.raises(BadInput, match="differ in length"):
        activity.load_tmd(tmp_path)
    np.savez(path, t_ms=np.arange(4), acc=np.zeros((4, 3)), label_names=names[:3], **columns)
    with pytest.raises(BadInput, match="lists the activities"):
        activity.load_tmd(tmp_path)


def walk(seconds: float, rate: float) -> np.ndarray:
    """Two steps a second, up and down."""
    times = np.arange(int(seconds * rate)) / rate
    up = 9.81 + 3 * np.sin(2 * np.pi * 2 * times)
    return np.stack([np.zeros_like(up), np.zeros_like(up), up], axis=1)


def test_published_text_of_tmd_is_read(tmp_path: Path) -> None:
    for user, label, start in ((1, "Walking", 100), (1, "Walking", 200), (1, "Car", 300), (2, "Still", 400)):
        folder = tmp_path / "raw_data" / f"U{user}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            f"{100 * number},android.sensor.accelerometer,{x},{y},{z}\n{100 * number},android.sensor.light,3.0"
            for number, (x, y, z) in enumerate(walk(10, 10))
        ]
        (folder / f"sensorfile_U{user}_{label}_{start}.csv").write_text("\n".join([*lines, "77,android.sensor.accel"]))
    data = activity.load_tmd(tmp_path)
    assert np.bincount(data.train_targets).tolist() == [3, 3, 3] and data.test_targets.tolist() == [1, 1, 1]
    # 2 Hz is bin 6.4 of a window of 3.2 s.
    assert int(data.test_rows[0, 1:32].argmax()) + 1 == 6


def test_published_text_of_hapt_is_read(tmp_path: Path) -> None:
    raw = tmp_path / "RawData"
    raw.mkdir()
    for experiment, user in ((1, 1), (2, 22)):
        np.savetxt(raw / f"acc_exp{experiment:02}_user{user:02}.txt", walk(20, 50) / 9.80665)
    (raw / "labels.txt").write_text("1 1 5 1 400\n1 1 1 401 900\n2 22 4 1 400\n2 22 3 501 1000\n")
    data = activity.load_hapt(tmp_path)
    assert data.train_targets.tolist() == [0, 0, 1, 1, 1] and data.test_targets.tolist() == [0, 0, 1, 1, 1]
    assert data.train_owners is not None and set(data.train_owners.tolist()) == {1}
    assert data.train_rows[0, 0] / 64 == pytest.approx(9.81, rel=0.02)
