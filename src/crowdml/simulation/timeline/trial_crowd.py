"""The crowd of one trial: which rows it trains on, who holds them, who lies, and which ε owners choose.

Where every trial splits a dataset anew, its split depends on the number of the trial alone, so that the same trials of
different tasks have the same rows, and can be compared one by one.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.simulation.timeline.orders import Ints
from crowdml.task import Task


class Dealable(Protocol):
    """What partitions know of training rows: all that a timeline needs of a dataset."""

    @property
    def train_bins(self) -> Ints:
        """Class of each training row, or the bin of its number."""

    @property
    def train_owners(self) -> Ints | None:
        """Who produced each training row, if that is known."""


@record
class TrialSplit:
    """Row numbers of one trial.

    Attributes:
        train: Rows to train on.
        measured: Rows to measure on, by the name of the measurement.
    """

    train: Ints
    measured: dict[str, Ints]


def trial_split(task: Task, rows: int, trial: int) -> TrialSplit | None:
    """Return the split of a trial; None where all trials have the same."""
    split = task.data.split
    if split is None or split.seed is not None:
        return None
    order = np.random.default_rng([trial]).permutation(rows).astype(np.int32)
    train, test = order[: split.train], order[split.train : split.train + split.test]
    kept = split.train - task.data.validation
    measured = {"test": test} | ({"validation": train[kept:]} if task.data.validation else {})
    return TrialSplit(train=train[:kept], measured=measured)


def rows_handed_out(task: Task, rows: int) -> int:
    """Return how many rows devices get of so many training rows: all, as many as the task says, or one for each."""
    return task.crowd.rows or max(rows, task.crowd.devices)


@record
class Holdings:
    """Who holds which rows.

    Attributes:
        rows: Rows that are trained on, some of them more than once where more are handed out than there are; None where
            each is, once.
        owner: Device of each of those.
        held: Device that holds out a row to measure a model of its own, for every row of the dataset; -1 for others.
    """

    rows: Ints | None
    owner: Ints
    held: Ints

    def owner_of_every_row(self) -> Ints:
        """Return the device of every row of the dataset, -1 for rows that are not trained on."""
        return self.owner if self.rows is None else _everywhere(self.rows, self.owner, len(self.held))


def hand_out(task: Task, dataset: Dealable, generator: np.random.Generator, trial: int) -> Holdings:
    """Deal the training rows of a trial out to its devices."""
    crowd, labels, owners = task.crowd, dataset.train_bins, dataset.train_owners
    none = np.broadcast_to(np.int32(-1), len(labels))
    split = trial_split(task, len(labels), trial)
    if split:
        if crowd.rows is not None or crowd.personal.held_out:
            raise BadInput(
                "every trial splits the rows anew: who holds out which rows is not defined",
                where="data.split",
                hint="give data.split.seed, or leave out crowd.rows and crowd.personal",
            )
        owner = crowd.partition.assign(labels[split.train], None, crowd.devices, generator)
        return Holdings(rows=split.train, owner=owner, held=none)
    count = rows_handed_out(task, len(labels))
    if count == len(labels) and crowd.rows is None and not crowd.personal.held_out:
        owner = crowd.partition.assign(labels, owners, crowd.devices, generator)
        return Holdings(rows=None, owner=owner, held=none)
    if count > len(labels) and crowd.personal.held_out:
        raise BadInput(
            f"{count} rows are handed out of {len(labels)}: what one device holds out another would train on",
            where="crowd.personal.held-out",
            hint=f"at most {len(labels)} devices and rows, or no models of their own",
        )
    times = -(-count // len(labels))
    handed = np.concatenate([generator.permutation(len(labels)) for _ in range(times)])[:count].astype(np.int32)
    owner = crowd.partition.assign(labels[handed], None if owners is None else owners[handed], crowd.devices, generator)
    if not crowd.personal.held_out:
        return Holdings(rows=handed, owner=owner, held=none)
    # The rows are in random order, so the first ones of each device are a fair sample.
    sizes, place = np.bincount(owner), np.empty(len(owner), np.int64)
    place[np.argsort(owner, kind="stable")] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    out = place < np.floor(sizes * crowd.personal.held_out)[owner]
    held = _everywhere(handed[out], owner[out], len(labels))
    return Holdings(rows=handed[~out], owner=owner[~out], held=held)


def _everywhere(rows: Ints, owner: Ints, count: int) -> Ints:
    """Return the device of each of so many rows, -1 for rows that are not named."""
    found = np.full(count, -1, np.int32)
    found[rows] = owner
    return found


def choose_byzantine(task: Task, generator: np.random.Generator) -> npt.NDArray[np.bool_] | None:
    """Choose the devices that lie; drawn last, so that the honest course is the same without them. None: nobody."""
    count = task.crowd.attack.byzantine(task.crowd.devices)
    if not count:
        return None
    lies = np.zeros(task.crowd.devices, bool)
    lies[generator.permutation(task.crowd.devices)[:count]] = True
    return lies


def choose_epsilons(task: Task, generator: np.random.Generator) -> Ints | None:
    """Return which ε each device's owner chooses, by its place among the values; None where there are none."""
    owners = task.crowd.owner_epsilon
    if not owners.values:
        return None
    return generator.permutation(np.repeat(np.arange(len(owners.values)), owners.counts(task.crowd.devices)))
