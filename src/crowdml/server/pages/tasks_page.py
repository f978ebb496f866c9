"""The first page: every task of the server as a card."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request, Response

from crowdml.core import record
from crowdml.server.http.control import coordinator_of, described
from crowdml.server.http.documents import Documents
from crowdml.server.pages.rendering import respond
from crowdml.server.pages.task_charts import Spark, clamp, draw_spark
from crowdml.server.pages.task_words import predicted
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.running_task import RunningTask
from crowdml.task.owners import OwnerPromise

ORDER = {"open": 0, "paused": 1, "draft": 2, "stopped": 3}
"""Tasks that go on stand first."""


@record
class TaskCard:
    """A task in short.

    Attributes:
        summary: How it stands.
        predicted: What its model predicts.
        error: Its error as text; empty where none is known.
        promise: Its promise in a few words.
        spark: Its curve, as small as a word, and in words what it is of.
    """

    summary: dict[str, Any]
    predicted: str
    error: str
    promise: str
    spark: Spark


@record
class TasksPage:
    """What the first page shows: every task in short."""

    tasks: list[TaskCard]


class TaskCards:
    """Makes cards of tasks, and keeps those of which nothing has changed.

    Args:
        documents: Has the learning curves.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._made: dict[str, tuple[int, TaskCard]] = {}

    async def card(self, running: RunningTask) -> TaskCard:
        """Return a task in short."""
        mark, made = running.shown, self._made.get(running.name)
        if made is None or made[0] != mark:
            made = self._made[running.name] = (mark, await _card(running, self._documents))
        return made[1]


def cards_of(request: Request) -> TaskCards:
    """Return what makes the cards of tasks."""
    found: TaskCards = request.app.state.task_cards
    return found


@described("All tasks")
async def tasks_page(
    coordinator: Annotated[Coordinator, Depends(coordinator_of)], makes: Annotated[TaskCards, Depends(cards_of)]
) -> Response:
    """List the tasks."""
    cards = [await makes.card(running) for running in coordinator.tasks.values()]
    cards.sort(key=lambda card: ORDER[card.summary["state"]])
    return respond("tasks.html", TasksPage(tasks=cards))


async def _card(running: RunningTask, documents: Documents) -> TaskCard:
    now = running.snapshot
    validated = [found for found in running.validated if found.version <= now.version]
    error = ""
    if now.recent_error and now.recent_error.says_something:
        error = f"{clamp(now.recent_error.estimate):.2f}"
    elif validated:
        error = f"{validated[-1].error:.2f}"
    return TaskCard(
        summary=running.summary(now),
        predicted=predicted(running.live.task.target),
        error=error,
        promise=_in_short(running.promise),
        spark=draw_spark(await documents.points(running, now), validated),
    )


def _in_short(promise: OwnerPromise) -> str:
    dots = promise.promised.dots if promise.guaranteed else None
    if dots:
        return f"at most {dots.right} of 100 guesses right"
    return "too weak to help" if promise.guaranteed else "no formal guarantee"
