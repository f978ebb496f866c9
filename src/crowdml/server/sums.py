"""The routes of secure aggregation: a member's message goes up, and what follows comes back once its stage is closed.

GET  /v1/tasks/{task}/sums           which sum is going on
POST /v1/tasks/{task}/sums/{stage}   a message: hello, order-1 …, shares, masked, consent, reveal; or blame
GET  /v1/tasks/{task}/sums/{stage}   the answer to a message that was handed over before

A message names the sum by the header `Crowdml-Sum`; hello also says by `Crowdml-Started` with which version the device
began, where that is not the present one. 202 means that the stage is not closed yet: ask again by GET.
"""

from __future__ import annotations

import re

from crowdml.core import CrowdError
from crowdml.protocol.sums.hashing import TAG_BYTES
from crowdml.protocol.sums.messages import COMMITMENT_BYTES, HELLO_BYTES, ORDER, PARCEL_BYTES, STAGES, flag_bytes
from crowdml.protocol.sums.order import LINK_BYTES
from crowdml.protocol.sums.shamir import SHARE_BYTES
from crowdml.protocol.sums.terms import SumTerms
from crowdml.server.answers import Answer, Refusal, json_answer, refusal_of
from crowdml.server.asgi import Asgi, Receive, Request, Scope, Send, length_of, read_body, send_answer
from crowdml.server.coordinator import Coordinator
from crowdml.server.exchange import Exchange
from crowdml.server.running import RunningTask
from crowdml.server.sum_attempt import Message
from crowdml.server.sum_rounds import SumRounds

_PATH = re.compile(rf"/v1/tasks/([a-z0-9-]{{1,63}})/sums(?:/({'|'.join((*STAGES, 'blame'))}))?")
_SUM = re.compile(rb"[0-9]{1,20}-[0-9]{1,20}")
_KEY = re.compile(rb"[A-Za-z0-9_-]{8,64}")
_VERSION = re.compile(rb"[0-9]{1,18}")
WAIT_S = 10.0
"""A request waits so long for its stage to close; connections must not hang for ever."""


class SumRoutes:
    """Answers requests about masked sums; everything else goes on to the framework.

    Args:
        coordinator: All tasks.
        exchange: Tells who may speak.
        inner: What answers all other requests.
    """

    def __init__(self, coordinator: Coordinator, exchange: Exchange, inner: Asgi) -> None:
        """Keep the parts."""
        self._coordinator, self._exchange, self._inner = coordinator, exchange, inner
        self._rounds: dict[str, SumRounds] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._inner(scope, receive, send)
            return
        try:
            answer = await self._answer(scope, receive, found[1], found[2])
        except CrowdError as error:
            answer = refusal_of(error).answer()
        await send_answer(send, answer)

    async def _answer(self, scope: Scope, receive: Receive, task: str, stage: str | None) -> Answer:
        request, method = Request.of(scope), scope["method"]
        running, device = self._exchange._admit(task, request)
        rounds = self._of(running)
        if stage is None:
            if method != "GET":
                raise Refusal(405, "method", "this is asked for by GET")
            return json_answer(rounds.status())
        if method not in ("GET", "POST"):
            raise Refusal(405, "method", "messages are handed over by POST, and answers asked for by GET")
        name = request.headers.get(b"crowdml-sum", b"")
        if not _SUM.fullmatch(name):
            raise Refusal(400, "sum", "a message names the sum it belongs to", hint="Crowdml-Sum: VERSION-ATTEMPT")
        message = Message(key=_key(request, stage), started=_started(request))
        body = None if method == "GET" else await self._body(request, receive, rounds.terms, stage)
        return await rounds.take(device, name.decode(), stage, body, message, WAIT_S)

    def _of(self, running: RunningTask) -> SumRounds:
        if running.live.masked is None:
            raise Refusal(404, "no-sums", "check-ins of this task are not masked")
        found = self._rounds.get(running.name)
        if found is None:
            writer, options = self._coordinator.writers[running.name], self._coordinator.options
            found = SumRounds(running, writer, self._coordinator.store, options.stage_s)
            self._rounds[running.name] = found
        return found

    @staticmethod
    async def _body(request: Request, receive: Receive, terms: SumTerms, stage: str) -> bytes:
        """Read a body whose length is within what terms and stage allow; the machine knows the exact one."""
        largest = largest_body(terms, stage)
        headers = request.headers
        if b"transfer-encoding" in headers or b"content-length" not in headers:
            raise Refusal(411, "length", "a message says how long it is")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refusal(415, "encoding", "a message is not compressed")
        if headers.get(b"content-type") != b"application/octet-stream":
            raise Refusal(415, "type", "a message is bytes", hint="Content-Type: application/octet-stream")
        size = length_of(headers[b"content-length"])
        if size > largest:
            raise Refusal(413, "too-large", f"a {stage} message has at most {largest} bytes")
        return await read_body(receive, size)


def largest_body(terms: SumTerms, stage: str) -> int:
    """Return how long a message may be; there are never more neighbours than members."""
    most = terms.invited - 1
    return {
        "hello": HELLO_BYTES,
        **dict.fromkeys(ORDER, LINK_BYTES),
        "shares": COMMITMENT_BYTES + most * PARCEL_BYTES,
        "blame": flag_bytes(most),
        "masked": terms.body_bytes + most * TAG_BYTES,
        "consent": (most + 1) * TAG_BYTES,
        "reveal": most * (1 + SHARE_BYTES),
    }[stage]


def _key(request: Request, stage: str) -> str:
    """Return the idempotency key of a masked vector; other messages need none."""
    key = request.headers.get(b"idempotency-key", b"")
    if stage == "masked" and not _KEY.fullmatch(key):
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
