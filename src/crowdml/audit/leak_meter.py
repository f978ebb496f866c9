"""The leak meter of sliced training: what followers, and whoever sees weights, can read of a dominator's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.recipe import SlicedRecipe
from crowdml.audit.audit_drawing import draw_pictures
from crowdml.audit.audit_report import Shown
from crowdml.core import BadInput, record, trees
from crowdml.core.ops import Tree
from crowdml.simulation.accounting import sliced_report
from crowdml.simulation.own_data import bind
from crowdml.simulation.prepare import prepare
from crowdml.simulation.slices.sliced import deal, first_parameters, gradient_of, released_by, rules_of, taught
from crowdml.slicing import SlicedNet
from crowdml.slicing.attacks import Leak, Reader, Transcript, inputs_from_difference, likeness
from crowdml.slicing.first_cut import Released, first_sums
from crowdml.slicing.sliced_net import as_columns
from crowdml.slicing.training import Gradient, Group, Rows, as_batch, make_groups, train_pass, train_turn
from crowdml.task import Task
from crowdml.task.live_task import sliced_net_of

Floats = npt.NDArray[np.float64]
BATCHES = (1, 2, 5)
"""Batch sizes at which weight differences are tried, beside the task's own."""
SHOWN = 10
"""Rows of which a figure shows what was read."""


@record
class Reading:
    """How well one way of reading does.

    Attributes:
        what: What is read.
        seen: Numbers of an example that are seen.
        right: Share of labels read correctly; None where labels are not read.
        likeness: Mean cosine between rows and what was reconstructed; None where rows are not known.
        chance: Share that is right for whoever always says the most frequent label; None where labels are not read.
    """

    what: str
    seen: int
    right: float | None
    likeness: float | None
    chance: float | None = None


@record
class LeakAudit:
    """What the meter found.

    Attributes:
        task: The task's name.
        readings: Every way of reading.
        guarantee: What is promised, in words.
        own_rows: Rows that the reader has of its own.
        pictures: A few rows and what was made of them, by way of reading; examples come first.
    """

    task: str
    readings: tuple[Reading, ...]
    guarantee: str
    own_rows: int
    pictures: dict[str, Floats]

    holds: ClassVar[bool] = True
    """Nothing is promised, so nothing is broken."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; pictures are left out."""
        return {
            "task": self.task,
            "guarantee": self.guarantee,
            "own_rows": self.own_rows,
            "readings": [vars(reading) for reading in self.readings],
        }

    def tables(self) -> list[Shown]:
        """Show every way of reading."""
        columns, rows = ("from", "numbers seen", "labels right", "chance", "likeness"), []
        for reading in self.readings:
            cells = ((reading.right, ".3f"), (reading.chance, ".3f"), (reading.likeness, ".4f"))
            shown = ("" if value is None else f"{value:{form}}" for value, form in cells)
            rows.append((reading.what, str(reading.seen), *shown))
        title = f"{self.task}: what can be read of a dominator's rows"
        return [Shown(title=title, columns=columns, rows=tuple(rows), right=columns[1:])]

    def words(self) -> list[str]:
        """Say who reads, and what is promised."""
        return [
            f"a reader with {self.own_rows} rows of its own; likeness is a cosine",
            f"privacy: {self.guarantee}",
        ]

    def draw(self, path: Path) -> None:
        """Draw a line of pictures for each way of reading, and save the figure."""
        pictures = [(name, rows[:SHOWN]) for name, rows in self.pictures.items()]
        draw_pictures(pictures, f"{self.task}: rows of a dominator, and what others read", path)


def measure_leaks(task: Task, *, seed: int = 0, own_rows: int = 500, victims: int = 200) -> LeakAudit:
    """Train one group for a pass, then let a former dominator read the next but one.

    Args:
        task: A slicenet task.
        seed: Same seed, same result.
        own_rows: Rows of the reader's own that it learns from, at most.
        victims: Rows that are read.
    """
    _require_sliced(task)
    if not task.algorithm.pieces:
        raise BadInput("every device is alone: nothing is passed on", where="algorithm.pieces", hint="pieces = 5")
    task = bind(task)
    _, dataset = prepare(task)
    generator = np.random.default_rng([seed, 0])
    net = sliced_net_of(task)
    first = first_parameters(net.model, seed, 0)
    group = Group(make_groups(task.crowd.devices, task.algorithm.pieces, task.algorithm.dummies, generator)[0], first)
    rows = deal(task, dataset, generator)
    released = released_by(task, net, first, rows, generator)
    gradient = gradient_of(task, net, released)
    old = _later(task, group, taught(rows, released), gradient, generator)
    reader, victim = int(group.devices[0]), int(group.devices[1])
    prior = (rows[reader][0][:own_rows], rows[reader][1][:own_rows])
    target = (rows[victim][0][:victims], rows[victim][1][:victims])
    readings, pictures = _read_sums(net, old, group.parameters, prior, target, victim, released)
    differences, more = _read_differences(task, net, group.parameters, prior, target, victim, gradient)
    return LeakAudit(
        task=task.name,
        readings=(*readings, *differences),
        guarantee=sliced_report(task)["guarantee"],
        own_rows=len(prior[1]),
        pictures=pictures | more,
    )


