"""One of several front ends on one PostgreSQL: it follows, or it aggregates.

Whoever holds PostgreSQL's advisory lock aggregates: it has the tasks' writers, and is in every way the server that a
single one is. The others follow. One of them gets the lock when the aggregator ends or is killed, and takes the tasks
up where the database has them. Nobody ever goes back: an aggregator that lost its lock ends, and is started again by
whatever supervises it.

Two can never both store: the lock lives in the connection that writes, and every batch names the version from which it
started.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crowdml.core import BadInput
from crowdml.core.blas_threads import one_blas_thread
from crowdml.server.fronts.aggregator import Aggregator
from crowdml.server.fronts.follower import Follower
from crowdml.server.fronts.other_fronts import DEAF_TICKS, TICK_S, Heart, Neighbours, Silence
from crowdml.server.fronts.post import ALL, INBOX, Post
from crowdml.server.http.direct import Expected
from crowdml.server.http.front_door import Access, FrontDoor
from crowdml.server.http.requests import Limiter, Receive, Scope, Send, send_answer
from crowdml.server.refusals import Answer, Refusal
from crowdml.server.setup.application import FAILED_EXIT, AppLife, end_process, make_door
from crowdml.server.store import Store, StoreFailed, open_store
from crowdml.server.store.open_database import HEAD, VERSION_TABLE
from crowdml.server.store.postgres import DatabaseTaken
from crowdml.server.tasks.coordinator import Coordinator, Options
from crowdml.server.tasks.operator.operator_token import require_identity

log = logging.getLogger("crowdml.server")

AT_ONCE_MS = 100
"""How long a start waits for the lock before it follows."""
WELCOME_S = 1.0
"""How long a start waits for the aggregator to take note of it."""
READY_S = 60.0
"""How long a start waits for tables that another one makes."""
END_S = 10.0
"""How long an end waits for what is being stored. Then the process ends all the same, and its lock with it: whatever
was not acknowledged is sent again, to whoever aggregates then."""
FRAMEWORK = "crowdml.server.setup.framework"
_LATE = Refusal(503, "busy", "this server has not heard from its database for a while", retry_after_s=1)


class FrontEnd:
    """The application of one front end.

    Args:
        url: Address of the database, which is PostgreSQL.
        folder: Where the operator's token is written, by whoever makes it.
        options: How tasks are run.
        access: Who may ask.
        failed: What happens when this front end cannot go on.

    Attributes:
        always: Headers of every answer.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        options: Options = Options(),  # noqa: B008  a frozen record
        access: Access = Access(),  # noqa: B008  a frozen record
        failed: Callable[[BaseException], None] = end_process,
    ) -> None:
        """Open the database: to aggregate if nobody else does, else to follow."""
        self._url, self._folder, self._access, self._failed = url, folder, access, failed
        self._neighbours, self._silence = Neighbours(), Silence()
        self._options = dataclasses.replace(options, shared=self._is_shared, crowd_changed=self._crowd_changed)
        self._devices = Limiter(access.device_pace)
        self._ended = self._alone = self._over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heart: Heart | None = None
        self._welcome = asyncio.Event()
        self._post = Post(url, self._heard, self._lost)
        self._follower = Follower(self._post, access, self._devices, self._crowd_changed_elsewhere)
        self.always = self._follower.always
        self._door: FrontDoor | None = None
        self._aggregator: Aggregator | None = None
        self._life: AppLife | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        try:
            self._store: Store | None = open_store(url, wait_ms=AT_ONCE_MS, locked=self._locked)
            require_identity(self._store, folder)
        except DatabaseTaken:
            self._store = None
        except BaseException:
            self._post.close()
            raise

    @property
    def aggregates(self) -> bool:
        """Whether it is the one that aggregates."""
        return self._door is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            with one_blas_thread():
                await self._live(receive, send)
            return
        if scope["type"] == "http" and self._is_late():
            await send_answer(send, _LATE.answer())
            return
        await (self._door or self._follower)(scope, receive, send)

    def expect(
        self, method: bytes, url: bytes, headers: list[tuple[bytes, bytes]], address: str, scheme: str
    ) -> Expected | Answer | None:
        """Begin to answer a request without a coroutine; None where it goes the usual way."""
        if self._is_late():
            return None
        return (self._door or self._follower).expect(method, url, headers, address, scheme)

    def close(self) -> None:
        """Let go of the database, if `serve` never began."""
        self._ended = True
        if self._heart is not None:
            self._heart.end()
        if self._store is not None:
            self._store.close()
        self._post.close()

    # Life

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._loop = asyncio.get_running_loop()
        try:
            self._post.begin()
            if self._store is not None:
                await self._aggregate(self._store)
            else:
                await self._follow()
        except BaseException:
            await send({"type": "lifespan.startup.failed"})
            raise
        self._begin(self._tick())
        await send({"type": "lifespan.startup.complete"})
        # Loaded now, so that it need not be when this one takes over.
        self._begin(asyncio.to_thread(importlib.import_module, FRAMEWORK))
        await receive()
        await self._end()
        await send({"type": "lifespan.shutdown.complete"})

    async def _end(self) -> None:
        self._ended = True
        # A thread, as the event loop itself may wait for a database that does not answer.
        late = threading.Timer(END_S, _end_late)
        late.daemon = True
        late.start()
        if self._aggregator is not None and self._life is not None:
            await self._aggregator.close()
            await self._life.end()
            await self._aggregator.end()
        self._follower.line.part()
        if self._heart is not None:
            self._heart.end()
        await self._post.tell(ALL, f"bye {self._post.front}")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._post.close()
        late.cancel()

    async def _follow(self) -> None:
        """Begin to follow, once the tables are there; and wait in a thread for the lock."""
        await self._post.tell(ALL, f"here {self._post.front}")
        try:
            async with asyncio.timeout(READY_S):
                while not await self._is_current():
                    await asyncio.sleep(TICK_S)
        except TimeoutError:
            what = f"another server has the database open, and has made no tables in {READY_S:.0f} s"
            raise BadInput(what, where="--db", hint="look at its log") from None
        threading.Thread(target=self._wait_for_lock, name="lock", daemon=True).start()
        await self._follower.replica.reload()
        try:
            await asyncio.wait_for(self._welcome.wait(), WELCOME_S)
        except TimeoutError:
            log.info("no front end aggregates at the moment")
        log.info("front end %d follows", self._post.front)

    async def _is_current(self) -> bool:
        (there,) = await self._post.channel.run(f"SELECT to_regclass('{VERSION_TABLE}') IS NOT NULL")
        if there[0] != b"\1":
            return False
        found = await self._post.channel.run(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608  a constant
        present = (found[0][0] or b"").decode() if found else ""
        if present and present != HEAD:
            raise BadInput(
                f"another server has the database open, whose tables are {present} (this one knows {HEAD})",
                where="--db",
                hint="stop all front ends before one of a release with other tables is started",
            )
        return bool(present)

    def _wait_for_lock(self) -> None:
        """Wait until the lock is ours. Runs in a thread of its own."""
        try:
            store = open_store(self._url, wait_ms=0, locked=self._locked)
            require_identity(store, self._folder)
        except BaseException as error:
            self._call(self._lost, error)
            return
        self._call(lambda: self._begin(self._take_over(store)))

    async def _take_over(self, store: Store) -> None:
        if self._ended:
            store.close()
            return
        try:
            await self._aggregate(store)
        except BaseException as error:
            if not self._ended:
                self._fail(error)

    async def _aggregate(self, store: Store) -> None:
        """Take all tasks up where they are, and let the others know: before, so that nobody trusts who was before."""
        self._store = store
        await self._post.tell(ALL, f"takes {self._post.front}")
        coordinator = Coordinator(store, self._fail, self._options)
        door = make_door(coordinator, self._access, self._fail, self._devices)
        self._life = AppLife(door)
        await self._life.begin()
        self._follower.line.part()
        self._aggregator = Aggregator(self._post, coordinator, door, self._lease_is_over, self._fail)
        await self._aggregator.begin(self._neighbours.fronts)
        self._door = door
        await self._post.tell(ALL, f"aggregates {self._post.front}")
        log.info("front end %d aggregates", self._post.front)

    def _locked(self, process: int) -> None:
        """Begin with signs of life as soon as the lock is ours."""
        self._heart = Heart(self._url, process, lambda error: self._call(self._lost, error))
        self._heart.start()

    def _lost(self, error: BaseException) -> None:
        if not self._ended:
            self._follower.replica.well = False
            self._fail(error)

    async def _tick(self) -> None:
        """Look after whoever waits here, and after neighbours; a database that says nothing must not hold that up."""
        asking: asyncio.Task[None] | None = None
        unanswered = 0
        while True:
            if asking is None or asking.done():
                asking, unanswered = self._begin(self._ask()), 0
            elif (unanswered := unanswered + 1) >= DEAF_TICKS:
                raise StoreFailed(f"the database said nothing for {DEAF_TICKS * TICK_S:.0f} s")
            for front in self._neighbours.expire():
                self._forget(front)
            self._devices.share(1 + len(self._neighbours.fronts))
            self._follower.outbox.give_up_late()
            if self._aggregator is not None:
                self._alone = not self._neighbours.fronts
                self._aggregator.wake()
            elif not self._follower.line.linked:
                self._begin(self._follower.line.meet())
            await asyncio.sleep(TICK_S)

    async def _ask(self) -> None:
        """Say that we live; end the connection of an aggregator that was silent for too long."""
        await self._post.tell(ALL, f"here {self._post.front}")
        if self._aggregator is not None:
            return
        self._silence.tick()
        if self._silence.begun:
            holder = await self._post.holder()
            if self._silence.too_long(holder) and holder is not None:
                log.warning("the aggregator is silent: its connection is ended, so that another takes over")
                await self._post.end_holder(holder)
                self._silence.beat()

    def _forget(self, front: int) -> None:
        """Let go of what a front end that is gone has asked, and of what it was answered."""
        if self._aggregator is not None:
            self._aggregator.conversations.forget(front)
            self._begin(self._post.sweep(front))

    # News

    def _heard(self, channel: str, told: str) -> None:
        """Take note of a notification."""
        if channel == INBOX:
            if self._aggregator is not None and told:
                self._aggregator.note_refused(*(int(each) for each in told.split(" ")[1:]))
            elif self._aggregator is not None:
                self._aggregator.wake()
        elif channel != ALL:
            if told:
                self._follower.outbox.take(told)
            else:
                self._begin(self._follower.tunnel.collect())
        else:
            self._heard_by_all(*told.split(" "))

    def _heard_by_all(self, what: str, *more: str) -> None:
        numbers = [int(each) for each in more]
        if what == "beat":
            self._silence.beat()
        elif what == "crowd" and not self.aggregates:
            self._crowd_changed_elsewhere(*numbers)
        elif what == "here" and numbers[0] != self._post.front:
            self._alone = False
            if self._neighbours.hear(numbers[0]) and self.aggregates:
                self._post.tell(ALL, f"welcome {numbers[0]}")
        elif what == "welcome" and numbers[0] == self._post.front:
            if self._welcome.is_set():
                # We were stopped for so long that the aggregator took us for gone, and let go of what we had asked.
                self._follower.tunnel.lose()
            self._welcome.set()
        elif what == "bye" and numbers[0] != self._post.front:
            self._neighbours.leave(numbers[0])
            self._forget(numbers[0])
        elif what == "takes":
            self._doubt(numbers[0])
        elif what == "aggregates":
            self._doubt(numbers[0])
            self._welcome.set()
            self._silence.beat()
            self._post.tell(ALL, f"here {self._post.front}")
            self._begin(self._meet_aggregator())

    def _doubt(self, taker: int) -> None:
        """Believe nobody who aggregated before: another front end has the lock by now."""
        if taker != self._post.front:
            self._follower.line.part()
            if self._heart is not None:
                self._heart.doubt()

    async def _meet_aggregator(self) -> None:
        """Begin anew with whoever aggregates now."""
        self._follower.line.part()
        if not self.aggregates:
            await self._follower.replica.reload()
        self._follower.outbox.send_again()
        self._follower.tunnel.lose()
        if not self.aggregates:
            await self._follower.line.meet()

    def _crowd_changed(self, task: int, slot: int) -> None:
        def tell() -> None:
            if self._aggregator is not None:
                self._aggregator.links.crowd_changed(task, slot)
            # Also where nobody else is known: whoever was stopped for long is forgotten, and still hears it.
            self._post.tell(ALL, f"crowd {task} {slot}")

        self._call(tell)

    def _crowd_changed_elsewhere(self, task: int, slot: int) -> None:
        self._follower.replica.forget(task, slot)
        self._begin(self._follower.replica.look_again(task, slot))

    def _is_shared(self) -> bool:
        return not self._alone

    def _is_late(self) -> bool:
        """Tell whether somebody else may aggregate by now, of which we have not heard.

        Either we were stopped for a while, or we are cut off from the database: then a front end may have come of which
        we know nothing, so that this holds as well where there is no other.
        """
        return self._door is not None and self._lease_is_over()

    def _lease_is_over(self) -> bool:
        return self._over or (self._heart is not None and not self._heart.lasts)

    def _fail(self, error: BaseException) -> None:
        """End; whoever asks until then is asked to come again, as another may aggregate at any moment."""
        self._over = True
        self._failed(error)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call something in the event loop, from whichever thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _begin(self, work: Any) -> asyncio.Task[None]:
        assert self._loop is not None  # noqa: S101  it runs
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._lost(error)


def _end_late() -> None:
    log.critical("the database did not answer for %d s, so this server ends as it is", END_S)
    os._exit(FAILED_EXIT)
