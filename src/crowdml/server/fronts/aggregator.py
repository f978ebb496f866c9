"""The aggregator's side of the post office: it takes what other front ends send, and answers."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Hashable, Iterable

from crowdml.core import CrowdError
from crowdml.server.fronts.letters import LARGEST_NOTICE, read_batch, write_answers
from crowdml.server.fronts.links import Links, Reply
from crowdml.server.fronts.other_fronts import TICK_S
from crowdml.server.fronts.post import CHECK_INS, INBOX, MOST_LETTERS, OPEN, Post, own_channel
from crowdml.server.fronts.tunnel import Conversations
from crowdml.server.http.direct import mistake
from crowdml.server.http.exchange import make_check_in, read_message
from crowdml.server.http.requests import Asgi
from crowdml.server.refusals import Answer, Refusal, refusal_of
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.task_writer import BUSY

log = logging.getLogger("crowdml.server")


class Aggregator:
    """Takes letters out of the inbox.

    Args:
        post: Carries them.
        coordinator: All tasks.
        app: Answers requests that others pass on.
        late: Tells whether somebody else may aggregate by now.
        failed: Called when it cannot go on.

    Attributes:
        conversations: Requests that others pass on.
        links: Connections of followers.
    """

    def __init__(
        self,
        post: Post,
        coordinator: Coordinator,
        app: Asgi,
        late: Callable[[], bool],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._post, self._coordinator, self._late, self._failed = post, coordinator, late, failed
        self.conversations = Conversations(post, app)
        self.links = Links(post, coordinator, self._take_linked, late, failed)
        self._working: asyncio.Task[None] | None = None
        self._more = False
        self._closing = False

    async def begin(self, living: Iterable[int] = ()) -> None:
        """Listen for letters and for links; letters of front ends that do not live are never looked at."""
        await self.links.begin()
        await self._post.listen(INBOX)
        await self._post.clear(living)
        self.wake()

    def note_refused(self, task: int, slot: int) -> None:
        """Count a check-in that another front end has refused, because no honest device sends it."""
        running = self._task(task)
        if running is not None and (device := running.devices.get(slot)) is not None:
            device.refused += 1
            self._coordinator.count_refusal("device", "refused check-in", running.id)

    def wake(self) -> None:
        """Look into the inbox: something may have come."""
        self._more = True
        if self._working is None and not self._closing:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Take nothing more. What was taken is answered while the tasks' writers end."""
        self._closing = True
        if self._working is not None:
            await self._working
        await self.conversations.close()

    async def end(self) -> None:
        """Let go of the links: whatever was taken is answered."""
        await self.links.close()

    async def _work(self) -> None:
        try:
            # Once somebody else may aggregate, what lies there is for that one; a tick looks again.
            while self._more and not self._closing and not self._late():
                self._more = False
                letters = await self._post.claim()
                while self._late():  # we were stopped meanwhile: our end is near, or nobody else has come
                    if self._closing:
                        return  # whoever sent these sends them again
                    await asyncio.sleep(TICK_S)
                self._more = self._more or len(letters) == MOST_LETTERS
                for front, kind, number, task, content in letters:
                    if kind == CHECK_INS:
                        reply = functools.partial(self._post.tell, own_channel(front))
                        self._take(front, number, task, content, reply, LARGEST_NOTICE)
                    elif kind == OPEN:
                        self.conversations.begin(front, number, content)
                    else:
                        self.conversations.go_on(front, number, content)
        except Exception as error:
            self._failed(error)
        finally:
            self._working = None

    def _task(self, number: int) -> RunningTask | None:
        return next((each for each in self._coordinator.tasks.values() if each.id == number), None)

    def _take_linked(self, front: Hashable, number: int, task: int, content: bytes, reply: Reply) -> None:
        """Take a batch that came by a link, unless this end is near: its sender has it for whoever aggregates next."""
        if not self._closing:
            self._take(front, number, task, content, reply)

    def _take(
        self, front: Hashable, number: int, task: int, content: bytes, reply: Reply, largest: int | None = None
    ) -> None:
        """Put a batch into the queue of its task; its answers go back together."""
        posted = list(read_batch(content))
        answers: list[Answer | None] = [None] * len(posted)
        left = len(posted)

        def answered(at: int, answer: Answer) -> None:
            nonlocal left
            self._coordinator.count_check_in(answer, running)
            answers[at] = answer
            left -= 1
            if not left:
                for told in write_answers(number, [each for each in answers if each is not None], largest):
                    reply(told)
                if writer is not None and len(posted) >= BUSY:
                    writer.expect(front)

        running = self._task(task)
        writer = self._coordinator.writers[running.name] if running is not None else None
        for at, each in enumerate(posted):
            try:
                if running is None or writer is None:
                    raise Refusal(404, "no-task", "there is no such task")
                device = running.devices.get(each.slot)
                if device is None:
                    raise Refusal(401, "not-authorised", "the token is not valid")
                message = read_message(running, device, each.body, looked_at=True)
                check_in = make_check_in(device, each.key, each.body, message)
                writer.enqueue(check_in, functools.partial(answered, at))
            except CrowdError as error:
                answered(at, refusal_of(error).answer())
            except Exception as error:
                # It costs the one check-in alone: it is sent again to whoever aggregates next, who would end as well.
                answered(at, mistake(error))
        if writer is not None:
            writer.came(front)
