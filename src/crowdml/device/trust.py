"""What a device does not take on trust: sheets, versions, and that nothing was set back."""

from __future__ import annotations

import numpy as np

from crowdml.algorithms.live import LiveTask
from crowdml.core.errors import MalformedMessage, TermsViolated
from crowdml.device.home import Member
from crowdml.device.ledger_store import Ledger
from crowdml.protocol import Sheet

MOST_VERSIONS = 10**12
"""No task has more versions: at one every millisecond they take thirty years."""


class SheetChanged(TermsViolated):
    """A receipt names another sheet than the one accepted: another task, or the same one after a restore.

    Attributes:
        sheet: Hash of that sheet.
    """

    def __init__(self, sheet: str) -> None:
        """Keep the hash: whoever catches this can ask for the sheet."""
        super().__init__("the receipt names another sheet than the one the owner accepted")
        self.sheet = sheet


def require_plausible(live: LiveTask, version: int, started: int = -1) -> None:
    """Refuse a version that the task cannot have, before it is remembered: a device never believes a lower one again.

    Args:
        live: The task.
        version: The version that the server names.
        started: Where a receipt names it: the version from which its check-in had started; -1 where nobody knows.
    """
    most = live.task.stop.max_versions or MOST_VERSIONS
    if version > most:
        raise MalformedMessage(f"the server names version {version}, but this task has at most {most}")
    # The version before it was no further from the start than the task's rule about old check-ins allows.
    passed = max(version - 1 - started, 0)
    if started >= 0 and (version < started or not live.algorithm.accepts(passed)):
        raise MalformedMessage(
            f"the receipt names version {version} for a check-in that started from {started}, which the task's rules "
            "exclude"
        )


def require_whole(ledger: Ledger, member: Member, check_ins: int) -> None:
    """Refuse to go on with a ledger that knows of fewer releases than the server has receipts for."""
    charged = ledger.chain.tasks[member.account].releases
    if check_ins > charged:
        raise TermsViolated(
            f"the server has {check_ins} check-ins of this device, its ledger only {charged} charges: the ledger was "
            "set back, and what was spent is no longer known. Restore the newer ledger, or withdraw"
        )


def is_announced(live: LiveTask, before: Sheet, now: Sheet) -> bool:
    """Tell whether the sheet of a restored task carries the notice that an owner may have accepted in advance."""
    notice = now.restored
    return (
        notice is not None
        and before.incarnation <= notice.after == now.incarnation - 1
        and 0 <= notice.version <= (live.task.stop.max_versions or MOST_VERSIONS)
    )


def is_restored(before: Sheet, now: Sheet) -> bool:
    """Tell whether a sheet is the same task, of a later incarnation."""
    return (
        now.incarnation > before.incarnation
        and (now.task, now.definition) == (before.task, before.definition)
        and len(now.arrays) == len(before.arrays)
        and all(
            own.keys() == old.keys() and all(np.array_equal(own[name], old[name]) for name in own)
            for own, old in zip(now.arrays, before.arrays, strict=True)
        )
    )
