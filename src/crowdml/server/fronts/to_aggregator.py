"""How a follower reaches whoever aggregates: by a link of their own where there is one, else through the database.

The link carries batches of check-ins, their answers, and the question for the newest version. Nothing depends on it: a
batch whose link broke is sent again through the database, and a question that is not answered in time is asked there.
Where no connection can be made, because of a firewall between the two, all goes through the database.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import struct
from collections.abc import Callable

from crowdml.server.fronts.link import GREET_S, Link, Place
from crowdml.server.fronts.post import Post

log = logging.getLogger("crowdml.server")

BATCH, ANSWERS, NEWEST, NEWS, CROWD = range(5)
"""Kinds of frames: check-ins, their answers; the question for the newest versions, its answer; who came or went."""
HEAD = struct.Struct(">BQQ")
"""Of a frame: its kind, and two numbers that belong to it."""
ANSWER_S = 1.0
"""Seconds after which the database is asked instead: the aggregator may be busy, stopped or gone."""
MOST_UNANSWERED = 3
"""After so many questions in a row a link is let go of: nothing passes, though neither end was told that it is over."""


class ToAggregator:
    """A follower's way to the aggregator.

    Args:
        post: Carries letters where there is no link.
        answered: Called with answers to check-ins.
        crowd: Called with task and slot of a device that came or went.
        broken: Called when a link broke: what was sent by it may be lost.
    """

    def __init__(
        self,
        post: Post,
        answered: Callable[[str], None],
        crowd: Callable[[int, int], None],
        broken: Callable[[], None],
    ) -> None:
        self._post, self._answered, self._crowd, self._broken = post, answered, crowd, broken
        self._link: Link | None = None
        self._meeting = self._complained = False
        self._parted = self._unanswered = 0
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[bytes | None]] = {}

    @property
    def linked(self) -> bool:
        """Whether there is a link."""
        return self._link is not None

    async def meet(self) -> None:
        """Make a link to whoever aggregates, unless there is one."""
        if self._meeting or self._link is not None:
            return
        self._meeting, parted = True, self._parted
        try:
            place = await self._post.find_aggregator()
            if place is not None and place.front != self._post.front:
                link = await self._dial(place)
                if parted != self._parted:
                    link.close()  # somebody else aggregates by now
                    return
                self._link = link
                log.info("front end %d is linked with %d", self._post.front, place.front)
                self._complained = False
        except (OSError, TimeoutError) as error:
            if not self._complained:
                log.warning("no link to the aggregator, so check-ins go through the database: %r", error)
            self._complained = True
        finally:
            self._meeting = False

    def part(self) -> None:
        """Let go of the link: another front end aggregates now."""
        self._parted += 1
        self._unanswered = 0
        link, self._link = self._link, None
        if link is not None:
            link.close()
        for asked in self._asked.values():
            _nothing(asked)

    def send(self, kind: int, number: int, content: bytes, task: int) -> None:
        """Send a batch of check-ins."""
        if self._link is not None:
            self._link.send(HEAD.pack(BATCH, number, task) + content)
        else:
            self._post.send(kind, number, content, task)

    async def newest(self, known: bytes) -> bytes | None:
        """Ask for the newest versions; None where the database has to be asked."""
        if self._link is None:
            return None
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[bytes | None] = loop.create_future()
        self._asked[number] = asked
        late = loop.call_later(ANSWER_S, self._is_late, asked)
        self._link.send(HEAD.pack(NEWEST, number, 0) + known)
        try:
            return await asked
        finally:
            late.cancel()
            del self._asked[number]

    async def _dial(self, place: Place) -> Link:
        async with asyncio.timeout(GREET_S):
            _, link = await asyncio.get_running_loop().create_connection(
                lambda: Link(place.secret, True, self._took, self._lost), place.host, place.port
            )
            # Not the future itself: it belongs to the link, which ends by its own clock.
            await asyncio.shield(link.proved)
        return link

    def _is_late(self, asked: asyncio.Future[bytes | None]) -> None:
        if asked.done():
            return
        _nothing(asked)
        self._unanswered += 1
        if self._unanswered >= MOST_UNANSWERED and self._link is not None:
            self._lost(self._link)

    def _took(self, link: Link, frame: bytes) -> None:
        if link is not self._link:
            return  # of an aggregator that is no more
        self._unanswered = 0
        kind, number, more = HEAD.unpack_from(frame)
        if kind == ANSWERS:
            self._answered(frame[HEAD.size :].decode())
        elif kind == CROWD:
            self._crowd(number, more)
        elif kind == NEWS and (asked := self._asked.get(number)) is not None and not asked.done():
            asked.set_result(frame[HEAD.size :])

    def _lost(self, link: Link) -> None:
        if link is self._link:
            log.info("the link to the aggregator is lost")
            self.part()
            self._broken()


def _nothing(asked: asyncio.Future[bytes | None]) -> None:
    """Say that nothing came, where nobody has said anything yet."""
    if not asked.done():
        asked.set_result(None)
