"""The page of a task: what is learnt, from what, what leaves a device, what is promised, who takes part, how well.

What never changes of a task is worked out once. The rest is drawn from one settled snapshot, and written once for it,
however many look on. Browsers that keep a page up to date ask for it again with `?live`: they are given one that may be
a little older, so that many watchers of a busy task cost no more than one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from crowdml.core import record
from crowdml.server.http.control import described, running_of
from crowdml.server.http.documents import Documents
from crowdml.server.pages.group_cards import GroupCard, group_card
from crowdml.server.pages.rendering import WrittenPage
from crowdml.server.pages.task_charts import TaskCharts, clamp, draw_charts
from crowdml.server.pages.task_words import TaskWords, task_words
from crowdml.server.tasks.figures.statistics import Statistics, statistics_of
from crowdml.server.tasks.groups.leak_figure import NOT_MEASURED, LeakFigure
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import Snapshot
from crowdml.task.owners import OwnerPromise
from crowdml.task.owners.who_sees import AUDIENCES, FACTS

LIVE_S = 2.0
"""How old a page may be that only brings another one up to date."""


@record
class SeenBy:
    """A line of the table of who sees what: the thing, and what each audience learns of it, as answer and words."""

    fact: str
    cells: tuple[tuple[str, str], ...]


@record
class TaskPage:
    """What the page of a task shows.

    Attributes:
        summary: How the task stands.
        words: What never changes of it, in words.
        promise: What owners are told: odds, what leaves, who sees what.
        audiences: Who might want to know something: names of the columns of `sees`.
        sees: What each of them learns.
        error: The error to show first, from 0 to 1, as text; empty where none is known.
        error_more: What that error is, in words.
        statistics: What may be shown beyond the summary.
        charts: The same, drawn.
        task_hash: Hash of the signed task.
        groups: Groups of devices that hold pieces of one net, where there are such.
        leak: What can be read of sums that such devices are sent, as was measured; empty where none are sent.
    """

    summary: dict[str, Any]
    words: TaskWords
    promise: OwnerPromise
    audiences: tuple[str, ...]
    sees: tuple[SeenBy, ...]
    error: str
    error_more: str
    statistics: Statistics
    charts: TaskCharts
    task_hash: str
    groups: tuple[GroupCard, ...]
    leak: str


class TaskPages:
    """Makes pages of tasks, and keeps those that are still good.

    Args:
        documents: Has the learning curves.
        groups: `groups(running)`: what can be told of the groups of a task; nothing where it has none.
        leak: `leak(running)`: what the operator has measured of such a task; None: nothing.
    """

    def __init__(
        self,
        documents: Documents,
        groups: Callable[[RunningTask], list[dict[str, Any]]],
        leak: Callable[[RunningTask], LeakFigure | None],
    ) -> None:
        self._documents, self._groups, self._leak = documents, groups, leak
        self._words: dict[str, TaskWords] = {}
        self._made: dict[str, tuple[object, float, WrittenPage]] = {}

    def words(self, running: RunningTask) -> TaskWords:
        """Return what never changes of a task, in words."""
        if running.name not in self._words:
            self._words[running.name] = task_words(running.live)
        return self._words[running.name]

    async def page(self, running: RunningTask, live: bool) -> WrittenPage:
        """Return the page of a task as it stands; with `live`, or as it stood a moment ago."""
        # Groups move on without a new version: their page is never older than a moment.
        mark = running.shown, running.live.sliced is not None and time.monotonic() // LIVE_S
        made = self._made.get(running.name)
        if made and (made[0] == mark or (live and time.monotonic() - made[1] < LIVE_S)):
            return made[2]
        written = WrittenPage.of("task.html", await self.context(running, running.snapshot))
        self._made[running.name] = (mark, time.monotonic(), written)
        return written

    async def context(self, running: RunningTask, now: Snapshot) -> TaskPage:
        """Gather what the page shows."""
        statistics = statistics_of(running, now)
        curve = await self._documents.points(running, now)
        error, error_more = _error(statistics)
        found = await asyncio.to_thread(self._leak, running) if running.live.sliced else None
        leak = found.words if found else NOT_MEASURED if running.live.sliced else ""
        return TaskPage(
            summary=running.summary(now),
            words=self.words(running),
            promise=running.promise,
            audiences=tuple(AUDIENCES.values()),
            sees=_sees(running.promise),
            error=error,
            error_more=error_more,
            statistics=statistics,
            charts=draw_charts(running.live.task.target, statistics, curve, now.state == "stopped"),
            task_hash=running.task_hash,
            groups=tuple(group_card(told) for told in self._groups(running)),
            leak=leak,
        )


def pages_of(request: Request) -> TaskPages:
    """Return what makes the pages of tasks."""
    found: TaskPages = request.app.state.task_pages
    return found


@described("One task, live")
async def task_page(
    request: Request,
    running: Annotated[RunningTask, Depends(running_of)],
    pages: Annotated[TaskPages, Depends(pages_of)],
) -> Response:
    """Show one task, live."""
    return (await pages.page(running, "live" in request.query_params)).respond(request)


def _error(statistics: Statistics) -> tuple[str, str]:
    """Choose the error that is shown first: that of the crowd's own rows, else that on public rows."""
    recent, validated = statistics.recent_error, statistics.validated
    if recent and recent.says_something:
        return f"{clamp(recent.estimate):.2f}", f"Recent error: {recent.words()}"
    if validated and validated.errors:
        last = validated.errors[-1]
        return f"{last.error:.2f}", f"On the operator’s public rows, at version {last.version}"
    return "", f"Noise still hides the recent error: {recent.words()}" if recent else ""


def _sees(promise: OwnerPromise) -> tuple[SeenBy, ...]:
    cells = {(sight.fact, sight.audience): (sight.answer, sight.words) for sight in promise.sees}
    return tuple(
        SeenBy(fact=words, cells=tuple(cells[fact, audience] for audience in AUDIENCES))
        for fact, words in FACTS.items()
    )
