"""CIFAR-10: 60000 colour photographs of 32x32 pixels in ten classes.

Two formats are read: the original binary batches (a label byte, then 1024 red, green and blue bytes) and a compact
one (a lossless WebP mosaic of 100x100 images per batch, labels in an archive). The Python version of the dataset
is a pickle, which could run code, and is not read. Rows are in the order height, width, colour.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput, install
from crowdml.core.targets import Labels
from crowdml.data.dataset import Dataset, Ints
from crowdml.data.loaders.reading import damaged, read_exact, read_npz

BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
IMAGES = 10_000
PIXELS = 32 * 32
LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load(folder: Path) -> Dataset:
    """Load CIFAR-10 from binary batches if they are there, otherwise from mosaics."""
    read = _binary if (folder / "data_batch_1.bin").is_file() else _mosaics
    rows, labels = read(folder)
    if labels.max() >= len(LABELS):
        raise damaged(folder, f"a label is outside 0..{len(LABELS) - 1}")
    train = IMAGES * (len(BATCHES) - 1)
    halves = (rows[:train], labels[:train]), (rows[train:], labels[train:])
    return Dataset.of_halves("cifar10", *halves, Labels(names=LABELS))


def _binary(folder: Path) -> tuple[npt.NDArray[np.uint8], Ints]:
    rows, labels = _room()
    for number, batch in enumerate(BATCHES):
        content = read_exact(folder / f"{batch}.bin", IMAGES * (1 + 3 * PIXELS))
        table = np.frombuffer(content, np.uint8).reshape(IMAGES, 1 + 3 * PIXELS)
        here = slice(number * IMAGES, (number + 1) * IMAGES)
        labels[here] = table[:, 0]
        rows[here].reshape(IMAGES, PIXELS, 3)[:] = table[:, 1:].reshape(IMAGES, 3, PIXELS).swapaxes(1, 2)
    return rows, labels


def _mosaics(folder: Path) -> tuple[npt.NDArray[np.uint8], Ints]:
    rows, labels = _room()
    archive = folder / "labels.npz"
    found = read_npz(archive, {"y_train": 1, "y_test": 1}, 1 << 20)
    joined = np.concatenate([found["y_train"], found["y_test"]])
    if joined.shape != labels.shape or joined.dtype != np.uint8:
        raise damaged(archive, f"holds {len(joined)} labels instead of {len(labels)}")
    labels[:] = joined
    for number, batch in enumerate(BATCHES):
        tiles = _mosaic(folder / f"{batch}.webp").reshape(100, 32, 100, 32, 3).swapaxes(1, 2)
        rows[number * IMAGES : (number + 1) * IMAGES].reshape(100, 100, 32, 32, 3)[:] = tiles
    return rows, labels


def _mosaic(path: Path) -> npt.NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError:
        raise BadInput("reading WebP mosaics needs Pillow", hint=install("simulation")) from None
    try:
        with Image.open(path, formats=["WEBP"]) as image:
            if image.size != (3200, 3200):
                raise damaged(path, f"has {image.size} pixels instead of (3200, 3200)")
            return np.asarray(image.convert("RGB"))
    except FileNotFoundError:
        raise BadInput("is missing", where=str(path)) from None
    except (OSError, ValueError, SyntaxError, EOFError) as fault:
        raise damaged(path, f"is not a readable WebP image: {fault}") from None


def _room() -> tuple[npt.NDArray[np.uint8], Ints]:
    total = IMAGES * len(BATCHES)
    return np.empty((total, 3 * PIXELS), np.uint8), np.empty(total, np.int32)