def _later(task: Task, group: Group, rows: list[Rows], gradient: Gradient, generator: np.random.Generator) -> Tree:
    """Train a pass, remember the parameters as the reader knew them, and train another with other dominators."""
    rules = rules_of(task)
    train_pass(group, rows, rules, rules.rate, gradient, generator)
    old = trees.map(np.array, group.parameters)
    others = Group(group.devices[2:], group.parameters)
    # A group without further devices goes straight on to the victim.
    if len(others.devices) > rules.pieces:
        train_pass(others, rows, rules, rules.rate, gradient, generator)
    else:
        nobody_asks = trees.map(np.zeros_like, others.parameters)
        for device in others.devices[:2].tolist():
            order = np.arange(len(rows[device][1]))
            train_turn(others, rows[device], device, order, rules.batch, rules.rate, gradient, nobody_asks)
    group.parameters = others.parameters
    return old


def _read_sums(
    net: SlicedNet,
    old: Tree,
    now: Tree,
    prior: Rows,
    target: Rows,
    victim: int,
    released: Released | None,
) -> tuple[list[Reading], dict[str, Floats]]:
    """Read what crosses the first cut, as the holder of each piece that has neurons of the first stage."""
    seen = as_columns(first_sums(net.model, net.graph, old, as_batch(*prior))).T
    if released is None:
        crossed = as_columns(first_sums(net.model, net.graph, now, as_batch(*target))).T
    else:
        crossed = as_columns(released.of(victim, np.arange(len(target[1])))).T
    leak = _transcript(prior[0], prior, target[0], target).leak()
    found = [_reading("the rows themselves", leak)]
    pictures = {"rows": np.asarray(target[0], np.float64)}
    owners = net.owners_of_sums[0]
    for piece in np.unique(owners).tolist():
        columns = np.nonzero(owners == piece)[0]
        leak = _transcript(seen[:, columns], prior, crossed[:, columns], target).leak()
        found.append(_reading(f"sums that piece {piece + 1} receives", leak))
        pictures[f"piece {piece + 1}"] = leak.rows
    return found, pictures


def _transcript(own_sums: Any, prior: Rows, sums: Any, target: Rows) -> Transcript:
    return Transcript(
        own_sums=own_sums, own_rows=prior[0], own_labels=prior[1], sums=sums, labels=target[1], rows=target[0]
    )


def _reading(what: str, leak: Leak) -> Reading:
    return Reading(what=what, seen=leak.seen, right=leak.right, likeness=leak.likeness, chance=leak.chance)


def _require_sliced(task: Task) -> None:
    if not isinstance(task.recipe, SlicedRecipe):
        raise BadInput(
            f"the leak meter measures slicenet tasks, not {task.algorithm.kind}",
            where="algorithm.kind",
            hint='kind = "slicenet"',
        )


def read_transcript(task: Task, transcript: Transcript) -> LeakAudit:
    """Read what a live follower has recorded, by the same means."""
    _require_sliced(task)
    leak = transcript.leak()
    rows = {} if transcript.rows is None else {"rows": np.asarray(transcript.rows, np.float64)}
    return LeakAudit(
        task=task.name,
        readings=(_reading("sums of the transcript", leak),),
        guarantee=sliced_report(task)["guarantee"],
        own_rows=len(transcript.own_labels),
        pictures=rows | {"what was read": leak.rows},
    )


def _read_differences(
    task: Task, net: SlicedNet, parameters: Tree, prior: Rows, target: Rows, victim: int, gradient: Gradient
) -> tuple[list[Reading], dict[str, Floats]]:
    """Compare the first layer's weights before and after a step; the input is what that layer sees."""
    linear = net.graph.hidden[0].linear
    if len(net.graph.hidden[0].sums) > 1:
        return [], {}
    truth = Reader.of(prior[0], prior[0], prior[1])
    found, pictures = [], {}
    before = np.asarray(parameters[linear]["w"], np.float64)
    for size in sorted({*BATCHES, task.algorithm.batch}):
        made, alike, right = [], [], None
        for begin in range(0, min(len(target[1]), 50 * size) - size + 1, size):
            numbers = np.arange(begin, begin + size)
            slopes = gradient(parameters, as_batch(target[0][numbers], target[1][numbers]), victim, numbers)[linear]
            after = before - task.algorithm.rate * np.asarray(slopes.get("w", np.zeros_like(before)), np.float64)
            made.append(inputs_from_difference(before, after))
            alike.append(max(likeness(made[-1], np.asarray(target[0][at], np.float64)) for at in numbers))
        if size == 1:
            scaled = np.array([row * _scale(row, prior[0]) for row in made])
            right = float(np.mean(truth.read(scaled) == target[1][: len(scaled)]))
            pictures["weight difference"] = scaled
        what = f"weight differences, {size} row{'s' * (size > 1)} in a batch"
        found.append(Reading(what=what, seen=len(made[0]), right=right, likeness=float(np.mean(alike))))
    return found, pictures


def _scale(found: Floats, prior: Any) -> float:
    """Give a direction the length that rows usually have."""
    norm = float(np.linalg.norm(found))
    return float(np.mean(np.linalg.norm(prior, axis=1))) / norm if norm else 0.0
