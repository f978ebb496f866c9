"""The groups of a task as its page shows them, made of what `GET /v1/tasks/{task}/groups` tells."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from crowdml.core import record


@record
class GroupRow:
    """A member of a group.

    Attributes:
        name: Its pseudonym.
        role: What it does now.
        observers: Members that were sent sums of its rows.
    """

    name: str
    role: str
    observers: int


@record
class GroupCard:
    """A group.

    Attributes:
        number: Of the group.
        stage: Where it stands.
        standing: Pass and turn, in words.
        pairs: Figures with their names.
        members: Its members.
        last: What happened last, in words; empty where nothing has.
    """

    number: int
    stage: str
    standing: str
    pairs: tuple[tuple[str, str], ...]
    members: tuple[GroupRow, ...]
    last: str


def group_card(told: dict[str, Any]) -> GroupCard:
    """Put what is told of a group into words."""
    done = told["stage"] == "done"
    standing = f"all {told['passes']} passes made" if done else f"pass {told['pass'] + 1} of {told['passes']}"
    since = datetime.fromtimestamp(told["exact_since"], UTC)
    events = [event for event in told["events"] if event["what"] not in ("go", "turn")]
    return GroupCard(
        number=told["group"],
        stage=told["stage"],
        standing=standing if done else f"{standing}, turn {told['turn'] + 1}",
        pairs=(
            (
                "batches a second",
                _beside(told["batches_per_s"], told["floor_batches_per_s"], "{} by the round trips last measured", 2),
            ),
            ("bytes a row", _beside(told["bytes_per_row"], told["planned_bytes_per_row"], "planned {}", 0)),
            ("losses", f"{told['lost']} of members, {told['turns_lost']} of turns"),
            ("replays", f"{told['replays']}; a pass again: {told['passes_again']}"),
            ("exact since", f"{since:%d %B, %H:%M:%S} UTC"),
        ),
        members=tuple(_row(member, done) for member in told["members"]),
        last=_event(events[-1]) if events else "",
    )


def _row(told: dict[str, Any], done: bool) -> GroupRow:
    role = "done" if done else told["role"] if told["there"] else "not there"
    return GroupRow(name=told["member"], role=role, observers=told["observers"])


def _event(told: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(told["time"], UTC)
    return ": ".join(part for part in (f"{at:%H:%M:%S} {told['what']}", told["why"]) if part)


def _beside(found: float | None, other: float | None, words: str, digits: int) -> str:
    """Write a figure beside that with which it is to be compared."""
    first = "–" if found is None else f"{found:,.{digits}f}"
    return first if other is None else f"{first} ({words.format(f'{other:,.{digits}f}')})"
