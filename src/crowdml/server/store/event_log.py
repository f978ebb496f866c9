"""The event log: who did what to which task, and when. It says nothing that is secret, and forgets who withdrew.

A device stands in it by its slot alone; when its owner withdraws, that number goes too. What strangers can do as often
as they like is counted within an hour, so that nobody fills the disk; and beyond so many entries the oldest go.
"""

from __future__ import annotations

import time
from typing import Literal

from crowdml.core import record
from crowdml.server.store.database import Statements

Actor = Literal["operator", "portal", "device", "server", "stranger"]
"""Who: the operator by token (a command, a program) or signed in at the portal, a device, the server itself, nobody."""

MOST_ENTRIES = 100_000
LONGEST_DETAIL = 200
HOUR_S = 3600.0

STATES = {"open": "opened", "paused": "paused", "stopped": "stopped"}
"""What it is called that a task came to a state."""

COUNTED = frozenset({"joined again", "refused sign-in", "refused token", "refused check-in", "exported"})
"""What may happen any number of times: within an hour it is one entry with a count."""

_FOUND = (
    "SELECT event_log.id, time, actor, action, name AS task, slot, count, detail FROM event_log "
    "LEFT JOIN tasks ON tasks.id = event_log.task"
)
LAST = "SELECT MAX(id) FROM event_log"
SAME = (
    "SELECT MAX(id) FROM event_log WHERE time > ? AND actor = ? AND action = ? AND COALESCE(task, -1) = ? "
    "AND COALESCE(slot, -1) = ?"
)


@record
class Event:
    """An entry.

    Attributes:
        id: Its number; later ones have larger numbers.
        time: Seconds since 1970; of counted ones, when the first happened.
        actor: Who did it.
        action: What was done.
        task: Name of the task it was done to; None: to the server.
        slot: Slot of the device it is about; None: of no device, or of one that has withdrawn.
        count: How often, or how many.
        detail: More words.
    """

    id: int
    time: float
    actor: str
    action: str
    task: str | None
    slot: int | None
    count: int
    detail: str


def note(
    statements: Statements,
    actor: Actor,
    action: str,
    *,
    task: int | None = None,
    slot: int | None = None,
    count: int = 1,
    detail: str = "",
) -> None:
    """Add an entry, inside a transaction."""
    now = time.time()
    if action in COUNTED:
        none = -1
        where = (now - HOUR_S, actor, action, none if task is None else task, none if slot is None else slot)
        (same,) = statements.first(SAME, *where)
        if same is not None:
            statements.run("UPDATE event_log SET count = count + ? WHERE id = ?", count, same)
            return
    (last,) = statements.first(LAST)
    place = (last or 0) + 1
    row = {"time": now, "actor": actor, "action": action, "task": task, "slot": slot, "count": count}
    statements.insert("event_log", id=place, **row, detail=plain(detail))
    statements.run("DELETE FROM event_log WHERE id <= ?", place - MOST_ENTRIES)


def forget(statements: Statements, task: int, slot: int) -> None:
    """Take a device's number out of all entries, inside a transaction."""
    statements.run("UPDATE event_log SET slot = NULL WHERE task = ? AND slot = ?", task, slot)


def entries(statements: Statements, before: int | None, task: int | None, most: int) -> list[Event]:
    """Return entries, latest first.

    Args:
        statements: Reads.
        before: Only those with smaller numbers; None: all.
        task: Only those about a task; None: all.
        most: How many at most.
    """
    wanted, given = ["event_log.id < ?"], [1 << 62 if before is None else before]
    if task is not None:
        wanted, given = [*wanted, "event_log.task = ?"], [*given, task]
    text = f"{_FOUND} WHERE {' AND '.join(wanted)} ORDER BY event_log.id DESC LIMIT ?"
    return [Event(**row) for row in statements.records(text, *given, most)]


def latest(statements: Statements, task: int, action: str) -> Event | None:
    """Return the last entry about something that was done to a task; None where it never was."""
    text = f"{_FOUND} WHERE event_log.task = ? AND action = ? ORDER BY event_log.id DESC LIMIT 1"
    return next((Event(**row) for row in statements.records(text, task, action)), None)


def plain(text: str) -> str:
    r"""Make one line of a text, without anything a terminal would obey.

    >>> plain("one\ntwo\x1b[31m")
    'one two [31m'
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)[:LONGEST_DETAIL]
