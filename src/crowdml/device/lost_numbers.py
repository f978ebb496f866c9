"""When the file with the numbers of samples is lost, cut off or an older copy: the device notices, stops, and says so.

The ledger holds the hash of the numbering with every charge (see `crowdml.device.samples`). Without the numbers nobody
can tell how often which row was used. So the owner puts the file back, or lets every sample count with the uses of the
most used one, since any may be that one; where nothing is left then, the owner can only withdraw.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from crowdml.core import BadInput
from crowdml.core.errors import TermsViolated
from crowdml.device.home import Home, Member
from crowdml.device.ledger_store import Ledger
from crowdml.device.memory import Memory


def require_numbering(ledger: Ledger, member: Member, memory: Memory, path: Path) -> None:
    """Refuse to go on with other numbers of samples than the ledger has counted with."""
    if has_numbering(ledger, member, memory):
        return
    spending, found = ledger.chain.tasks[member.account], memory.samples.numbering.count
    counted = spending.numbering.count if spending.numbering else len(np.flatnonzero(spending.uses.counts()))
    most, uses = spending.uses.most(), spending.terms.uses
    if most < uses:
        left = f"crowdml device renumber; every sample then counts as used {most} of {uses} times"
    else:
        left = f"crowdml device withdraw; a sample was used {most} of {uses} times, any may be it, and nothing is left"
    raise TermsViolated(
        f"{path} is not the file that the ledger has counted with: {found} samples are known in it, {counted} were "
        "counted. It was lost, cut off, changed or replaced by an older copy, so nobody can tell how often which row "
        f"was used; nothing is sent\n  put the newest copy of the file back\n  if it is lost for good: {left}"
    )


def has_numbering(ledger: Ledger, member: Member, memory: Memory) -> bool:
    """Tell whether the numbers of samples are those that the ledger has counted with.

    Any will do where nothing is promised to samples. A ledger from before charges named a numbering is believed if each
    number in it is one of a sample that is still known.
    """
    spending = ledger.chain.tasks[member.account]
    return spending.terms.unit != "sample" or memory.samples.holds(spending.numbering, spending.uses)


def renumber(home: Home, member: Member) -> int:
    """Go on after the numbers were lost: every sample counts with the uses of the most used one, which are returned.

    Raises:
        BadInput: Nothing is lost, or nothing would be left.
    """
    with ExitStack() as stack:
        stack.enter_context(home.lock())
        ledger = stack.enter_context(home.ledger())
        memory = Memory(home.memory_path(member))
        stack.callback(memory.close)
        if has_numbering(ledger, member, memory):
            raise BadInput(f"{member.task}: no numbers of samples are lost", hint="crowdml device run --rows FILE")
        spending = ledger.chain.tasks[member.account]
        most, uses = spending.uses.most(), spending.terms.uses
        if most >= uses:
            raise BadInput(
                f"{member.task}: a sample was used {most} of {uses} times, any may be it, and nothing is left",
                hint="put the newest copy of memory.sqlite back, or leave: crowdml device withdraw",
            )
        # What is left in the file may stay: whichever number a sample has, it counts with these uses.
        ledger.lost(member.account)
        return most
