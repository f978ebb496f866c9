"""What a front end knows of tasks that another one aggregates: who may speak, and the version that is stored.

Before a device is given a version, the aggregator is asked by its link whether there is a newer one, or the database
where there is no link; one question serves everybody who came before it was sent. So whichever front end a device asks,
it never sees a version older than one that was shown or acknowledged before.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable

from crowdml.core import record
from crowdml.server.fronts.news import STATES, News, read_news, write_known
from crowdml.server.fronts.post import Post
from crowdml.server.store import StoredTask
from crowdml.server.store.channel import INT4, INT8S, Row, from_int, int8_list
from crowdml.server.tasks.device_tokens import DeviceState, Tokens, token_hash
from crowdml.server.tasks.mutable_task import etag_of, publish
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import Published

LINGER_S = 0.003
"""Where many ask, a question waits so long for those who are about to."""
BUSY = 4

_CODE = "CASE tasks.state WHEN 'open' THEN 1 WHEN 'paused' THEN 2 WHEN 'stopped' THEN 3 ELSE 0 END"
_CHANGED = (
    f"SELECT tasks.id, tasks.version, {_CODE}, tasks.reason, "  # noqa: S608  constants
    "CASE WHEN known.version IS DISTINCT FROM tasks.version AND known.id IS NOT NULL THEN states.server_state END "
    "FROM tasks JOIN states ON states.task = tasks.id LEFT JOIN unnest($1::BIGINT[], $2::BIGINT[], $3::BIGINT[]) "
    "AS known(id, version, state) ON known.id = tasks.id WHERE known.id IS NULL OR (known.version >= 0 "
    f"AND (known.version <> tasks.version OR known.state <> {_CODE}))"
)
_TASK = (
    "SELECT tasks.id, name, state, reason, incarnation, version, check_ins, received, slots, file, signed_text, "
    'signature, "key", server_state, content FROM tasks JOIN signed_tasks ON signed_tasks.task = tasks.id '
    "JOIN states ON states.task = tasks.id LEFT JOIN public_sets ON public_sets.task = tasks.id WHERE tasks.id = $1"
)
_DEVICES = "SELECT id, slot, token_hash, revoked, public_key FROM devices WHERE task = $1"
_DEVICE = f"{_DEVICES} AND slot = $2"
_OPERATOR = "SELECT operator_token_hash FROM server_identity"
_ELSEWHERE = -1
"""Stands for the version of a task whose devices only the aggregator can answer."""


@record
class Shown:
    """A task as this front end shows it.

    Attributes:
        version: Its version; -1 where the aggregator alone can answer its devices.
        state: draft, open, paused or stopped.
        reason: Why it stopped.
        published: The version as devices get it; None where the aggregator alone can answer.
    """

    version: int
    state: str
    reason: str | None
    published: Published | None


class Replica:
    """Keeps up with the database.

    Args:
        post: Asks the database.
        newest: Asks the aggregator which versions are newest; None where the database has to be asked.

    Attributes:
        tokens: Finds devices by their tokens.
        tasks: Every task, by name.
        shown: How each stands, by number.
        well: Whether all goes well: it ends with its connection.
    """

    well = True

    def __init__(self, post: Post, newest: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        """Know nothing yet; `reload` must follow."""
        self._post, self._newest, self.tokens = post, newest, Tokens()
        self.tasks: dict[str, RunningTask] = {}
        self._by_number: dict[int, RunningTask] = {}
        self.shown: dict[int, Shown] = {}
        self._operator = b""
        self._waiting: asyncio.Future[None] | None = None
        self._asking, self._busy, self._asked = False, False, 0
        self._under_way: set[asyncio.Task[None]] = set()

    def is_operator(self, token: bytes) -> bool:
        """Tell the operator's token, as it was when everything was read."""
        return hmac.compare_digest(token_hash(token), self._operator)

    async def is_operator_now(self, token: bytes) -> bool:
        """Tell the operator's token, as it is: the operator may have changed it since."""
        await self._read_operator()
        return self.is_operator(token)

    def answers_itself(self, running: RunningTask) -> bool:
        """Tell whether devices of a task are answered here; where rounds invite or sums are secure, they are not."""
        return self.shown[running.id].published is not None

    async def reload(self) -> None:
        """Read everything anew: somebody else aggregates now, and what that one told last may be lost."""
        await self._read_operator()
        await self.fresh()
        for number in list(self._by_number):
            await self._load_devices(number)

    def fresh(self) -> asyncio.Future[None]:
        """Wait until all that was stored before now is known; whoever waits must not cancel this."""
        self._asked += 1
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
            if not self._asking:
                self._ask()
        return self._waiting

    def forget(self, task: int, slot: int) -> None:
        """Forget a device that came or went: until `look_again` has found it, the aggregator answers it."""
        running = self._by_number.get(task)
        if running is not None and (before := running.devices.pop(slot, None)) is not None:
            before.revoked = True
            self.tokens.remove(before)

    async def look_again(self, task: int, slot: int) -> None:
        """Look at a device again that came or went; the first one of a new task tells of that task."""
        running = self._by_number.get(task)
        if running is None:
            await asyncio.shield(self.fresh())
        else:
            rows = await self._post.channel.run(_DEVICE, (INT4, INT4), task.to_bytes(4), slot.to_bytes(4))
            self.forget(task, slot)
            self._welcome(running, rows)

    async def _read_operator(self) -> None:
        found = await self._post.channel.run(_OPERATOR)
        self._operator = (found[0][0] or b"") if found else b""

    def _ask(self) -> None:
        self._asking = True
        task = asyncio.get_running_loop().create_task(self._answer())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _answer(self) -> None:
        if self._busy:
            await asyncio.sleep(LINGER_S)
        waiting, self._waiting = self._waiting, None
        self._busy, self._asked = self._asked >= BUSY, 0
        assert waiting is not None  # noqa: S101  somebody asks
        try:
            await self._refresh()
        except BaseException as error:
            if not waiting.done():
                waiting.set_exception(error)
        if not waiting.done():
            waiting.set_result(None)
        self._asking = False
        if self._waiting is not None:
            self._ask()

    async def _refresh(self) -> None:
        told = await self._newest(write_known((task, now.version, now.state) for task, now in self.shown.items()))
        for news in read_news(told) if told is not None else await self._ask_database():
            running = self._by_number.get(news.task)
            if running is None:
                await self._load(news.task)
                continue
            before = self.shown[news.task]
            if news.version < before.version:
                continue  # what is shown came from the database, and its aggregator was about to say so
            published = before.published
            if news.body is not None:
                etag = etag_of(running, news.version)
                published = Published(version=news.version, etag=etag, body=news.body, parameters=())
            self.shown[news.task] = Shown(
                version=news.version, state=news.state, reason=news.reason, published=published
            )

    async def _ask_database(self) -> list[News]:
        known, found = self.shown, list[News]()
        lists = (
            int8_list(list(known)),
            int8_list([shown.version for shown in known.values()]),
            int8_list([STATES.index(shown.state) for shown in known.values()]),
        )
        for row in await self._post.channel.run(_CHANGED, (INT8S, INT8S, INT8S), *lists):
            number, version, body = from_int(row[0]), from_int(row[1]), None
            if row[4] is not None:
                running = self._by_number[number]
                body = publish(running, running.live.state.decode(row[4]), version, exported=False).body
            reason = None if row[3] is None else row[3].decode()
            state = STATES[from_int(row[2])]
            found.append(News(task=number, version=version, state=state, reason=reason, body=body))
        return found

    async def _load(self, number: int) -> None:
        (row,) = await self._post.channel.run(_TASK, (INT4,), number.to_bytes(4))
        stored = _stored(row)
        running = RunningTask(stored, choose=lambda version, slots: list(slots), patience_s=1.0)
        live, published, version = running.live, None, _ELSEWHERE
        if not (live.masked or live.sliced or live.server.schedule.invites):
            version = stored.version
            published = publish(running, live.state.decode(stored.server_state), version, exported=False)
        self.shown[number] = Shown(version=version, state=stored.state, reason=stored.reason, published=published)
        self.tasks[stored.name] = self._by_number[number] = running
        await self._load_devices(number)

    async def _load_devices(self, number: int) -> None:
        rows = await self._post.channel.run(_DEVICES, (INT4,), number.to_bytes(4))
        running = self._by_number[number]
        for device in running.devices.values():
            device.revoked = True
            self.tokens.remove(device)
        running.devices.clear()
        self._welcome(running, rows)

    def _welcome(self, running: RunningTask, rows: list[Row]) -> None:
        for row in rows:
            if row[3] == b"\1":
                continue
            device = DeviceState(
                id=(row[0] or b"").decode(),
                task=running.name,
                slot=from_int(row[1]),
                token_hash=row[2] or b"",
                revoked=False,
                public_key=row[4] or b"",
            )
            running.devices[device.slot] = device
            self.tokens.add(device)


def _stored(row: Row) -> StoredTask:
    def text(value: bytes | None) -> str:
        return (value or b"").decode()

    return StoredTask(
        id=from_int(row[0]),
        name=text(row[1]),
        state=text(row[2]),
        reason=None if row[3] is None else text(row[3]),
        incarnation=from_int(row[4]),
        version=from_int(row[5]),
        check_ins=from_int(row[6]),
        received=from_int(row[7]),
        slots=from_int(row[8]),
        file=text(row[9]),
        signed_text=row[10] or b"",
        signature=row[11] or b"",
        key=row[12] or b"",
        server_state=row[13] or b"",
        public=row[14],
    )
