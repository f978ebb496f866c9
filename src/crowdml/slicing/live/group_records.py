"""What a group's machine is made of: its stages, what it begins with, numbers of attempts, what it tells of itself.

gathering ─► preparing ─► running ─► preparing …            a cut at the end of a turn begins the next one
│           └─ loss, complaint, stall ─► preparing, back to the cut
├─ at the end of a pass ─► sharing ─► preparing
├─ too few members ─► waiting            all passes made ─► done
└─ the task is paused ─► paused           the task has ended ─► stopped
"""

from __future__ import annotations

from collections.abc import Sequence

from crowdml.core import record
from crowdml.slicing.live.slice_frames import attempt_number
from crowdml.slicing.live.slice_terms import SharedNumbers

GATHERING, PREPARING, RUNNING, SHARING, WAITING, DONE, PAUSED, STOPPED = (
    "gathering",
    "preparing",
    "running",
    "sharing",
    "waiting",
    "done",
    "paused",
    "stopped",
)
OVER = (DONE, PAUSED, STOPPED)
"""Stages that a machine never leaves; after a pause another machine goes on from what members show."""
ACCEPTED: dict[str, tuple[str, ...]] = {
    PREPARING: ("ready", "complain"),
    RUNNING: ("deposit", "complain", "stalled"),
    SHARING: ("upload",),
}
"""What the machine takes from members in each stage, if it is of the present attempt; everything else is dropped."""
MOST_ATTEMPTS = 100
"""Attempts at one turn: each that moves a piece shows rows to another member, so a turn ends before there are many."""
USUAL_CUT = 50
_LAST_ATTEMPT = (1 << 16) - 1


@record
class GroupStart:
    """What a server knows of a group before its members have shown anything.

    Attributes:
        number: Its number in the task.
        size: Members; they are numbered from 1.
        secret: Orders turns and pieces, so that a restarted server orders them alike.
        incarnation: How often the server has started.
        passes: Passes whose uploads are stored.
        first: All numbers of the net, as everybody may know them.
        download: What a group takes over at the beginning of this pass.
        ended: Turn and batch of the cut with which the last pass ended.
    """

    number: int
    size: int
    secret: bytes
    incarnation: int
    passes: int
    first: SharedNumbers
    download: SharedNumbers
    ended: tuple[int, int] | None = None


class Attempts:
    """Numbers of attempts, none of which is ever used twice.

    Args:
        incarnation: How often the server has started.
    """

    def __init__(self, incarnation: int) -> None:
        self.renew(incarnation)

    def renew(self, incarnation: int) -> None:
        """Go on with the numbers of another incarnation."""
        self._incarnation, self._used = incarnation, 0

    @property
    def now(self) -> int:
        """The present attempt."""
        return attempt_number(self._incarnation, self._used)

    def following(self) -> int:
        """Begin another attempt."""
        self._used += 1
        return self.now

    @property
    def exhausted(self) -> bool:
        """Whether few numbers are left of this incarnation."""
        return self._used > _LAST_ATTEMPT - 2 * MOST_ATTEMPTS


@record
class Event:
    """Something that happened to a group, for its page and its log.

    Attributes:
        what: What happened.
        turn: In which turn.
        batch: After how many of its batches.
        members: Numbers of the members it concerns.
        why: More about it.
    """

    what: str
    turn: int
    batch: int = 0
    members: tuple[int, ...] = ()
    why: str = ""


def role_name(member: int, assignment: Sequence[int]) -> str:
    """Say what a member does: the first of the assignment is the dominator, who has no piece is a dummy.

    >>> [role_name(member, (4, 2)) for member in (1, 2, 4)]
    ['dummy', 'follower 1', 'dominator']
    """
    if member not in assignment:
        return "dummy"
    at = assignment.index(member)
    return f"follower {at}" if at else "dominator"
