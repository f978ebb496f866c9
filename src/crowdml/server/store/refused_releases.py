"""Releases that the server refused: what they hold was seen, so the mirror of a device's ledger counts them.

A release is charged before it is sent. One that is refused (too old, not asked for) has no receipt, and a device that
went on with an older ledger would not know that it was charged. Each is kept once, by its key, however often it is sent
again. A device that is refused without end does not fill the disk: beyond `MOST` nothing more is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from crowdml.server.store.database import Statements

MOST = 10_000
"""Refused releases that are kept of one device."""

COUNT = "SELECT COUNT(*) FROM refused_releases WHERE task = ? AND slot = ?"
KEEP = (
    'INSERT INTO refused_releases (task, slot, "key") SELECT task, slot, ? FROM devices WHERE task = ? AND slot = ? '
    'ON CONFLICT (task, slot, "key") DO NOTHING'
)
"""Keeps one, unless its device has withdrawn."""
FOR_GOOD = (
    "SELECT COUNT(*) FROM refused_releases WHERE task = ? AND slot = ? AND NOT EXISTS (SELECT 1 FROM receipts "
    'WHERE receipts.task = refused_releases.task AND receipts."key" = refused_releases."key" '
    "AND receipts.slot = refused_releases.slot)"
)
"""Counts those that were not used later after all, as when a version came that they had been ahead of."""


def keep(statements: Statements, task: int, refused: Sequence[tuple[int, str]]) -> None:
    """Remember refused releases by slot and key."""
    for slot, key in refused:
        if statements.first(COUNT, task, slot)[0] < MOST:
            statements.run(KEEP, key, task, slot)


def count(statements: Statements, task: int, slot: int) -> int:
    """Return how many releases of a device were refused for good."""
    return int(statements.first(FOR_GOOD, task, slot)[0])
