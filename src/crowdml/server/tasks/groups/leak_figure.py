"""The leak figure of a sliced task: what the operator's leak meter has read, with the date, for owners to see.

A meter needs rows that it may read, which a server does not have. So the operator runs `crowdml audit` and sends what
it found (`crowdml task leak`); the event log keeps it, and says so to everybody who reads it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from crowdml.core import record
from crowdml.server.store import Event, Store
from crowdml.server.store.event_log import Actor

ACTION = "measured a leak"
_DETAIL = re.compile(r"labels (\d\.\d{3}), chance (\d\.\d{3}), own rows (\d{1,9})")


@record
class LeakFigure:
    """What a reader of sums has read.

    Attributes:
        right: Share of labels that were right.
        chance: Share that is right for whoever always says the most frequent label.
        own_rows: Rows that the reader has of its own.
        time: When it was noted, in seconds since 1970.
    """

    right: float
    chance: float
    own_rows: int
    time: float

    @property
    def words(self) -> str:
        """Say it to owners."""
        day = datetime.fromtimestamp(self.time, UTC)
        return (
            f"A member with {self.own_rows} rows of its own reads {self.right:.0%} of the labels from the sums that it "
            f"is sent, where guessing gets {self.chance:.0%}. The operator measured it, and noted it on "
            f"{day.day} {day:%B %Y}; somebody else may read more."
        )


NOT_MEASURED = "Nobody has measured yet how much can be read from the sums that members of a group are sent."


def note_leak(store: Store, task: int, right: float, chance: float, own_rows: int, by: Actor = "operator") -> None:
    """Keep a figure; the newest counts."""
    store.note(by, ACTION, task=task, detail=f"labels {right:.3f}, chance {chance:.3f}, own rows {own_rows}")


def noted_leak(store: Store, task: int) -> LeakFigure | None:
    """Return the newest figure of a task; None where there is none."""
    found = store.latest(task, ACTION)
    return None if found is None else read_figure(found)


def read_figure(event: Event) -> LeakFigure | None:
    """Read a figure out of the event log."""
    parts = _DETAIL.fullmatch(event.detail)
    if parts is None:
        return None
    right, chance, own_rows = parts.groups()
    return LeakFigure(right=float(right), chance=float(chance), own_rows=int(own_rows), time=event.time)
