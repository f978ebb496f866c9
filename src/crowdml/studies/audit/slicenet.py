"""The leak meter of sliced training: what followers, and whoever sees weights, can read of a dominator's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Task
from crowdml.core import BadInput, Batch, record, trees
from crowdml.core.ops import Tree
from crowdml.simulation.accounting import sliced_report
from crowdml.simulation.prepare import prepare
from crowdml.simulation.sliced import deal, first_parameters, gradient_of, net_of, released_by, rules_of
from crowdml.slicing import SlicedNet
from crowdml.slicing.attacks import Reader, inputs_from_difference, likeness
from crowdml.slicing.first_cut import Released, as_columns, first_sums
from crowdml.slicing.groups import make_groups
from crowdml.slicing.training import Gradient, Group, Rows, train_pass

Floats = npt.NDArray[np.float64]
BATCHES = (1, 2, 5)
"""Batch sizes at which weight differences are tried, beside the task's own."""


@record
class Reading:
    """How well one way of reading does.

    Attributes:
        what: What is read.
        seen: Numbers of an example that are seen.
        right: Share of labels read correctly; None where labels are not read.
        likeness: Mean cosine between rows and what was reconstructed.
    """

    what: str
    seen: int
    right: float | None
    likeness: float


@record
class Audit:
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

    def to_json(self) -> dict[str, Any]:
        """Return plain values; pictures are left out."""
        return {
            "task": self.task,
            "guarantee": self.guarantee,
            "own_rows": self.own_rows,
            "readings": [vars(own) for own in self.readings],
        }


def audit(task: Task, *, seed: int = 0, own_rows: int = 500, victims: int = 200) -> Audit:
    """Train one group for a pass, then let a former dominator read the next but one.

    Args:
        task: A slicenet task.
        seed: Same seed, same result.
        own_rows: Rows of the reader's own that it learns from, at most.
        victims: Rows that are read.
    """
    if not task.recipe.sliced:
        raise BadInput(
            f"the leak meter measures slicenet tasks, not {task.algorithm.kind}",
            where="algorithm.kind",
            hint='kind = "slicenet"',
        )
    if not task.algorithm.pieces:
        raise BadInput("every device is alone: nothing is passed on", where="algorithm.pieces", hint="pieces = 5")
    _, dataset = prepare(task)
    generator = np.random.default_rng([seed, 0])
    net = net_of(task)
    first = first_parameters(net.model, seed, 0)
    group = Group(make_groups(task.crowd.devices, task.algorithm.pieces, task.algorithm.dummies, generator)[0], first)
    rows = deal(task, dataset, generator)
    released = released_by(task, net, first, rows, generator)
    gradient = gradient_of(task, net, released)
    old = _later(task, group, rows, gradient, generator)
    reader, victim = int(group.devices[0]), int(group.devices[1])
    prior = (rows[reader][0][:own_rows], rows[reader][1][:own_rows])
    target = (rows[victim][0][:victims], rows[victim][1][:victims])
    readings, pictures = _read_sums(net, old, group.parameters, prior, target, victim, released)
    differences, more = _read_differences(task, net, group.parameters, prior, target, victim, gradient)
    return Audit(
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
        for device in others.devices[:2]:
            _turn(others, rows, int(device), rules.batch, rules.rate, gradient)
    group.parameters = others.parameters
    return old


def _turn(group: Group, rows: list[Rows], device: int, batch: int, rate: float, gradient: Gradient) -> None:
    """Let one device be dominator."""
    examples, labels = rows[device]
    for begin in range(0, len(labels), batch):
        numbers = np.arange(begin, min(begin + batch, len(labels)))
        made = Batch(rows=examples[numbers], labels=labels[numbers], mask=np.ones(len(numbers), np.float32))
        slopes = gradient(group.parameters, made, device, numbers)
        for own, moved in zip(group.parameters, slopes, strict=True):
            for name, slope in moved.items():
                own[name] -= (np.float32(rate) * slope).astype(np.float32)


def _batch(rows: Rows) -> Batch:
    return Batch(rows=rows[0], labels=rows[1], mask=np.ones(len(rows[1]), np.float32))


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
    seen = as_columns(first_sums(net.model, net.graph, old, _batch(prior))).T
    if released is None:
        crossed = as_columns(first_sums(net.model, net.graph, now, _batch(target))).T
    else:
        crossed = as_columns(released.of(victim, np.arange(len(target[1])))).T
    truth = Reader.of(prior[0], prior[0], prior[1])
    found = [_reading("the rows themselves", truth, target[0], target)]
    pictures = {"rows": np.asarray(target[0], np.float64)}
    owners = net.graph.owners_of_sums(net.pieces)[0]
    for piece in np.unique(owners).tolist():
        own = np.nonzero(owners == piece)[0]
        reader = Reader.of(seen[:, own], prior[0], prior[1])
        found.append(_reading(f"sums that piece {piece + 1} receives", reader, crossed[:, own], target))
        pictures[f"piece {piece + 1}"] = reader.rows(crossed[:, own])
    return found, pictures


def _reading(what: str, reader: Reader, seen: Any, target: Rows) -> Reading:
    found = reader.rows(seen)
    alike = [likeness(own, truth) for own, truth in zip(found, np.asarray(target[0], np.float64), strict=True)]
    right = float(np.mean(reader.read(seen) == target[1]))
    return Reading(what=what, seen=np.shape(seen)[1], right=right, likeness=float(np.mean(alike)))


def _read_differences(
    task: Task, net: SlicedNet, parameters: Tree, prior: Rows, target: Rows, victim: int, gradient: Gradient
) -> tuple[list[Reading], dict[str, Floats]]:
    """Compare the first layer's weights before and after a step; the input is what that layer sees."""
    linear = net.graph.hidden[0].linear
    if len(net.graph.hidden[0].sums) > 1:
        return [], {}
    truth = Reader.of(prior[0], prior[0], prior[1])
    found, pictures = [], {}
    for size in sorted({*BATCHES, task.algorithm.batch}):
        made, rows = [], []
        for begin in range(0, min(len(target[1]), 50 * size) - size + 1, size):
            numbers = np.arange(begin, begin + size)
            slopes = gradient(parameters, _batch((target[0][numbers], target[1][numbers])), victim, numbers)[linear]
            before = np.asarray(parameters[linear]["w"], np.float64)
            after = before - task.algorithm.rate * np.asarray(slopes.get("w", np.zeros_like(before)), np.float64)
            made.append(inputs_from_difference(before, after))
            rows.append(begin)
        alike = [
            max(likeness(own, np.asarray(target[0][at], np.float64)) for at in range(begin, begin + size))
            for own, begin in zip(made, rows, strict=True)
        ]
        labels = [set(target[1][begin : begin + size].tolist()) for begin in rows]
        scaled = np.array([own * _scale(own, prior[0]) for own in made])
        right = (
            float(np.mean([label in own for label, own in zip(truth.read(scaled), labels, strict=True)]))
            if size == 1
            else None
        )
        found.append(
            Reading(
                what=f"weight differences, {size} row{'s' * (size > 1)} in a batch",
                seen=len(made[0]),
                right=right,
                likeness=float(np.mean(alike)),
            )
        )
        if size == 1:
            pictures["weight difference"] = scaled
    return found, pictures


def _scale(found: Floats, prior: Any) -> float:
    """Give a direction the length that rows usually have."""
    norm = float(np.linalg.norm(found))
    return float(np.mean(np.linalg.norm(prior, axis=1))) / norm if norm else 0.0
