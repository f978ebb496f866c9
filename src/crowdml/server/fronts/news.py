"""What a follower asks about tasks and is told: which versions are newest, as bytes for a link.

A question names what the follower shows; the answer has the tasks of which there is something newer, and their new
version as devices get it. It comes from a front end of the same release, as all letters do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from crowdml.core import record

STATES = ("draft", "open", "paused", "stopped")
_KNOWN = struct.Struct(">QqB")
_NEWS = struct.Struct(">QqBii")
_NONE = -1


@record
class News:
    """A task that stands otherwise than its follower knows.

    Attributes:
        task: Its number.
        version: Its version.
        state: draft, open, paused or stopped.
        reason: Why it stopped.
        body: The version as devices check it out; None where it is the same, or the aggregator alone can answer.
    """

    task: int
    version: int
    state: str
    reason: str | None = None
    body: bytes | None = None


def write_known(known: Iterable[tuple[int, int, str]]) -> bytes:
    """Write number, version and state of each task that is known.

    >>> read_known(write_known([(3, -1, "open")]))
    {3: (-1, 'open')}
    """
    return b"".join(_KNOWN.pack(task, version, STATES.index(state)) for task, version, state in known)


def read_known(raw: bytes) -> dict[int, tuple[int, str]]:
    """Read what `write_known` has written: version and state by number."""
    return {task: (version, STATES[state]) for task, version, state in _KNOWN.iter_unpack(raw)}


def write_news(news: Iterable[News]) -> bytes:
    """Write news.

    >>> list(read_news(write_news([News(task=3, version=7, state="stopped", reason="ended", body=b"abc")])))
    [News(task=3, version=7, state='stopped', reason='ended', body=b'abc')]
    """
    parts: list[bytes] = []
    for each in news:
        reason = None if each.reason is None else each.reason.encode()
        sizes = (_NONE if reason is None else len(reason), _NONE if each.body is None else len(each.body))
        parts += (
            _NEWS.pack(each.task, each.version, STATES.index(each.state), *sizes),
            reason or b"",
            each.body or b"",
        )
    return b"".join(parts)


def read_news(raw: bytes) -> Iterator[News]:
    """Read what `write_news` has written."""
    at = 0
    while at < len(raw):
        task, version, state, reason_size, size = _NEWS.unpack_from(raw, at)
        at += _NEWS.size
        middle = at + max(reason_size, 0)
        end = middle + max(size, 0)
        yield News(
            task=task,
            version=version,
            state=STATES[state],
            reason=None if reason_size == _NONE else raw[at:middle].decode(),
            body=None if size == _NONE else raw[middle:end],
        )
        at = end
