"""The queue of a group's member: what waits is not overtaken, and nobody's queue grows without end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from crowdml.server.tasks.groups.live_group import Line

NOBODY: Any = SimpleNamespace(slot=1)


def test_a_message_is_sent_at_once_unless_others_wait() -> None:
    sent: list[str | bytes] = []
    takes = [True, False, True]

    def send_now(message: str | bytes) -> bool:
        taken = takes.pop(0)
        if taken:
            sent.append(message)
        return taken

    line = Line(NOBODY, 100, None, send_now)
    for message in (b"first", b"second", b"third"):
        line.put(message)
    # The second could not be sent, so the third waits behind it although it could.
    assert sent == [b"first"] and list(line.waiting) == [b"second", b"third"] and takes == [True]
    assert line.bytes == len(b"second") + len(b"third") and line.news.is_set()


def test_who_does_not_take_what_is_sent_is_closed() -> None:
    line = Line(NOBODY, 10)
    line.put(bytes(8))
    assert not line.closed
    line.put(bytes(8))
    assert "does not take" in line.closed
    line.put(b"more")
    assert len(line.waiting) == 2
