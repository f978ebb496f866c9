"""The connection to a server: one request at a time, asked again with patience when nobody answers.

Between two tries a device waits a random time below a limit that doubles (full jitter, from the operating system's
entropy), so that a thousand devices do not come back at the same moment. A server may ask for more time, up to a cap.
An answer that is not whole after a while is given up like one that never came. Answers larger than expected,
compressed answers and redirects are refused. Clock and sleep are arguments.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import random
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from crowdml.core import BadInput, record
from crowdml.core.certificates import untrusted
from crowdml.core.errors import MalformedMessage, Unreachable
from crowdml.device._http import httpx
from crowdml.device.answers import WAITING, Answer
from crowdml.device.deadline import Deadline
from crowdml.protocol import PROTOCOL_VERSION

PROTOCOL_HEADER = "Crowdml-Protocol"
BUSY = (408, 429, 500, 502, 503, 504)
"""Statuses after which the same request is sent again."""
SMALL_ANSWER = 1 << 20
LONGEST_PAUSE_S = 4.0
"""How much longer than the server asked a device waits for the next round, at most."""
ANSWER_S = 60.0
"""How long a server may take for an exchange; what is sent and what may be answered add their time on a slow link."""
TIMEOUT = httpx.Timeout(connect=10.0, read=60.0, write=60.0, pool=10.0)


@record
class Backoff:
    """How long to wait between tries.

    Attributes:
        first_s: Limit of the first wait.
        longest_s: No limit grows beyond this.
        uniform: `uniform(low, high)`: a random number; from the operating system unless a test gives one.
    """

    first_s: float = 0.5
    longest_s: float = 60.0
    uniform: Callable[[float, float], float] = random.SystemRandom().uniform

    def wait_s(self, tries: int, asked_s: float | None) -> float:
        """Return how long to wait after so many tries in a row, at least as long as the server asked for.

        >>> Backoff(uniform=lambda low, high: high).wait_s(tries=3, asked_s=None)
        2.0
        """
        limit = min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 60))
        return (asked_s or 0.0) + self.uniform(0.0, limit)


class Connection:
    """Requests to one server.

    Args:
        server: Its address, such as `https://crowd.example:8800`.
        ca: File of the certificates to trust instead of the usual ones.
        plain_http: Whether http may be used beyond this machine, where anybody on the way can read the token.
        patience_s: How long to go on asking when nobody answers; None: for ever.
        tell: Called with one line about every wait.
        answer_s: How long a server may take for an exchange, beside the time its bytes take on the slowest link.
        transport: For tests: what stands for the network.
        clock: Monotonic seconds.
        sleep: Waits.
        backoff: How long to wait between tries.
    """

    def __init__(
        self,
        server: str,
        *,
        ca: Path | None = None,
        plain_http: bool = False,
        patience_s: float | None = None,
        tell: Callable[[str], None] | None = None,
        answer_s: float = ANSWER_S,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        backoff: Backoff = Backoff(),  # noqa: B008  a frozen record
    ) -> None:
        """Check the address; nothing is sent yet."""
        local = _is_local(_host(server))
        if server.startswith("http:") and not local and not plain_http:
            raise BadInput(
                f"{server} is not encrypted: anybody on the way could read this device's token",
                hint="use https, or --plain-http if you trust the network",
            )
        self.server, self.token = server, ""
        self._patience_s, self._tell = patience_s, tell
        self._clock, self._sleep, self._backoff = clock, sleep, backoff
        self._http = httpx.Client(
            base_url=server,
            verify=_trust(server, ca),
            transport=transport,
            timeout=TIMEOUT,
            follow_redirects=False,
            trust_env=not local,
            headers={PROTOCOL_HEADER: str(PROTOCOL_VERSION), "Accept-Encoding": "identity"},
        )
        self._deadline = Deadline(clock, answer_s)
        self._deadline.guard(self._http)

    def close(self) -> None:
        """Let go of the network."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        limit: int = SMALL_ANSWER,
    ) -> Answer:
        """Send a request until it is answered, always with the same bytes.

        Args:
            method: HTTP method.
            path: Below the server's address.
            headers: Beside protocol and token.
            content: Body of the request.
            limit: Bytes in an answer at most.

        Raises:
            Unreachable: Nobody answered for as long as we were patient.
            MalformedMessage: The answer is too large, compressed, or of another protocol.
        """
        begun, tries = self._clock(), 0
        own = dict(headers or {}) | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        while True:
            tries += 1
            answer, why = self._try(method, path, own, content, limit)
            if answer is not None and answer.status not in BUSY:
                return answer
            asked_s = answer.retry_after_s if answer else None
            wait_s = self._backoff.wait_s(tries, asked_s)
            if self._patience_s is not None and self._clock() + wait_s - begun > self._patience_s:
                raise Unreachable(f"{self.server}: {why} ({tries} tries)")
            self._say(f"{why}; asking again in {wait_s:.1f} s")
            self._sleep(wait_s)

    def pause(self, asked_s: float | None, tries: int, why: str) -> None:
        """Wait before asking for something that is not there yet, but may come at any moment."""
        soon = dataclasses.replace(self._backoff, longest_s=min(self._backoff.longest_s, LONGEST_PAUSE_S))
        wait_s = soon.wait_s(tries, asked_s)
        if tries == 1:
            self._say(f"{why}; asking again from time to time")
        self._sleep(wait_s)

    def _try(
        self, method: str, path: str, headers: dict[str, str], content: bytes | None, limit: int
    ) -> tuple[Answer | None, str]:
        """Send once; return the answer, or None, and what to say if it is not final."""
        self._deadline.begin(limit + len(content or b""))
        try:
            with self._http.stream(method, path, headers=headers, content=content) as response:
                answer = _read(response, limit)
        except (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError) as error:
            _explain_certificate(error, self.server)
            return None, f"no answer ({str(error) or type(error).__name__})"
        if answer.status < 300 or answer.status == 304:
            _require_protocol(answer)
        return answer, WAITING.get(answer.code, f"the server is busy ({answer.status})")

    def _say(self, line: str) -> None:
        if self._tell:
            self._tell(line)


