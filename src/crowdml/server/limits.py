"""Limits: how many requests one device or one address may make, by a clock that never goes back."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from crowdml.core import record
from crowdml.server.answers import Refusal

LARGEST_TABLE = 100_000
"""Callers remembered at most; the one not seen for longest is forgotten first."""


def caller_of(address: str) -> str:
    """Name who stands behind an address: of IPv6 the network, within which everybody has addresses without number.

    >>> caller_of("192.0.2.7"), caller_of("::ffff:192.0.2.7"), caller_of("2001:db8:1:2:3::4")
    ('192.0.2.7', '192.0.2.7', '2001:db8:1:2::/64')
    """
    if ":" not in address:
        return address
    try:
        full = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(full.ipv4_mapped or ipaddress.IPv6Network((int(full) >> 64 << 64, 64)))


@record
class Pace:
    """So many requests a second in the long run, and so many at once."""

    per_second: float
    burst: int


class Limiter:
    """A bucket of tokens for every caller.

    >>> now = [0.0]
    >>> limiter = Limiter(Pace(per_second=1.0, burst=2), clock=lambda: now[0])
    >>> [limiter.wait("a") for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with full buckets."""
        self._pace, self._clock = pace, clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait(self, caller: Hashable) -> float:
        """Take one token and return 0, or return after how many seconds there will be one."""
        now, pace = self._clock(), self._pace
        tokens, seen = self._buckets.pop(caller, (float(pace.burst), now))
        tokens = min(float(pace.burst), tokens + (now - seen) * pace.per_second)
        allowed = tokens >= 1.0
        self._buckets[caller] = (tokens - 1.0 if allowed else tokens), now
        if len(self._buckets) > LARGEST_TABLE:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - tokens) / pace.per_second

    def require(self, caller: Hashable) -> None:
        """Take one token, or refuse."""
        wait_s = self.wait(caller)
        if wait_s:
            raise Refusal(429, "too-fast", "too many requests", retry_after_s=math.ceil(wait_s))
