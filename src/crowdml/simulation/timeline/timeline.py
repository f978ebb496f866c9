"""Timeline: who reads which version and who checks in when, before any number is learnt.

None of it depends on the parameters. So NumPy works out the whole course of a trial first (arrivals, delays, losses,
versions, staleness), and the compiled loop only does arithmetic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Algorithm, Barrier, Rounds
from crowdml.algorithms.schedule import Schedule
from crowdml.core import BadInput, record
from crowdml.simulation.timeline.contacts import Course, course_on_arrival
from crowdml.simulation.timeline.orders import Ints, Times
from crowdml.simulation.timeline.rounds import course_of_rounds, course_with_barrier
from crowdml.simulation.timeline.trial_crowd import Dealable, choose_byzantine, choose_epsilons, hand_out
from crowdml.task import Task


@record
class Sent:
    """Who has sent something, and when.

    Attributes:
        device: Which device.
        read: When its parameters were read.
        arrival: When its check-in reached the server, or would have.
    """

    device: Ints
    read: Times
    arrival: Times


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
        sent: Everything that was sent, lost and refused check-ins included.
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
    sent: Sent

    def __len__(self) -> int:
        """Count the check-ins."""
        return len(self.device)

    @property
    def full(self) -> bool:
        """Whether every line of `rows` is real from end to end."""
        return bool((self.counts == self.rows.shape[1]).all())


def make_timeline(
    task: Task, dataset: Dealable, algorithm: Algorithm, generator: np.random.Generator, trial: int = 0
) -> Timeline:
    """Work out the course of one trial; its number matters where every trial splits the rows anew."""
    holdings = hand_out(task, dataset, generator, trial)
    course = _course(task, algorithm.schedule, holdings.owner, generator)
    if not len(course.commits):
        raise BadInput("no check-in ever arrives", where="crowd", hint="less drop-out, shorter outages, or more passes")
    if not course.commits.any():
        raise BadInput(
            f"{len(course.commits)} check-ins arrive, which are too few for a single commit",
            where="algorithm",
            hint="a smaller server-batch, more passes, or less drop-out",
        )
    # Check-ins after the last commit wait in the window and change nothing.
    end = len(course.commits) - int(course.commits[::-1].argmax())
    used = course.accepted.take(slice(end))
    per_device = np.bincount(course.sent.device, minlength=task.crowd.devices)
    return Timeline(
        device=used.device.astype(np.int32, copy=False),
        rows=used.rows if holdings.rows is None else holdings.rows[used.rows],
        counts=used.counts,
        staleness=course.staleness[:end].astype(np.int32, copy=False),
        commits=course.commits[:end],
        samples=np.cumsum(used.counts),
        releases=int(per_device.max()),
        most_rows=int(np.bincount(holdings.owner).max()),
        refused=course.refused,
        silent=int((per_device == 0).sum()),
        times=used.arrival,
        chosen=_of_devices(choose_epsilons(task, generator), used.device, np.int32(-1)),
        lies=_of_devices(choose_byzantine(task, generator), used.device, np.bool_(False)),
        owner=holdings.owner_of_every_row(),
        held=holdings.held,
        sent=Sent(device=course.sent.device, read=course.sent.read, arrival=course.sent.arrival),
    )


def trial_timeline(task: Task, dataset: Dealable, seed: int, trial: int) -> Timeline:
    """Work out the course of one trial of a run, which depends on the seed and the trial's number alone."""
    return make_timeline(task, dataset, task.built, np.random.default_rng([seed, trial]), trial)


def _of_devices(values: Ints | None, device: Ints, otherwise: np.generic) -> Ints:
    """Return what each check-in's device was given; where nobody was given anything, the same for all."""
    return np.broadcast_to(otherwise, len(device)) if values is None else values[device].astype(otherwise.dtype)


def _course(task: Task, schedule: Schedule, owner: Ints, generator: np.random.Generator) -> Course:
    if isinstance(schedule, Barrier):
        course = course_with_barrier(task, schedule, owner, generator)
    elif isinstance(schedule, Rounds):
        course = course_of_rounds(task, schedule, owner, generator)
    else:
        course = course_on_arrival(task, schedule, owner, generator)
    if len(course.sent.counts):
        # With fewer rows a step of a fixed size would take more of them than is accounted for.
        task.calibrated.last.require_rows(int(course.sent.counts.min()))
    return course
