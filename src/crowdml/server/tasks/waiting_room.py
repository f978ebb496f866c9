"""Room for check-ins that wait: many small ones are bounded by their number, large ones by what they hold in memory."""

from __future__ import annotations

from crowdml.server.refusals import Refusal

LARGEST_ROOM = 256 << 20
"""Bytes of check-ins that wait or are being stored, by default."""


def too_many() -> Refusal:
    """Ask a device to come again in a moment."""
    return Refusal(503, "busy", "too many check-ins are waiting", retry_after_s=1)


class WaitingRoom:
    """Counts bytes of check-ins that are not answered yet. One always fits, however large it is.

    Args:
        limit: How many there may be.

    Attributes:
        taken: How many there are.
    """

    def __init__(self, limit: int = LARGEST_ROOM) -> None:
        self.limit, self.taken = limit, 0

    def enter(self, size: int) -> None:
        """Let a check-in in, or refuse it."""
        if self.taken and self.taken + size > self.limit:
            raise too_many()
        self.taken += size

    def leave(self, size: int) -> None:
        """Take note that one is answered."""
        self.taken -= size