def _read(response: httpx.Response, limit: int) -> Answer:
    """Read an answer up to a limit, exactly as it came."""
    if 300 <= response.status_code < 400 and response.status_code != 304:
        raise MalformedMessage(f"the server redirects ({response.status_code}); a device follows no redirect")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise MalformedMessage("the server's answer is compressed, though that was not asked for")
    parts, size = [], 0
    for part in response.iter_raw():
        size += len(part)
        if size > limit:
            raise MalformedMessage(f"the server's answer is larger than {limit} bytes")
        parts.append(part)
    return Answer(status=response.status_code, headers=response.headers, body=b"".join(parts))


def _require_protocol(answer: Answer) -> None:
    spoken = answer.headers.get(PROTOCOL_HEADER.lower(), str(PROTOCOL_VERSION))
    if spoken != str(PROTOCOL_VERSION):
        raise MalformedMessage(f"the server speaks protocol {spoken[:20]!r}, this device {PROTOCOL_VERSION}")


def _explain_certificate(error: BaseException, server: str) -> None:
    """A certificate that is not trusted does not become so by waiting."""
    why = untrusted(error)
    if why is not None:
        raise BadInput(
            f"{server} shows a certificate that is not trusted: {why}",
            hint="get the operator's certificate authority, compare its fingerprint, and join with it: crowdml device "
            "join LINK --ca FILE",
        ) from None


def _trust(server: str, ca: Path | None) -> ssl.SSLContext:
    if not server.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; reading all usual certificates takes time
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"{ca} holds no certificates: {error}", where="--ca") from None


def _host(server: str) -> str:
    try:
        url = httpx.URL(server)
        if (url.port or 0) < 1 << 16:
            return url.host
        why = f"there is no port {url.port}"
    except httpx.InvalidURL as error:
        why = str(error)
    raise BadInput(f"{server} is not an address: {why}", hint="such as https://crowd.example:8800")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
