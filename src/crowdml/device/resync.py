"""The way back for a device that no longer believes its server.

A device never believes a version below one it has seen, nor a receipt with a number it has had. If the server once
named a version that never was, or an old database was put back without `crowdml restore`, the two cannot meet again by
themselves. The owner can let the device begin again from what the server shows: that gives up the proof that nothing
was set back, once, and nothing else. The ledger stays as it is, and every release is charged to it as before.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.core import BadInput, record
from crowdml.core.errors import TermsViolated
from crowdml.device.connection import Connection
from crowdml.device.home import Home, Member
from crowdml.device.joining import connected
from crowdml.device.memory import Memory
from crowdml.device.terms import build
from crowdml.device.trust import require_plausible, require_whole


@record
class Gap:
    """What a device has seen of its server, and what the server shows now.

    Attributes:
        version_seen: Newest version that the server has named; -1 where it named none.
        version: The one it shows.
        receipts_seen: Number on the newest receipt.
        receipts: Receipts it shows.
    """

    version_seen: int
    version: int
    receipts_seen: int
    receipts: int

    @property
    def went_back(self) -> bool:
        """Whether the server shows less than before."""
        return self.version < self.version_seen or self.receipts < self.receipts_seen


def resync(
    home: Home, member: Member, confirm: Callable[[Gap], bool], connect: Callable[..., Connection] = Connection
) -> Gap:
    """Let a device begin again from what its server shows, if the owner confirms it.

    Args:
        home: The device's folder.
        member: Which task.
        confirm: Shown what differs; says whether the owner wants that.
        connect: For tests: makes the connection.

    Returns:
        What was seen and what is shown; nothing was changed if the server did not go back.
    """
    with home.lock(), connected(member, connect) as calls, home.ledger() as ledger:
        me, version = calls.me(), calls.version()
        if me.sheet != member.sheet:
            raise TermsViolated(
                f"{member.task}: the server's sheet is not the one that was accepted\n  after a restore: crowdml "
                "device run --accept-restored …"
            )
        require_whole(ledger, member, me.check_ins)
        require_plausible(build(home.sheet(member), member.epsilon), version)
        memory = Memory(home.memory_path(member))
        try:
            gap = Gap(version_seen=memory.version, version=version, receipts_seen=memory.number, receipts=me.check_ins)
            if gap.went_back:
                if not confirm(gap):
                    raise BadInput("the owner did not confirm: nothing was changed")
                memory.begin_again(version)
            return gap
        finally:
            memory.close()
