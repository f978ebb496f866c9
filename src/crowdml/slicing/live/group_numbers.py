"""The numbers that a group shares with others at the end of a pass: what it uploads, and what it takes over."""

from __future__ import annotations

from crowdml.slicing.live.slice_plan import SlicePlan
from crowdml.slicing.live.slice_terms import SharedNumbers


class GroupNumbers:
    """What a group has of them, at the server.

    Args:
        plan: Who keeps what.
        first: All numbers of the net, as everybody may know them.
        download: What the group takes over at the beginning of this pass.

    Attributes:
        due: What owners take over that no cut holds yet; None: nothing.
        upload: What is to be stored and shared, while the group waits for that.
    """

    def __init__(self, plan: SlicePlan, first: SharedNumbers, download: SharedNumbers) -> None:
        self._plan, self.first, self.download = plan, first, download
        self.due: SharedNumbers | None = first
        self.upload: SharedNumbers | None = None
        self._handed_in: dict[int, SharedNumbers] = {}

    @property
    def are_due(self) -> bool:
        """Whether owners have taken something over that no cut holds yet: then they deposit before anything else.

        A server that restarts may know more than it did: so nothing is learnt, and no model handed over, on top of
        numbers that would be others after a restart.
        """
        return self.due is not None and len(self.due.numbers) > 0

    def in_clear(self) -> bytes:
        """Write what is due."""
        return (self.due or SharedNumbers.none()).write()

    def begin_attempt(self) -> None:
        """Forget what was handed in: everybody goes back to the cut."""
        self.upload, self._handed_in = None, {}

    def hand_in(self, piece: int, content: memoryview) -> None:
        """Take an owner's part of the upload; with the last one it is whole."""
        self._handed_in[piece] = SharedNumbers.read(content, self._plan.places[piece])
        if len(self._handed_in) == len(self._plan.owners) and self.upload is None:
            self.upload = SharedNumbers.together(list(self._handed_in.values()))

    def hand_in_none(self) -> None:
        """Upload nothing, where nobody has trained anything."""
        self.upload = SharedNumbers.none()

    def take_over(self, first: SharedNumbers, download: SharedNumbers, again: bool) -> None:
        """Go on with what everybody may know now; `again`: no cut holds, so that all of it is due."""
        self.begin_attempt()
        self.first, self.download = first, download
        self.due = first if again else download
