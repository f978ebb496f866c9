"""Attacks on sliced training: what weights and sums tell of rows.

Weight differences. A step changes the first layer's weights by Σ slope · input: with one row in a batch, every changed
row of the matrix is a multiple of that input. "Weights instead of gradients" hides nothing from whoever sees them
before and after.

Reading sums. A follower that was dominator before knows the first layer as it was then, and has rows of its own. That
is enough to learn, from its own rows, what sums look like for which picture, and to read those of others. The same
reader works on sums that a simulation forms and on those that a live follower has recorded (`Transcript`).
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import Array, BadInput, record

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
RIDGE = 1e-2
"""Strength of the ridge against the mean variance of what is seen."""


def inputs_from_difference(before: Array, after: Array) -> Floats:
    """Return the input of the first layer up to its scale, from its weights before and after a step on one row.

    >>> x, slope = np.array([0.5, 0.0, 2.0]), np.array([1e-3, -0.2])
    >>> found = inputs_from_difference(np.ones((2, 3)), np.ones((2, 3)) - 0.1 * np.outer(slope, x))
    >>> [round(abs(value), 6) for value in (found / found.max()).tolist()]
    [0.25, 0.0, 1.0]
    """
    moved = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    most: Floats = moved[np.argmax(np.sum(moved * moved, axis=1))]
    # Rows of pictures are bright on dark: of the two signs the one with more light is likely.
    return most if most.sum() >= 0 else -most


def likeness(found: Floats, truth: Floats) -> float:
    """Return the cosine between what was found and the truth; 0 where nothing was found."""
    scale = float(np.linalg.norm(found) * np.linalg.norm(truth))
    return float(found @ truth) / scale if scale else 0.0


@record
class Reader:
    """Somebody who has rows of its own, and has learnt from them to read what it sees of others.

    Attributes:
        mean_seen: Mean of what it sees of its own rows.
        mean_rows: Mean of its own rows.
        map: Linear map from the one to the other, both less their means.
        known: Its own rows as it would read them.
        labels: Their labels.
    """

    mean_seen: Floats
    mean_rows: Floats
    map: Floats
    known: Floats
    labels: Labels

    @staticmethod
    def of(seen: Array, rows: Array, labels: Array) -> Reader:
        """Learn from one's own rows: ridge regression from what is seen to what it was. Examples come first."""
        seen, rows = np.asarray(seen, np.float64), np.asarray(rows, np.float64)
        mean_seen, mean_rows = seen.mean(axis=0), rows.mean(axis=0)
        centred = seen - mean_seen
        products = centred.T @ centred
        ridge = RIDGE * max(float(np.trace(products)) / len(products), 1e-12)
        learnt = np.linalg.solve(products + ridge * np.eye(len(products)), centred.T @ (rows - mean_rows))
        known = centred @ learnt + mean_rows
        return Reader(mean_seen=mean_seen, mean_rows=mean_rows, map=learnt, known=known, labels=np.asarray(labels))

    def rows(self, seen: Array) -> Floats:
        """Reconstruct rows from what is seen of them."""
        return (np.asarray(seen, np.float64) - self.mean_seen) @ self.map + self.mean_rows

    def read(self, seen: Array) -> Labels:
        """Tell labels: that of the known row which looks most alike."""
        found = self.rows(seen)
        distances = np.sum(found**2, axis=1)[:, None] - 2 * found @ self.known.T + np.sum(self.known**2, axis=1)
        found_labels: Labels = self.labels[np.argmin(distances, axis=1)]
        return found_labels


@record
class Leak:
    """How well sums were read.

    Attributes:
        seen: Numbers of an example that are seen.
        right: Share of labels read correctly.
        chance: Share that is right for whoever always says the most frequent label.
        likeness: Mean cosine between rows and what was reconstructed; None where rows are not known.
        rows: What was made of the rows.
    """

    seen: int
    right: float
    chance: float
    likeness: float | None
    rows: Floats


@record
class Transcript:
    """Sums that a follower has received, and what it knows itself.

    Attributes:
        own_sums: The same sums of its own rows, from when it was dominator; examples come first.
        own_rows: Its own rows.
        own_labels: Their labels.
        sums: Sums of rows of others.
        labels: The labels of these rows, for comparison: the reader does not see them.
        rows: These rows, for comparison; None where nobody has them.
    """

    own_sums: Array
    own_rows: Array
    own_labels: Array
    sums: Array
    labels: Array
    rows: Array | None = None

    def leak(self) -> Leak:
        """Read the sums of others with nothing but one's own."""
        reader = Reader.of(self.own_sums, self.own_rows, self.own_labels)
        found, truth = reader.rows(self.sums), np.asarray(self.labels)
        alike = None
        if self.rows is not None:
            pairs = zip(found, np.asarray(self.rows, np.float64), strict=True)
            alike = float(np.mean([likeness(row, true) for row, true in pairs]))
        return Leak(
            seen=np.shape(self.sums)[1],
            right=float(np.mean(reader.read(self.sums) == truth)),
            chance=float(np.unique(truth, return_counts=True)[1].max() / len(truth)),
            likeness=alike,
            rows=found,
        )

    def save(self, path: Path) -> None:
        """Write it into one file of plain arrays."""
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items() if value is not None}
        with path.open("wb") as file:
            np.savez(file, **arrays)

    @staticmethod
    def load(path: Path) -> Transcript:
        """Read it; a file that is none, or whose arrays do not fit, is refused."""
        wanted = {"own_sums": 2, "own_rows": 2, "own_labels": 1, "sums": 2, "labels": 1}
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in (*wanted, "rows") if name in file.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise BadInput(
                f"it cannot be read as arrays: {error}", where=str(path), hint="a file of np.savez"
            ) from None
        for name, axes in wanted.items():
            if name not in arrays or arrays[name].ndim != axes or not len(arrays[name]):
                raise BadInput(f"there is no array {name} with {axes} axes", where=str(path))
        if any(not np.isfinite(array).all() for array in arrays.values()):
            raise BadInput("a number is not finite", where=str(path))
        owned, others = len(arrays["own_labels"]), len(arrays["labels"])
        lengths = {"own_sums": owned, "own_rows": owned, "sums": others, "rows": others}
        wrong = [name for name, length in lengths.items() if name in arrays and len(arrays[name]) != length]
        if wrong or arrays["sums"].shape[1] != arrays["own_sums"].shape[1]:
            raise BadInput(
                f"the arrays do not fit each other: {', '.join(wrong) or 'sums and own_sums have other widths'}",
                where=str(path),
                hint="one entry for each label, and equally many sums of all rows",
            )
        return Transcript(**arrays)
