"""Exposure: what can be read where nothing is promised.

Gradient inversion. An honest but curious server sees one check-in, made by the real device part from real rows. The
gradient of a first dense layer is Σ slope · input: with one row in a batch every line of it is a multiple of that row,
with several each line is a mixture, in which those of one label weigh most. Local steps are sums of such gradients. So
the server takes the line that changed most, and has a picture. Which line of the last layer moved most tells the label.
Where check-ins are aggregated securely the server reads the sum of as many devices as the task has together.

Membership. A crowd learns the task in a simulation; then somebody who has the model guesses whether a row was among
those it learnt from, by its loss: rows that were have smaller ones (Yeom and others 2018). The threshold is chosen on
one half of the rows, and the guesses are counted on the other.

Both are lower bounds on what leaks: others may read more.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdml.audit.audit_drawing import draw_pictures
from crowdml.audit.audit_report import Shown
from crowdml.audit.bounds import best_threshold, count
from crowdml.core import NUMPY, BadInput, Batch, record, trees
from crowdml.core.ops import Tree, ZeroCoins
from crowdml.data import Dataset
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.simulation.own_data import bind
from crowdml.simulation.prepare import prepare
from crowdml.simulation.run import simulate
from crowdml.slicing.attacks import inputs_from_difference, likeness
from crowdml.task import Task

Floats = npt.NDArray[np.float64]
PICTURES = 10
"""Rows that are shown, and check-ins of each size that are read."""
SIZES = (1, 2, 5)
"""Rows behind a check-in that are tried, beside the task's own."""


@record
class Inverted:
    """How well one kind of check-in was read.

    Attributes:
        rows: Rows behind it.
        likeness: Mean cosine between what was read and the row that it is most like.
        labels: Share of check-ins whose label was read; None where there are several rows, or no labels.
        truth: The rows that were most alike.
        read: What was made of them.
    """

    rows: int
    likeness: float
    labels: float | None
    truth: Floats
    read: Floats


