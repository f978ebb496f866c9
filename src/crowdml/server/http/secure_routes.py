"""The routes of secure aggregation: a member's message goes up, and what follows comes back once its stage is closed.

A message names the sum by the header `Crowdml-Sum`; hello also says by `Crowdml-Started` with which version the device
began, where that is not the present one. 202 means that the stage is not closed yet: ask again by GET.
"""

from __future__ import annotations

import re

from crowdml.secure_aggregation.stages import MASKED, largest_message
from crowdml.secure_aggregation.sum_terms import SumTerms
from crowdml.server.http.exchange import KEY, OCTETS, Exchange
from crowdml.server.http.requests import Receive, Request, length_of, read_body
from crowdml.server.refusals import Answer, Refusal, json_answer
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.secure_attempt import Message
from crowdml.server.tasks.secure_rounds import SecureRounds

_SUM = re.compile(rb"[0-9]{1,20}-[0-9]{1,20}")
_VERSION = re.compile(rb"[0-9]{1,18}")
WAIT_S = 10.0
"""A request waits so long for its stage to close; connections must not hang for ever."""


class SecureRoutes:
    """Answers requests about secure sums.

    Args:
        coordinator: All tasks.
        exchange: Tells who may speak.
    """

    def __init__(self, coordinator: Coordinator, exchange: Exchange) -> None:
        self._coordinator, self._exchange = coordinator, exchange
        self._rounds: dict[str, SecureRounds] = {}

    def begin(self) -> None:
        """Take up the sums of all tasks: where a server ended during the last attempt, nobody might ask again."""
        for running in self._coordinator.tasks.values():
            if running.live.masked is not None:
                self._rounds_of(running)

    async def status(self, request: Request, receive: Receive) -> Answer:
        """Say which sum is going on."""
        rounds, _ = self._admit(request)
        return json_answer(rounds.status())

    async def hand_over(self, request: Request, receive: Receive) -> Answer:
        """Take a message: hello, order-1 …, shares, masked, consent, reveal; or blame."""
        rounds, device = self._admit(request)
        name, message = _meant(request)
        body = await _body(request, receive, rounds.terms)
        return await rounds.take(device, name, request.stage, body, message, WAIT_S)

    async def ask_again(self, request: Request, receive: Receive) -> Answer:
        """Answer a message that was handed over before."""
        rounds, device = self._admit(request)
        name, message = _meant(request)
        return await rounds.take(device, name, request.stage, None, message, WAIT_S)

    def _admit(self, request: Request) -> tuple[SecureRounds, DeviceState]:
        running, device = self._exchange.admit(request)
        if running.live.masked is None:
            raise Refusal(404, "no-sums", "check-ins of this task are not masked")
        return self._rounds_of(running), device

    def _rounds_of(self, running: RunningTask) -> SecureRounds:
        found = self._rounds.get(running.name)
        if found is None:
            writer, options = self._coordinator.writers[running.name], self._coordinator.options
            found = SecureRounds(running, writer, self._coordinator.store, options.stage_s)
            self._rounds[running.name] = found
        return found


def _meant(request: Request) -> tuple[str, Message]:
    """Return which sum a message belongs to, and what else its headers say."""
    name = request.headers.get(b"crowdml-sum", b"")
    if not _SUM.fullmatch(name):
        raise Refusal(400, "sum", "a message names the sum it belongs to", hint="Crowdml-Sum: VERSION-ATTEMPT")
    return name.decode(), Message(key=_key(request), started=_started(request))


async def _body(request: Request, receive: Receive, terms: SumTerms) -> bytes:
    """Read a body whose length is within what terms and stage allow; the machine knows the exact one."""
    largest = largest_message(terms, request.stage)
    headers = request.headers
    if b"transfer-encoding" in headers or b"content-length" not in headers:
        raise Refusal(411, "length", "a message says how long it is")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Refusal(415, "encoding", "a message is not compressed")
    if headers.get(b"content-type") != OCTETS:
        raise Refusal(415, "type", "a message is bytes", hint="Content-Type: application/octet-stream")
    size = length_of(headers[b"content-length"])
    if size > largest:
        raise Refusal(413, "too-large", f"a {request.stage} message has at most {largest} bytes")
    return await read_body(receive, size)


def _key(request: Request) -> str:
    """Return the idempotency key of a masked vector; other messages need none."""
    key = request.headers.get(b"idempotency-key", b"")
    if request.stage == MASKED and not KEY.fullmatch(key):
        raise Refusal(
            400, "key", "a masked vector needs an idempotency key", hint="Idempotency-Key: 8 to 64 of A-Z a-z 0-9 _ -"
        )
    return key.decode("ascii", "replace")


def _started(request: Request) -> int | None:
    """Return the version that a device began with, where it says one."""
    found = request.headers.get(b"crowdml-started")
    if found is None:
        return None
    if not _VERSION.fullmatch(found):
        raise Refusal(400, "started", "a version is a number", hint="Crowdml-Started: VERSION")
    return int(found)
