"""What a group's machine begins with, when the group is dealt and whenever a server starts."""

from __future__ import annotations

from crowdml.core import record
from crowdml.slicing.live.slice_terms import SharedNumbers


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