@record
class Exposure:
    """What was read where nothing is promised.

    Attributes:
        task: The task's name.
        recipe: Its algorithm.
        inverted: Check-ins that were read; empty where the model has no dense layer first.
        right: Share of right guesses about who was in the training data, on rows that did not choose the threshold.
        guesses: Rows that were guessed about.
        seen: Whose messages the server reads, in words.
    """

    task: str
    recipe: str
    inverted: tuple[Inverted, ...]
    right: float
    guesses: int
    seen: str

    holds: ClassVar[bool] = True
    """Nothing is promised, so nothing is broken."""

    def tables(self) -> list[Shown]:
        """Show how well check-ins of each size are read."""
        columns = ("rows in a check-in", "likeness of the best", "labels read")
        rows = tuple(
            (str(each.rows), f"{each.likeness:.4f}", "" if each.labels is None else f"{each.labels:.0%}")
            for each in self.inverted
        )
        title = f"{self.task} ({self.recipe}): what a curious server reads from {self.seen}"
        return [Shown(title=title, columns=columns, rows=rows, right=columns)] if rows else []

    def words(self) -> list[str]:
        """Say what it means."""
        said = ["likeness is a cosine: 1 is the row itself"]
        if not self.inverted:
            said = ["the first layer is not dense: this attack does not read its inputs, which says nothing of others"]
        error = math.sqrt(0.25 / self.guesses)
        return [
            *said,
            f"who was in the training data: {self.right:.1%} of {self.guesses} guesses are right; a coin is right "
            f"50.0% ± {2 * error:.1%} of the time",
            "verdict: no formal guarantee; what was read is the least that leaks",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain values; pictures are left out."""
        return {
            "task": self.task,
            "recipe": self.recipe,
            "holds": True,
            "guarantee": "no formal guarantee",
            "seen": self.seen,
            "inversion": [
                {"rows": each.rows, "likeness": each.likeness, "labels": each.labels} for each in self.inverted
            ],
            "membership": {"right": self.right, "guesses": self.guesses},
        }

    def draw(self, path: Path) -> None:
        """Draw rows, and below each what a server makes of its check-in."""
        if not self.inverted:
            raise BadInput("nothing was read that could be drawn", where="--plot", hint="leave --plot out")
        lines = []
        for each in self.inverted:
            name = "1 row" if each.rows == 1 else f"{each.rows} rows, the most alike"
            lines += [(f"rows of a device: {name}", each.truth), ("what the server reads", each.read)]
        draw_pictures(lines, f"{self.task}: rows, and what an honest but curious server reads", path)


def expose(task: Task, *, seed: int = 0) -> Exposure:
    """Read check-ins, and guess who was in the training data.

    Args:
        task: A task without noise.
        seed: Which rows are read, and how the simulated crowd learns.
    """
    task = bind(task)
    _, dataset = prepare(task)
    generator = np.random.default_rng(seed)
    masking = task.masking()
    together = masking.least if masking else 1
    sizes = sorted({*SIZES, min(task.built.schedule.batch, 50)})
    inverted = [_invert(task, dataset, size, together, generator) for size in sizes]
    right, guesses = _membership(task, dataset, seed, generator)
    return Exposure(
        task=task.name,
        recipe=task.algorithm.kind,
        inverted=tuple(each for each in inverted if each is not None),
        right=right,
        guesses=guesses,
        seen="one check-in" if together == 1 else f"the secure sum of {together} check-ins",
    )


def _invert(task: Task, dataset: Dataset, size: int, together: int, generator: np.random.Generator) -> Inverted | None:
    """Let devices check in with so many rows each, and read every message."""
    algorithm = task.built
    phase, server = algorithm.last, algorithm.last.server
    broadcast = server.check_out(server.init(DeviceCoins()))
    truth, read, alike, labels = list[Floats](), list[Floats](), list[float](), list[bool]()
    for _ in range(PICTURES):
        total, numbers = None, generator.permutation(len(dataset.train_targets))[: size * together]
        for mine in numbers.reshape(together, -1):
            sent, _ = phase.contribute(broadcast, phase.begin(), _batch(algorithm, dataset, mine), ZeroCoins())
            total = sent.update if total is None else trees.map(lambda a, b: a + b, total, sent.update)
        found = _first_inputs(total, dataset.train_rows.shape[1])
        if found is None:
            return None
        rows = np.asarray(dataset.train_rows[numbers], np.float64)
        each = [likeness(found, row) for row in rows]
        best = int(np.argmax(each))
        truth.append(rows[best])
        read.append(found)
        alike.append(each[best])
        labels.append(_label(total, dataset.target.bins) == int(dataset.train_targets[numbers[0]]))
    known = size * together == 1 and dataset.train_targets.dtype.kind == "i"
    return Inverted(
        rows=size,
        likeness=float(np.mean(alike)),
        labels=float(np.mean(labels)) if known else None,
        truth=np.array(truth),
        read=np.array(read),
    )


def _batch(algorithm: Any, dataset: Dataset, numbers: npt.NDArray[np.int64]) -> Batch:
    schedule = algorithm.schedule
    width = -(-len(numbers) // schedule.multiple) * schedule.multiple if schedule.whole else schedule.batch
    width = max(width, len(numbers))
    at = np.concatenate([numbers, np.full(width - len(numbers), numbers[0])])
    mask = (np.arange(width) < len(numbers)).astype(np.float32)
    return Batch(rows=dataset.train_rows[at], targets=dataset.train_targets[at], mask=mask)


def _first_inputs(update: Tree, features: int) -> Floats | None:
    """Return what the first layer saw, from what is sent; None where it is not dense."""
    weights = [leaf for leaf in trees.leaves(update) if np.ndim(leaf) >= 2]
    if not weights or np.ndim(weights[0]) != 2 or np.shape(weights[0])[1] not in (features, features + 1):
        return None
    moved = np.asarray(weights[0], np.float64)[:, :features]
    return inputs_from_difference(np.zeros_like(moved), moved)


def _label(update: Tree, classes: int) -> int:
    """Return the label whose line of the last layer moved most."""
    lines = [np.asarray(leaf, np.float64) for leaf in trees.leaves(update) if np.ndim(leaf) == 2]
    last = [leaf for leaf in lines if len(leaf) == classes]
    return int(np.argmax((last[-1] ** 2).sum(axis=1))) if last else -1


def _membership(task: Task, dataset: Dataset, seed: int, generator: np.random.Generator) -> tuple[float, int]:
    """Let a crowd learn, and guess by losses; return the share of right guesses, and their number."""
    learnt = trees.map(lambda leaf: np.asarray(leaf[0]), simulate(task, seed=seed).parameters)
    model, most = task.model_for(NUMPY), min(len(dataset.train_targets), len(dataset.test_targets))
    if most < 4:
        raise BadInput("there are no rows beside the training data to compare with", where="data.test")
    worlds = []
    for rows, targets in (
        (dataset.train_rows, dataset.train_targets),
        (dataset.test_rows, dataset.test_targets),
    ):
        chosen = generator.permutation(len(targets))[:most]
        worlds.append(-np.asarray(model.losses(learnt, rows[chosen], targets[chosen]), np.float64))
    half = most // 2
    threshold = best_threshold(worlds[0][:half], worlds[1][:half], half, 0.0, 0.05)
    guesses = count(threshold, worlds[0][half:], worlds[1][half:])
    return (guesses.hits + guesses.trials - guesses.alarms) / (2 * guesses.trials), int(2 * guesses.trials)
