"""Timeline: who reads which version and who checks in when, before any number is learnt.

None of it depends on the parameters. So NumPy works out the whole course of a trial first (arrivals, delays, losses,
versions, staleness), and the compiled loop only does arithmetic.
"""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Algorithm, Counts, Task
from crowdml.core import NUMPY, BadInput, record
from crowdml.data import Dataset
from crowdml.simulation.barriers import make_barrier_course
from crowdml.simulation.contacts import Contacts, Times, make_contacts
from crowdml.simulation.rounds import make_rounds
from crowdml.simulation.splits import trial_split

Ints = npt.NDArray[Any]


@record
class Timeline:
    """The course of one trial: accepted check-ins in the order in which the server absorbs them.

    Attributes:
        device: Which device.
        rows: Training rows in the batch, shape (check-ins, width); only the first `counts` of each line are real.
        counts: Rows in the batch.
        staleness: Versions committed between check-out and absorption.
        commits: Whether a commit follows.
        samples: Rows used so far, this check-in included.
        releases: Most check-ins any one device made, lost and refused ones included: they are spent.
        most_rows: Most rows any one device holds.
        refused: Check-ins that arrived too old.
        silent: Devices that never sent anything.
        times: When each arrived: in samples of the crowd, or in the time that a device of middling speed works on a
            check-in, where devices are invited or work over and over.
        lies: Whether the device lies; all False where nobody does.
        owner: Device of each training row, -1 for rows that are not trained on.
        held: Device that holds out a row to measure a model of its own, -1 for all others.
        chosen: Which of the values of `crowd.owner-epsilon` the device's owner has chosen; -1 where there are none.
    """

    device: Ints
    rows: Ints
    counts: Ints
    staleness: Ints
    commits: npt.NDArray[np.bool_]
    samples: Ints
    releases: int
    most_rows: int
    refused: int
    silent: int
    times: Times
    chosen: Ints
    lies: npt.NDArray[np.bool_]
    owner: Ints
    held: Ints

    def __len__(self) -> int:
        """Count the check-ins."""
        return len(self.device)

    @property
    def full(self) -> bool:
        """Whether every line of `rows` is real from end to end."""
        return bool((self.counts == self.rows.shape[1]).all())


def make_timeline(
    task: Task, dataset: Dataset, algorithm: Algorithm, generator: np.random.Generator, trial: int = 0
) -> Timeline:
    """Work out the course of one trial; its number matters where every trial splits the rows anew."""
    crowd = task.crowd
    handed, owner, held = _hand_out(task, dataset, generator, trial)
    course = make_barrier_course(task, algorithm, owner, generator) if algorithm.barrier else None
    if course:
        contacts = course.contacts
    elif algorithm.rounds:
        contacts = make_rounds(task, algorithm.rounds, owner, generator)
    else:
        contacts = make_contacts(crowd, task.passes, owner, algorithm.batch, algorithm.buffer, generator)
        contacts = _limited(contacts, task.stop.max_releases)
    _require_rows(task, contacts)
    per_device = np.bincount(contacts.device, minlength=crowd.devices)
    if crowd.drop_out:
        contacts = contacts.take(np.flatnonzero(generator.random(len(contacts.device)) >= crowd.drop_out))
    if course is None:
        contacts = contacts.take(np.argsort(contacts.arrival, kind="stable"))
    masking = task.masking()
    if algorithm.rounds and masking:
        contacts = _enough(contacts, masking.least)
    if course:
        accepted, staleness, commits = np.arange(len(contacts.device)), course.staleness, course.commits
    elif algorithm.rounds:
        accepted, staleness, commits = _serve_rounds(contacts)
    else:
        accepted, staleness, commits = _serve(contacts, algorithm, task.stop.max_versions)
    if not len(accepted):
        raise BadInput("no check-in ever arrives", where="crowd", hint="less drop-out, shorter outages, or more passes")
    if not commits.any():
        raise BadInput(
            f"{len(accepted)} check-ins arrive, which are too few for a single commit",
            where="algorithm",
            hint="a smaller server-batch, more passes, or less drop-out",
        )
    # Check-ins after the last commit wait in the window and change nothing.
    end = int(np.flatnonzero(commits)[-1]) + 1
    refused = len(contacts.device) - len(accepted)
    accepted, staleness, commits = accepted[:end], staleness[:end], commits[:end]
    used = contacts.take(accepted)
    return Timeline(
        device=used.device.astype(np.int32),
        rows=used.rows if handed is None else handed[used.rows],
        counts=used.counts,
        staleness=staleness.astype(np.int32),
        commits=commits,
        samples=np.cumsum(used.counts),
        releases=int(per_device.max()),
        most_rows=int(np.bincount(owner).max()),
        refused=refused,
        silent=int((per_device == 0).sum()),
        times=used.arrival,
        chosen=_choices(task, generator)[used.device].astype(np.int32),
        lies=_liars(task, generator)[used.device],
        owner=owner if handed is None else _everywhere(handed, owner, dataset),
        held=held,
    )


