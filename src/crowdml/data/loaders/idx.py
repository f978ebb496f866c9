"""IDX files, the format of MNIST and Fashion-MNIST: a short header, then big-endian numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core.targets import Labels
from crowdml.data.dataset import Dataset, Ints
from crowdml.data.loaders.reading import damaged, read_plain_or_gz

TYPES = {0x08: ">u1", 0x0C: ">i4"}
LIMIT = 64 << 20
WRITERS = "qmnist-train-labels-idx2-int"
DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def load_mnist(folder: Path) -> Dataset:
    """Load MNIST; with the QMNIST label file beside it every training row knows its writer."""
    return _load("mnist", folder, DIGITS, _writers(folder))


def load_fashion_mnist(folder: Path) -> Dataset:
    """Load Fashion-MNIST: the same shapes as MNIST, ten kinds of clothing."""
    return _load("fashion-mnist", folder, CLOTHES, None)


def _load(name: str, folder: Path, label_names: tuple[str, ...], owners: Ints | None) -> Dataset:
    train, test = (_half(folder, prefix, len(label_names)) for prefix in ("train", "t10k"))
    if owners is not None and len(owners) != len(train[1]):
        raise damaged(folder, f"{len(owners)} writers for {len(train[1])} training rows")
    return Dataset.of_halves(name, train, test, Labels(names=label_names), owners)


def _half(folder: Path, prefix: str, classes: int) -> tuple[npt.NDArray[np.uint8], Ints]:
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte", 3)
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte", 1).astype(np.int32)
    if len(images) != len(labels) or not len(labels):
        raise damaged(folder, f"{len(images)} {prefix} images, but {len(labels)} labels")
    if labels.min() < 0 or labels.max() >= classes:
        raise damaged(folder, f"a {prefix} label is outside 0..{classes - 1}")
    return images.reshape(len(images), -1), labels


def _writers(folder: Path) -> Ints | None:
    """Read the NIST writer numbers, which stand in column 2 of the QMNIST labels."""
    path = folder / WRITERS
    if not (path.is_file() or path.with_name(path.name + ".gz").is_file()):
        return None
    table = read_idx(path, 2)
    if table.shape[1] != 8:
        raise damaged(path, f"has {table.shape[1]} columns instead of 8")
    return table[:, 2].astype(np.int32)


def read_idx(path: Path, axes: int) -> npt.NDArray[Any]:
    """Read one IDX file, plain or gzipped, and check its header against its length.

    Args:
        path: The name without `.gz`.
        axes: How many axes the array must have.
    """
    content = read_plain_or_gz(path, LIMIT)
    start = 4 + 4 * axes
    if len(content) < start or content[:2] != b"\0\0" or content[2] not in TYPES or content[3] != axes:
        raise damaged(path, f"is not an IDX file with {axes} axes")
    kind = np.dtype(TYPES[content[2]])
    shape = tuple(np.frombuffer(content, ">u4", count=axes, offset=4).tolist())
    expected = start + math.prod(shape) * kind.itemsize
    if len(content) != expected:
        raise damaged(path, f"holds {len(content)} bytes, its header says {expected}")
    return np.frombuffer(content, kind, offset=start).reshape(shape)
