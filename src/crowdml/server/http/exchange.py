"""Check-out and check-in: the two routes that devices use all day, as raw ASGI.

The order of tests is the order of cost: headers, token, pace, size, then the body, its header, its numbers. Nothing a
stranger sends is parsed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from crowdml.core import CrowdError
from crowdml.core.errors import MalformedMessage
from crowdml.server.http.direct import Answered, Expected, ExpectedNothing, mistake
from crowdml.server.http.requests import Limiter, Receive, Request, length_of, read_large_body, require_size
from crowdml.server.refusals import Answer, Refusal, refusal_of
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.folding import CheckIn, require_open
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import Published
from crowdml.server.tasks.task_writer import Writer

OCTETS = b"application/octet-stream"
KEY = re.compile(rb"[A-Za-z0-9_-]{8,64}")
"""Of an idempotency key."""
_ROUND_WAIT_S = 1


class Exchange:
    """The two routes.

    Args:
        coordinator: All tasks.
        devices: Pace of each device.
        strangers: Pace of each address that shows no valid token.
    """

    def __init__(self, coordinator: Coordinator, devices: Limiter, strangers: Limiter) -> None:
        self._coordinator, self._devices, self._strangers = coordinator, devices, strangers

    async def check_out(self, request: Request, receive: Receive) -> Answer:
        """Answer a check-out."""
        try:
            running, device = self.admit(request)
            if self._coordinator.options.shared():
                await self._coordinator.writers[running.name].settled()
            answer = self._check_out(running, device, request)
        except CrowdError as error:
            answer = refusal_of(error).answer()
        self._coordinator.check_outs[answer.status] += 1
        return answer

    def expect_check_out(self, request: Request) -> Expected | Answer | None:
        """Begin the same without waiting for anything; a check-out with a body goes the usual way."""
        if b"content-length" in request.headers:
            return None
        try:
            running, device = self.admit(request)
        except CrowdError as error:
            answer = refusal_of(error).answer()
            self._coordinator.check_outs[answer.status] += 1
            return answer

        def settled(answered: Answered) -> None:
            try:
                answer = self._check_out(running, device, request)
            except CrowdError as error:
                answer = refusal_of(error).answer()
            except Exception as error:
                answer = mistake(error)  # where this is called later, nobody else would answer
            self._coordinator.check_outs[answer.status] += 1
            answered(answer)

        if not self._coordinator.options.shared():
            return ExpectedNothing(settled)
        writer = self._coordinator.writers[running.name]
        return ExpectedNothing(lambda answered: writer.when_settled(lambda: settled(answered)))

    async def check_in(self, request: Request, receive: Receive) -> Answer:
        """Answer a check-in, once it is stored."""
        try:
            expected = self._expect(request)
            body = await read_large_body(request, receive, expected.size)
            answer = await expected.writer.submit(expected.read(body))
        except CrowdError as error:
            answer = refusal_of(error).answer()
        return self._counted(answer, self._coordinator.tasks.get(request.task))

    def expect_check_in(self, request: Request) -> ExpectedCheckIn | Answer:
        """Begin the same without waiting for anything: admit a check-in by its headers, or refuse it."""
        try:
            return self._expect(request)
        except CrowdError as error:
            return self._counted(refusal_of(error).answer())

    def admit(self, request: Request) -> tuple[RunningTask, DeviceState]:
        """Find the device by its token; whoever has none learns nothing about tasks."""
        token = request.bearer()
        device = self._coordinator.tokens.find(token)
        if device is None and self._coordinator.is_operator(token):
            raise Refusal(404, "no-task", "there is no such task")
        if device is None:
            self._strangers.require(request.address)
            raise self._coordinator.tokens.refusal(token)
        if device.task != request.task:
            raise Refusal(404, "no-task", "there is no such task")
        self._devices.require(device.id)
        return self._coordinator.tasks[device.task], device

    @staticmethod
    def _check_out(running: RunningTask, device: DeviceState, request: Request) -> Answer:
        now = running.snapshot
        waiting = waiting_answer(now.state, now.reason, lambda: running.in_round(device))
        if waiting is not None:
            return waiting
        device.invited = now.published.version
        return version_answer(now.published, running.task_hash, request)

    def _expect(self, request: Request) -> ExpectedCheckIn:
        running, device = self.admit(request)
        if running.live.masked:
            raise Refusal(409, "masked", "this task takes masked sums only", hint=f"/v1/tasks/{running.name}/sums")
        if running.live.sliced:
            raise Refusal(409, "sliced", "members of a group check nothing in", hint=f"/v1/tasks/{running.name}/relay")
        key = require_headers(request, running.live.server_messages.check_in.size_bytes)
        writer = self._coordinator.writers[running.name]
        return ExpectedCheckIn(
            running=running,
            writer=writer,
            device=device,
            key=key,
            counted=lambda answer: self._counted(answer, running),
        )

    def _counted(self, answer: Answer, running: RunningTask | None = None) -> Answer:
        self._coordinator.count_check_in(answer, running)
        return answer


@dataclasses.dataclass(slots=True, kw_only=True)
class ExpectedCheckIn:
    """A check-in that was admitted by its headers. Quick to make, so not frozen.

    Attributes:
        running: Its task.
        writer: Stores it.
        device: Who sends it.
        key: Its idempotency key.
        counted: Takes note of an answer.
    """

    running: RunningTask
    writer: Writer
    device: DeviceState
    key: str
    counted: Callable[[Answer], Answer]

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return self.running.live.server_messages.check_in.size_bytes

    def read(self, body: bytes | memoryview) -> CheckIn:
        """Look at the body, or raise `MalformedMessage`."""
        return make_check_in(self.device, self.key, body, read_message(self.running, self.device, body))

    def take(self, body: bytes | memoryview, answered: Answered) -> None:
        """Look at the body and hand it to the writer; the answer comes once it is stored, or refused."""
        try:
            require_size(len(body), self.size)
            self.writer.enqueue(self.read(body), lambda answer: answered(self.counted(answer)))
        except CrowdError as error:
            answered(self.counted(refusal_of(error).answer()))


def waiting_answer(state: str, reason: str | None, in_round: Callable[[], bool]) -> Answer | None:
    """Tell a device why there is no version for it now, and for how long to wait; None where there is one."""
    if state == "stopped":
        require_open(state, reason)
    if state == "open" and in_round():
        return None
    wait_s = b"%d" % (5 if state != "open" else _ROUND_WAIT_S)
    why = b"round" if state == "open" else state.encode()
    return Answer(status=204, headers=((b"retry-after", wait_s), (b"crowdml-waiting", why)))


def version_answer(published: Published, task_hash: str, request: Request) -> Answer:
    """Give a device a version, unless it has that already."""
    headers = (
        (b"etag", published.etag),
        (b"crowdml-version", b"%d" % published.version),
        (b"crowdml-task-hash", task_hash.encode()),
        (b"cache-control", b"private, no-cache"),
    )
    if request.headers.get(b"if-none-match") == published.etag:
        return Answer(status=304, headers=headers)
    return Answer(status=200, body=published.body, headers=(*headers, (b"content-type", OCTETS)))


def read_message(
    running: RunningTask, device: DeviceState, body: bytes | memoryview, looked_at: bool = False
) -> dict[str, Any]:
    """Look at the body of a check-in, or raise `MalformedMessage`; return version and content.

    Args:
        running: Its task.
        device: Who sent it.
        body: Its bytes.
        looked_at: Whether another front end has looked at the numbers of a large one already.
    """
    try:
        message: dict[str, Any] = running.live.server_messages.check_in.decode(body)
        if not (running.looks_together or looked_at):
            (problem,) = running.problems([message["content"]])
            if problem is not None:
                raise MalformedMessage(problem)
    except MalformedMessage:
        device.refused += 1
        raise
    return message


def make_check_in(device: DeviceState, key: str, body: bytes | memoryview, message: Mapping[str, Any]) -> CheckIn:
    """Make a check-in of a message that was looked at."""
    return CheckIn(
        device=device,
        key=key,
        body=hashlib.sha256(body).digest(),
        started=int(message["version"]),
        content=message["content"],
    )


def require_headers(request: Request, size: int) -> str:
    """Refuse by headers alone whatever can be refused so; return the idempotency key."""
    headers = request.headers
    if b"transfer-encoding" in headers or b"content-length" not in headers:
        raise Refusal(411, "length", "a check-in says how long it is", hint=f"Content-Length: {size}")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Refusal(415, "encoding", "a check-in is not compressed")
    if headers.get(b"content-type") != OCTETS:
        raise Refusal(415, "type", "a check-in is a fixed message", hint="Content-Type: application/octet-stream")
    if length_of(headers[b"content-length"]) > size:
        raise Refusal(413, "too-large", f"a check-in of this task has exactly {size} bytes")
    key = headers.get(b"idempotency-key", b"")
    if not KEY.fullmatch(key):
        raise Refusal(
            400, "key", "a check-in needs an idempotency key", hint="Idempotency-Key: 8 to 64 of A-Z a-z 0-9 _ -"
        )
    return key.decode("ascii")
