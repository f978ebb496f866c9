"""Schedules: when devices and server meet.

They look at public integers only, so that a driver can decide by them before any number is known.

    OnArrival   a device checks in when it has gathered a batch
    Rounds      the server invites a cohort, and each device goes through all its rows
    Barrier     each device works at its own speed on all its rows, over and over
"""

from __future__ import annotations

from crowdml.core import record


@record
class Counts:
    """Public integers that a schedule may look at.

    Attributes:
        received: Check-ins absorbed since the last commit.
        version: Commits so far.
        longest: Versions made since the last check-in of the device that has been silent for longest, of those that
            have not checked in since the last commit; -1 where all have, or nobody counts.
    """

    received: int
    version: int
    longest: int = -1


@record
class OnArrival:
    """A device checks in when it has gathered a batch; a version is made of every `buffered` check-ins.

    Attributes:
        batch: Rows that a device gathers before it contacts the server.
        buffer: Rows that it keeps at most; between outages a batch may grow up to this.
        buffered: Check-ins behind a version.
        max_staleness: Older check-ins are not used.
    """

    batch: int
    buffer: int
    buffered: int = 1
    max_staleness: int = 1_000_000
    whole = False
    invites = False
    waits = False
    epochs = 1
    multiple = 1
    delays = 0

    def accepts(self, staleness: int) -> bool:
        """Tell whether a check-in that is so many versions old is used at all."""
        return staleness <= self.max_staleness

    def ready(self, counts: Counts) -> bool:
        """Tell whether it is time to commit."""
        return counts.received >= self.buffered

    @property
    def cohort(self) -> int:
        """Check-ins behind a version."""
        return self.buffered

    @property
    def alone(self) -> bool:
        """Whether every check-in is a version of its own."""
        return self.buffered == 1

    @property
    def most_rows(self) -> int | None:
        """Rows behind a check-in at most; None: all that a device has."""
        return self.buffer


@record
class Rounds:
    """The server invites a cohort; each device goes through all its rows.

    Attributes:
        cohort: Devices invited to a round.
        epochs: Times a device goes through its rows in a round.
        multiple: The number of rows in a batch is padded up to a multiple of this.
        max_rows: Rows of a device in a round at most; None: all it has.
    """

    cohort: int
    epochs: int = 1
    multiple: int = 1
    max_rows: int | None = None
    whole = True
    invites = True
    waits = False
    delays = 0

    def accepts(self, staleness: int) -> bool:
        """Only what began with the present version is used."""
        return staleness == 0

    def ready(self, counts: Counts) -> bool:
        """Tell whether the round is complete."""
        return counts.received >= self.cohort

    @property
    def batch(self) -> int:
        """Rows of the smallest batch."""
        return self.multiple

    @property
    def buffer(self) -> int:
        """As the smallest batch: rows are kept by the device, not by a buffer."""
        return self.multiple

    @property
    def alone(self) -> bool:
        """Whether every check-in is a version of its own."""
        return self.cohort == 1

    @property
    def most_rows(self) -> int | None:
        """Rows behind a check-in at most; None: all that a device has."""
        return self.max_rows


@record
class Barrier:
    """Each device works at its own speed on all its rows, over and over; the server waits for enough of them.

    A device that has checked in waits for the next version. The others go on from the version that they have.

    Attributes:
        least: Check-ins that a version is made of at least.
        max_delay: Every device that still takes part is heard at least once in so many versions.
    """

    least: int
    max_delay: int
    whole = True
    invites = False
    waits = True
    epochs = 1
    multiple = 1
    batch = 1
    buffer = 1
    alone = False
    most_rows = None

    def accepts(self, staleness: int) -> bool:
        """Tell whether a check-in that is so many versions old is used at all."""
        return staleness < self.max_delay

    def ready(self, counts: Counts) -> bool:
        """Tell whether enough have spoken and nobody has been silent for too long."""
        return counts.received >= self.least and counts.longest < self.max_delay - 1

    @property
    def cohort(self) -> int:
        """Check-ins behind a version at least."""
        return self.least

    @property
    def delays(self) -> int:
        """Versions that a check-in may be old, and that are kept for it."""
        return self.max_delay


Schedule = OnArrival | Rounds | Barrier
