"""A front end that does not aggregate: it answers check-outs, hands check-ins on in batches, and passes on the rest.

A device finds the same routes, the same answers and the same limits at every front end. Check-outs and check-ins of
tasks without rounds are looked at here, as far as that can be done without knowing other check-ins; that is where most
of the time goes. For everything else the aggregator is asked.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, Iterable

from crowdml.core import CrowdError
from crowdml.secure_aggregation.stages import MESSAGES, largest_message
from crowdml.server.fronts.outbox import Outbox
from crowdml.server.fronts.post import INBOX, Post
from crowdml.server.fronts.task_replica import Replica
from crowdml.server.fronts.to_aggregator import ToAggregator
from crowdml.server.fronts.tunnel import Tunnel
from crowdml.server.http.direct import Answered, Expected, ExpectedNothing, mistake
from crowdml.server.http.exchange import read_message, require_headers, version_answer, waiting_answer
from crowdml.server.http.front_door import Access, FrontDoor, RawHandler
from crowdml.server.http.requests import (
    LARGEST_BODY,
    LARGEST_FORM,
    LARGEST_TASK,
    Limiter,
    Receive,
    Request,
    Scope,
    Send,
    length_of,
    read_body,
    read_large_body,
    require_size,
    send_answer,
)
from crowdml.server.http.routes import RAW_ROUTES
from crowdml.server.http.session_cookies import SessionCookies
from crowdml.server.http.websockets.relay import refuse_socket
from crowdml.server.refusals import Answer, Refusal, refusal_of
from crowdml.server.store.channel import BYTES
from crowdml.server.tasks.device_tokens import DeviceState, token_hash
from crowdml.server.tasks.running_task import RunningTask
from crowdml.task.live_task import LiveTask

_OWN = re.compile(r"/v1/tasks/([a-z0-9-]{1,63})/check-(?:out|ins)")
_HEALTH = "/healthz"
MALFORMED = 422
_SESSION = "SELECT 1 FROM operator_sessions WHERE token_hash = $1"


class Follower:
    """The application of such a front end.

    Args:
        post: Carries what goes to the aggregator.
        access: Who may ask.
        devices: Pace of each device, this front end's share of it.
        crowd: Called with task and slot of a device that came or went.

    Attributes:
        always: Headers of every answer.
        replica: What is known of the tasks.
        line: The way to the aggregator.
        outbox: Check-ins under way.
        tunnel: Other requests under way.
    """

    def __init__(self, post: Post, access: Access, devices: Limiter, crowd: Callable[[int, int], None]) -> None:
        self._post, self._devices = post, devices
        self.line = ToAggregator(post, lambda told: self.outbox.take(told), crowd, lambda: self.outbox.send_again())
        self.replica, self.outbox, self.tunnel = Replica(post, self.line.newest), Outbox(self.line.send), Tunnel(post)
        self._strangers = Limiter(access.reader_pace)
        self._cookies = SessionCookies(secure=bool(access.secure_s))
        handlers: dict[str, RawHandler] = {route.handler: _never for route in RAW_ROUTES}
        handlers |= {"exchange.check_out": self._check_out, "exchange.check_in": self._check_in}
        self._door = FrontDoor(
            self.replica,
            handlers,
            self._pass_on,
            access,
            _never_socket,
            {"exchange.check_out": self._expect_check_out, "exchange.check_in": self._expect_check_in},
            _never_socket,
        )
        self.always = self._door.always

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await self._pass_socket_on(scope, receive, send)
        elif scope["path"] == _HEALTH or self._is_own(scope["path"], scope["headers"]):
            await self._door(scope, receive, send)
        else:
            await self._pass_on(scope, receive, send)

    def expect(
        self, method: bytes, url: bytes, headers: list[tuple[bytes, bytes]], address: str, scheme: str
    ) -> Expected | Answer | None:
        """Begin to answer a request without a coroutine; None where it goes the usual way."""
        return self._door.expect(method, url, headers, address, scheme)

    def _is_own(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Tell whether a request is answered here: check-out or check-in of a known device, for such a task."""
        running = self._find(path)
        device = self.replica.tokens.find(_token(headers)) if running is not None else None
        return running is not None and device is not None and device.task == running.name

    def _find(self, path: str) -> RunningTask | None:
        """Find the task of a check-out or check-in, if its devices are answered here."""
        found = _OWN.fullmatch(path)
        running = self.replica.tasks.get(found[1]) if found else None
        return running if running is not None and self.replica.answers_itself(running) else None

    def _admit(self, request: Request) -> tuple[RunningTask, DeviceState]:
        device = self.replica.tokens.find(request.bearer())
        if device is None or device.task != request.task:
            raise Refusal(401, "not-authorised", "the token is not valid")
        return self._pace(device), device

    def _pace(self, device: DeviceState) -> RunningTask:
        """Refuse a device that is too fast; return its task."""
        self._devices.require(device.id)
        return self.replica.tasks[device.task]

    async def _check_out(self, request: Request, receive: Receive) -> Answer:
        running, device = self._admit(request)
        await self.replica.fresh()
        return self._version(running, device, request)

    def _version(self, running: RunningTask, device: DeviceState, request: Request) -> Answer:
        """Give a device the version that is shown; what was stored before it asked must be known."""
        shown = self.replica.shown[running.id]
        if shown.published is None or (device.revoked and self.replica.tokens.find(request.token()) is None):
            # It came or went while it waited. Which of the two is not known yet, and who is told 401 never comes again.
            raise Refusal(503, "busy", "this device is looked up at the moment", retry_after_s=1)
        waiting = waiting_answer(shown.state, shown.reason, lambda: True)
        return waiting or version_answer(shown.published, running.task_hash, request)

    async def _check_in(self, request: Request, receive: Receive) -> Answer:
        expected = self._require(request, *self._admit(request))
        body = await read_large_body(request, receive, expected.size)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        expected.take(body, lambda answer: None if future.done() else future.set_result(answer))
        return await future

    def _expect_check_out(self, request: Request) -> Expected | Answer | None:
        device = self._known(request)
        if device is None or b"content-length" in request.headers:
            return None
        try:
            running = self._pace(device)
        except CrowdError as error:
            return refusal_of(error).answer()

        def know(known: asyncio.Future[None], answered: Answered) -> None:
            try:
                known.result()
                answer = self._version(running, device, request)
            except CrowdError as error:
                answer = refusal_of(error).answer()
            except Exception as error:
                answer = mistake(error)  # nobody else would answer
            answered(answer)

        def answer(answered: Answered) -> None:
            self.replica.fresh().add_done_callback(lambda known: know(known, answered))

        return ExpectedNothing(answer)

    def _expect_check_in(self, request: Request) -> Expected | Answer | None:
        device = self._known(request)
        if device is None:
            return None
        try:
            return self._require(request, self._pace(device), device)
        except CrowdError as error:
            return refusal_of(error).answer()

    def _known(self, request: Request) -> DeviceState | None:
        """Find the device that asks, if it is answered here; else the aggregator answers, or says what is wrong."""
        running = self.replica.tasks.get(request.task)
        if running is None or not self.replica.answers_itself(running):
            return None
        device = self.replica.tokens.find(request.token())
        return device if device is not None and device.task == running.name else None

    def _require(self, request: Request, running: RunningTask, device: DeviceState) -> ExpectedHere:
        key = require_headers(request, running.live.server_messages.check_in.size_bytes)
        return ExpectedHere(running=running, device=device, key=key, outbox=self.outbox, refused=self._note_refused)

    def _note_refused(self, running: RunningTask, device: DeviceState) -> None:
        """Tell the aggregator, which counts what no honest device sends, of a check-in that was refused here."""
        self._post.tell(INBOX, f"refused {running.id} {device.slot}")

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the aggregator answer. What is too long to be believed is passed on by its headers alone."""
        try:
            request = Request.of(scope)
            size = length_of(request.headers.get(b"content-length", b"0"))
            largest = await self._largest(request, self._require_pace(request), size, scope)
            body = await read_body(receive, size) if 0 < size <= largest else b""
        except CrowdError as error:
            await send_answer(send, refusal_of(error).answer())
            return
        await self.tunnel.request(scope, body, receive, send)

    async def _pass_socket_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the aggregator speak, unless whoever asks does so too often."""
        try:
            self._require_pace(Request.of(scope))
        except CrowdError as error:
            await receive()
            await refuse_socket(send, refusal_of(error).answer())
            return
        await self.tunnel.socket(scope, receive, send)

    def _require_pace(self, request: Request) -> DeviceState | None:
        """Refuse whoever asks too often, before anything is passed on; return the device that asks, if it is one."""
        token = request.token()
        device = self.replica.tokens.find(token) if token else None
        if device is not None:
            self._devices.require(device.id)
        elif not (token and self.replica.is_operator(token)):
            self._strangers.require(request.address)
        return device

    async def _largest(self, request: Request, device: DeviceState | None, size: int, scope: Scope) -> int:
        """Say how much is read from whoever asks: not more than any of its messages can have."""
        if size <= LARGEST_BODY:
            return LARGEST_BODY
        if device is not None:
            return max(LARGEST_BODY, largest_of_devices(self.replica.tasks[device.task].live))
        # The database is asked for what is large alone, and paced: nobody's token must not make us ask each time.
        if size <= LARGEST_TASK and (token := request.token()) and await self.replica.is_operator_now(token):
            return LARGEST_TASK
        return LARGEST_FORM if size <= LARGEST_FORM and await self._has_session(scope) else LARGEST_BODY

    async def _has_session(self, scope: Scope) -> bool:
        hashed = token_hash(self._cookies.read(scope["headers"]).encode())
        return bool(await self._post.channel.run(_SESSION, (BYTES,), hashed))


