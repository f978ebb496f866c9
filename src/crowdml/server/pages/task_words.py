"""A task in words for whoever meets it first: what is collected, how it is learnt, what a device will do."""

from __future__ import annotations

import sys

from crowdml.core import record
from crowdml.core.targets import Target
from crowdml.task import Task
from crowdml.task.live_task import LiveTask
from crowdml.task.owners.who_sees import sights_of

MOST_NAMED = 12
"""So many columns or labels are named in a sentence; of more their number is told."""


@record
class TaskWords:
    """What never changes of a task, in words.

    Attributes:
        collected: What an owner's row has.
        columns: Names of its columns with their units, where they are too many for a sentence; otherwise empty.
        predicted: What the model predicts from a row, in a sentence.
        labels: The labels, where it predicts one.
        all_labels: The same where they are too many for a sentence; otherwise empty.
        column: The column of a file that holds what is predicted.
        error_means: What an error is a share of; empty where that is clear.
        algorithm: Name of the algorithm.
        how: How it works, in sentences.
        model: Kind of model.
        releases: How often a device sends at most; empty where nothing limits it.
    """

    collected: str
    columns: tuple[str, ...]
    predicted: str
    labels: tuple[str, ...]
    all_labels: tuple[str, ...]
    column: str
    error_means: str
    algorithm: str
    how: str
    model: str
    releases: str


def task_words(live: LiveTask) -> TaskWords:
    """Say what never changes of a task."""
    task, target = live.task, live.task.target
    releases = task.stop.max_releases
    return TaskWords(
        collected=_collected(task),
        columns=_many(task.data.described),
        predicted=predicted(target),
        labels=target.label_names,
        all_labels=_many(target.label_names),
        column=target.column,
        error_means=target.error_in_words,
        algorithm=task.algorithm.kind,
        how=f"{_first_line(task)} {_schedule(live)}",
        model=(type(task.model).__doc__ or task.model.kind).splitlines()[0].partition(";")[0].rstrip("."),
        releases=f"at most {releases} time{'s' * (releases > 1)}" if releases else "",
    )


def predicted(target: Target) -> str:
    """Name what is predicted; of many labels their number.

    >>> from crowdml.core.targets import Labels
    >>> predicted(Labels(names=("still", "walking"))), predicted(Labels(names=tuple(map(str, range(30)))))
    ('one of: still, walking', 'one of 30 labels')
    """
    many = _many(target.label_names)
    return f"one of {len(many)} labels" if many else target.described


def _many(names: tuple[str, ...]) -> tuple[str, ...]:
    return names if len(names) > MOST_NAMED else ()


def _collected(task: Task) -> str:
    """Name the columns of a row, unless they are many."""
    named = task.data.described
    if named and len(named) <= MOST_NAMED:
        return task.data.row_in_words
    return f"{task.data.features} numbers" + (f"; {task.data.id} tells samples apart" if task.data.id else "")


def _first_line(task: Task) -> str:
    """Take the first sentence that the file of an algorithm says of it."""
    module = sys.modules.get(task.recipe.settings.__module__)
    line = ((module and module.__doc__) or task.algorithm.kind).splitlines()[0].strip()
    return line if line.endswith(".") else f"{line}."


def _schedule(live: LiveTask) -> str:
    """Say who waits for whom."""
    schedule, sights = live.server.schedule, sights_of(live.task)
    if sights is not None:
        return sights.course
    if live.masked:
        return (
            "Messages of many devices are masked and added up; the server can read the sum alone, and makes a new "
            "version of it."
        )
    if schedule.invites:
        return (
            f"The server invites {schedule.cohort} device{'s' * (schedule.cohort > 1)} to each round; each goes "
            "through its rows and sends one message, and the server makes a new version of them."
        )
    if schedule.waits:
        return "Every device works at its own speed; the server waits for enough of them, then makes a new version."
    rows = f"A device gathers {schedule.batch} row{'s' * (schedule.batch > 1)} and sends one message; nobody waits."
    if schedule.alone:
        return f"{rows} The server makes a new version of every message as it comes."
    return f"{rows} The server makes a new version of every {schedule.cohort} messages."
