"""Events of a group: what its page and its log tell of it."""

from __future__ import annotations

from collections.abc import Sequence

from crowdml.core import record


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
