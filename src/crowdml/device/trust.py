"""What a device does not take on trust: that the sheet is still the one accepted, and that nothing was set back."""

from __future__ import annotations

import numpy as np

from crowdml.core.errors import TermsViolated
from crowdml.device.home import Member
from crowdml.device.ledger_store import Ledger
from crowdml.protocol import Sheet


def require_whole(ledger: Ledger, member: Member, check_ins: int) -> None:
    """Refuse to go on with a ledger that knows of fewer releases than the server has receipts for."""
    charged = ledger.chain.tasks[member.account].releases
    if check_ins > charged:
        raise TermsViolated(
            f"the server has {check_ins} check-ins of this device, its ledger only {charged} charges: the ledger was "
            "set back, and what was spent is no longer known. Restore the newer ledger, or withdraw"
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
