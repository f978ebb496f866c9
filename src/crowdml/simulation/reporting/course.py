"""The course of a run: versions, messages and uses of the privacy budget at every point of the curve.

All of it follows from timelines, which are worked out before anything is learnt: nothing is measured while a run lasts,
but the clock's time.

A message is counted when its device has read the parameters, whether it arrives or is lost: what was released is spent.
So ε so far is never less than what devices have spent, and in the end it is what the result says of the whole task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdml.core import NUMPY, record
from crowdml.simulation.prepare import numbers
from crowdml.simulation.timeline.timeline import Timeline
from crowdml.simulation.timeline.trial_crowd import rows_handed_out
from crowdml.task import Task
from crowdml.task.live_task import example_check_in, first_broadcast
from crowdml.wire import layouts

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LATER = 1 + 1e-9
"""Times are sums of floats: what begins at the end of a round has not begun before it."""


@record
class RunCourse:
    """What has happened at every point of the curve.

    Attributes:
        versions: Commits so far, shape (points, trials).
        sent: Check-ins sent so far, those included that are lost or refused, shape (points, trials).
        bytes_up: Bytes of one check-in; None where that is not known.
        bytes_down: Bytes of one check-out; None where that is not known.
        uses: Releases that any one sample has entered so far at most, shape (points,).
        releases: Releases that any one device has made so far at most, shape (points,).
        group: Rows of one device in a release at most.
        seconds: Wall time since the run began, shape (points,); not a number before the point where it was resumed.
    """

    versions: Floats
    sent: Floats
    bytes_up: int | None
    bytes_down: int | None
    uses: Ints
    releases: Ints
    group: int
    seconds: Floats

    def up(self) -> Floats:
        """Return the bytes sent by devices, shape (points, trials); not numbers where they are not known."""
        return self.sent * (np.nan if self.bytes_up is None else self.bytes_up)

    def down(self) -> Floats:
        """Return the bytes sent to devices, shape (points, trials); not numbers where they are not known."""
        return self.sent * (np.nan if self.bytes_down is None else self.bytes_down)


def run_course(
    task: Task, timelines: Sequence[Timeline], ends: Ints, seconds: Floats, rows: int, whole_run: bool
) -> RunCourse:
    """Work out the course of a run.

    Args:
        task: The task.
        timelines: One per trial.
        ends: Check-ins absorbed at every point, shape (points, trials).
        seconds: Wall time at every point.
        rows: Training rows.
        whole_run: Whether the timelines were followed to their ends; not where a task has stopped early.
    """
    found = [_of_trial(task, timeline, ends[:, at], rows) for at, timeline in enumerate(timelines)]
    uses, releases = (np.max([each[name] for each in found], axis=0) for name in ("uses", "releases"))
    sent = np.stack([each["sent"] for each in found], axis=1).astype(np.float64)
    if whole_run:  # what was sent after the last version is spent, too
        releases[-1] = max(timeline.releases for timeline in timelines)
        uses[-1] = total_uses(task, int(releases[-1]))
        sent[-1] = [len(timeline.sent.device) for timeline in timelines]
    up, down = message_bytes(task)
    most_rows = max(timeline.most_rows for timeline in timelines)
    return RunCourse(
        versions=np.stack([each["versions"] for each in found], axis=1).astype(np.float64),
        sent=sent,
        bytes_up=up,
        bytes_down=down,
        uses=uses,
        releases=releases,
        group=most_rows if task.calibrated.last.once else max(timeline.rows.shape[1] for timeline in timelines),
        seconds=seconds,
    )


def total_uses(task: Task, releases: int) -> int:
    """Return how many releases a sample is behind at most: one per pass, or all of a device where rows stay."""
    return releases if task.rows_stay else min(task.passes, releases)


def _of_trial(task: Task, timeline: Timeline, ends: Ints, rows: int) -> dict[str, Ints]:
    """Count versions, messages, releases and uses at every point of one trial."""
    times = np.array([timeline.times[end - 1] if end else -1.0 for end in ends])
    contacts = timeline.sent
    begun = np.minimum(contacts.arrival, contacts.read * LATER)
    points = np.searchsorted(times, begun)  # the first point by which each was sent
    counts = np.bincount(points, minlength=len(ends) + 1)[: len(ends)]
    device = contacts.device[np.argsort(points, kind="stable")]
    releases, so_far = [], np.zeros(task.crowd.devices, np.int64)
    for part in np.split(device, np.cumsum(counts))[: len(ends)]:
        so_far += np.bincount(part, minlength=task.crowd.devices)
        releases.append(int(so_far.max()))
    most = np.array(releases)
    commits = np.concatenate([[0], np.cumsum(timeline.commits)])
    handed = rows_handed_out(task, task.data.split.train if task.data.split else rows)
    passes = np.clip(np.floor(times / handed).astype(np.int64) + 1, 1, task.passes)
    uses = most if task.rows_stay else np.minimum(passes, most)
    return {"versions": commits[ends], "sent": np.cumsum(counts), "releases": most, "uses": uses}


def message_bytes(task: Task) -> tuple[int | None, int | None]:
    """Return the bytes of a check-in and of a check-out: 0 where nothing is sent, None where it is not a message.

    Secure aggregation sends keys and shares beside; they are not counted.
    """
    if task.releases.sends == "nothing":
        return 0, 0
    if task.releases.sends == "rows":
        return None, None
    # What was assembled already will do, but where noise needs a matrix, which is among a run's numbers.
    needs = any(sanitiser.wants_matrix for sanitiser in task.calibrated.sanitisers)
    algorithm = task.build(NUMPY, numbers(task)) if needs else task.built
    broadcast = first_broadcast(algorithm)
    with np.errstate(all="ignore"):  # coins that always show zero have no direction
        messages = layouts(broadcast, example_check_in(algorithm, algorithm.last, broadcast, task.features))
    return messages.check_in.size_bytes, messages.check_out.size_bytes