def _require_rows(task: Task, contacts: Contacts) -> None:
    """Refuse contacts with so few rows that a step of a fixed size would take more of them than is accounted for."""
    steps = task.plan(task.model_for(NUMPY)).steps
    if steps and len(contacts.counts) and contacts.counts.min() < steps.least_rows:
        raise BadInput(
            f"a device has {contacts.counts.min()} rows to choose from, of which a step takes {steps.batch}: more than "
            f"{steps.share:.4g} of them",
            where="privacy.sampling-rate",
            hint=f"at least {steps.batch / contacts.counts.min():.4g}, or a smaller local-batch",
        )


def _hand_out(
    task: Task, dataset: Dataset, generator: np.random.Generator, trial: int
) -> tuple[Ints | None, Ints, Ints]:
    """Return which rows are trained on (None: all), the device of each of those, and who holds out which row."""
    crowd, labels, owners = task.crowd, dataset.train_labels, dataset.train_owners
    none = np.full(len(labels), -1, np.int32)
    split = trial_split(task, len(labels), trial)
    if split:
        if crowd.rows is not None or crowd.personal.held_out:
            raise BadInput(
                "every trial splits the rows anew: who holds out which rows is not defined",
                where="data.split",
                hint="give data.split.seed, or leave out crowd.rows and crowd.personal",
            )
        return split.train, crowd.partition.assign(labels[split.train], None, crowd.devices, generator), none
    if crowd.rows is None and not crowd.personal.held_out:
        return None, crowd.partition.assign(labels, owners, crowd.devices, generator), none
    if crowd.rows is not None and crowd.rows > len(labels):
        raise BadInput(f"there are {len(labels)} training rows", where="crowd.rows", hint=f"rows = {len(labels)}")
    handed = generator.permutation(len(labels))[: crowd.rows].astype(np.int32)
    owner = crowd.partition.assign(labels[handed], None if owners is None else owners[handed], crowd.devices, generator)
    # The rows are in random order, so the first ones of each device are a fair sample.
    place = np.empty(len(owner), np.int64)
    place[np.argsort(owner, kind="stable")] = np.concatenate([np.arange(count) for count in np.bincount(owner)])
    out = place < np.floor(np.bincount(owner) * crowd.personal.held_out)[owner]
    return handed[~out], owner[~out], _everywhere(handed[out], owner[out], dataset)


def _everywhere(rows: Ints, owner: Ints, dataset: Dataset) -> Ints:
    """Return the device of every row, -1 for rows that are not named."""
    found = np.full(len(dataset.train_labels), -1, np.int32)
    found[rows] = owner
    return found


def _liars(task: Task, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Choose the devices that lie; drawn last, so that the honest course is the same without them."""
    lies, count = np.zeros(task.crowd.devices, bool), task.crowd.attack.liars(task.crowd.devices)
    if count:
        lies[generator.permutation(task.crowd.devices)[:count]] = True
    return lies


def _choices(task: Task, generator: np.random.Generator) -> Ints:
    """Return which ε each device's owner chooses, by its place among the values."""
    owners = task.crowd.owner_epsilon
    if not owners.values:
        return np.full(task.crowd.devices, -1)
    return generator.permutation(np.repeat(np.arange(len(owners.values)), owners.counts(task.crowd.devices)))


def _limited(contacts: Contacts, max_releases: int | None) -> Contacts:
    """Drop what a device would send beyond its limit."""
    if max_releases is None:
        return contacts
    order = np.lexsort((contacts.filled, contacts.device))
    counts = np.bincount(contacts.device)
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return contacts.take(np.sort(order[place < max_releases]))


def _enough(contacts: Contacts, least: int) -> Contacts:
    """Give up rounds that have lost too many: nothing of a masked sum can then be used, though all of it is spent."""
    _, rounds, counts = np.unique(contacts.read, return_inverse=True, return_counts=True)
    return contacts.take(np.flatnonzero(counts[rounds] >= least))


def _serve_rounds(contacts: Contacts) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Use everything, and end a round with the last of its check-ins that arrive."""
    total = len(contacts.device)
    return np.arange(total), np.zeros(total, np.int64), np.diff(contacts.read, append=np.inf) > 0


def _serve(
    contacts: Contacts, algorithm: Algorithm, max_versions: int | None
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Return which contacts are used, how stale each of those is, and after which a commit follows."""
    total = len(contacts.device)
    if algorithm.always_ready:
        # If all are accepted, the version at any time is the number of arrivals before it.
        staleness = np.arange(total) - np.searchsorted(contacts.arrival, contacts.read, side="left")
        if total == 0 or algorithm.accepts(int(staleness.max())):
            used = total if max_versions is None else min(total, max_versions)
            return np.arange(used), staleness[:used], np.ones(used, bool)
    return _serve_one_by_one(contacts, algorithm, max_versions)


def _serve_one_by_one(
    contacts: Contacts, algorithm: Algorithm, max_versions: int | None
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    accepted, staleness, commits = [], [], []
    commit_times: list[float] = []
    received = 0
    for index, (read, arrival) in enumerate(zip(contacts.read.tolist(), contacts.arrival.tolist(), strict=True)):
        version = len(commit_times)
        if version == max_versions:
            break
        age = version - bisect.bisect_left(commit_times, read)
        if not algorithm.accepts(age):
            continue
        received += 1
        ready = algorithm.ready(Counts(received=received, version=version))
        if ready:
            commit_times.append(arrival)
            received = 0
        accepted.append(index)
        staleness.append(age)
        commits.append(ready)
    return np.array(accepted, np.int64), np.array(staleness, np.int64), np.array(commits, bool)
