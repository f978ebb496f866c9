"""The aggregator's end of all links: it takes batches from followers, and tells them which versions are newest.

What it tells is what it would show a device itself at that moment, and only while it may: as long as nobody else can
aggregate yet.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Hashable, Iterator

from crowdml.server.fronts.link import SECRET_BYTES, Link
from crowdml.server.fronts.news import News, read_known, write_news
from crowdml.server.fronts.post import Post
from crowdml.server.fronts.to_aggregator import ANSWERS, BATCH, CROWD, HEAD, NEWEST, NEWS
from crowdml.server.tasks.coordinator import Coordinator

log = logging.getLogger("crowdml.server")

MOST_LINKS = 256
"""Connections at once, strangers included; more are cut off."""

Reply = Callable[[str], object]
"""Sends answers to check-ins back."""


class Links:
    """Takes connections of followers.

    Args:
        post: Says where.
        coordinator: All tasks.
        take: Called with the link, number, task and content of each batch, and where its answers go.
        late: Tells whether somebody else may aggregate by now.
        failed: Called when something cannot be read, which is a mistake of ours.
    """

    def __init__(
        self,
        post: Post,
        coordinator: Coordinator,
        take: Callable[[Hashable, int, int, bytes, Reply], None],
        late: Callable[[], bool],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._post, self._coordinator, self._take_batch = post, coordinator, take
        self._late, self._failed = late, failed
        self._links: set[Link] = set()
        self._greeting: set[Link] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._secret = os.urandom(SECRET_BYTES)

    async def begin(self) -> None:
        """Listen, and say where; where that cannot be done, followers go without."""
        host = self._post.host
        try:
            self._server = await asyncio.get_running_loop().create_server(self._welcome, host, 0)
        except OSError as error:
            log.warning("no links can be taken at %s, so check-ins go through the database: %s", host, error)
            return
        port = self._server.sockets[0].getsockname()[1]
        await self._post.put_aggregator(port, self._secret)

    def crowd_changed(self, task: int, slot: int) -> None:
        """Tell followers, before anything they ask from now on is answered, that a device came or went."""
        for link in self._links:
            link.send(HEAD.pack(CROWD, task, slot))

    async def close(self) -> None:
        """End all links; what was sent before still goes."""
        if self._server is not None:
            self._server.close()
        for link in (*self._links, *self._greeting):
            link.close()
        for waiting in self._waiting:
            waiting.cancel()

    def _welcome(self) -> Link:
        link = Link(self._secret, False, self._took, self._links.discard)
        if len(self._links) + len(self._greeting) >= MOST_LINKS:
            link.close()
        self._greeting.add(link)
        link.proved.add_done_callback(lambda done: self._enter(link, done.exception() is None))
        return link

    def _enter(self, link: Link, proved: bool) -> None:
        self._greeting.discard(link)
        if proved and not link.over:
            self._links.add(link)

    def _took(self, link: Link, frame: bytes) -> None:
        if self._late():
            link.close()  # so that it is asked elsewhere at once: a batch is sent again when its link broke
            return
        try:
            kind, number, task = HEAD.unpack_from(frame)
            content = frame[HEAD.size :]
            if kind == BATCH:
                self._take_batch(
                    link, number, task, content, lambda told: link.send(HEAD.pack(ANSWERS, 0, 0) + told.encode())
                )
            elif kind == NEWEST:
                self._answer(link, number, content)
        except Exception as error:
            self._failed(error)

    def _answer(self, link: Link, number: int, known: bytes) -> None:
        if any(writer.storing for writer in self._coordinator.writers.values()):
            # Another follower may find in the database what is not shown here yet.
            waiting = asyncio.get_running_loop().create_task(self._answer_settled(link, number, known))
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)
        else:
            self._tell(link, number, known)

    async def _answer_settled(self, link: Link, number: int, known: bytes) -> None:
        for writer in list(self._coordinator.writers.values()):
            await writer.settled()
        if not self._late():
            self._tell(link, number, known)

    def _tell(self, link: Link, number: int, known: bytes) -> None:
        link.send(HEAD.pack(NEWS, number, 0) + write_news(self._news(read_known(known))))

    def _news(self, known: dict[int, tuple[int, str]]) -> Iterator[News]:
        for running in self._coordinator.tasks.values():
            now = running.snapshot
            version, state = known.get(running.id, (None, ""))
            if version is None:
                yield News(task=running.id, version=now.version, state=now.state)
            elif version >= 0 and (version, state) != (now.version, now.state):
                body = now.published.body if version != now.version else None
                yield News(task=running.id, version=now.version, state=now.state, reason=now.reason, body=body)