@dataclasses.dataclass(slots=True, kw_only=True)
class ExpectedHere:
    """A check-in that was admitted by its headers. Quick to make, so not frozen.

    Attributes:
        running: Its task.
        device: Who sends it.
        key: Its idempotency key.
        outbox: Sends it to the aggregator.
        refused: Takes note that no honest device sends this.
    """

    running: RunningTask
    device: DeviceState
    key: str
    outbox: Outbox
    refused: Callable[[RunningTask, DeviceState], None]

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return self.running.live.server_messages.check_in.size_bytes

    def take(self, body: bytes | memoryview, answered: Answered) -> None:
        """Send the body on; the answer comes once it is stored, or refused.

        A large one is looked at here, because that takes long. Small ones are looked at together by the aggregator,
        which has to decode them anyway.
        """
        try:
            require_size(len(body), self.size)
            if not self.running.looks_together:
                read_message(self.running, self.device, body)
            self.outbox.enqueue(self.running.id, self.device.slot, self.key, body, answered)
        except CrowdError as error:
            answer = refusal_of(error).answer()
            if answer.status == MALFORMED:
                self.refused(self.running, self.device)
            answered(answer)


def largest_of_devices(live: LiveTask) -> int:
    """Return how many bytes a request of a task's devices has at most."""
    sums = [largest_message(form.terms, name) for form in live.forms for name in MESSAGES]
    return max(sums, default=live.server_messages.check_in.size_bytes)


def _token(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    found = next((value for name, value in headers if name == b"authorization"), b"")
    kind, _, token = found.partition(b" ")
    return token if kind.lower() == b"bearer" else b""


async def _never(request: Request, receive: Receive) -> Answer:
    raise AssertionError("requests for this route are passed on")


async def _never_socket(*_: object) -> None:
    raise AssertionError("these are passed on")
