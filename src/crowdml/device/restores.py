"""What a device does when its server went back: a restore that the operator signed, or a way back for the owner.

After `crowdml restore` the same task is signed anew, with a notice of where it went back to. The owner confirms that,
now or in advance; terms and ledger stay.

If the server once named a version that never was, or an old database was put back without `crowdml restore`, the two
cannot meet again by themselves. `resync` is the way back: the owner lets the device begin again from what the server
shows. That gives up the proof that nothing was set back, once, and nothing else. The ledger stays as it is, and every
release is charged to it as before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np

from crowdml.core import BadInput, record
from crowdml.core.errors import TermsViolated
from crowdml.data.rows.row_contract import Warn
from crowdml.device.calls import connected
from crowdml.device.device_home import Home, Member, terms_of
from crowdml.device.sending import MOST_VERSIONS, Sender, require_plausible, require_whole
from crowdml.device.server_connection import Connection
from crowdml.device.task_memory import Memory
from crowdml.task.live_task import LiveTask
from crowdml.wire import TaskDocument

Confirm = Callable[[TaskDocument], bool]
"""Asks the owner whether to go on with a task that was restored."""


def follow_restore(
    home: Home, sender: Sender, before: TaskDocument, task_hash: str, confirm: Confirm | None, warn: Warn
) -> TaskDocument:
    """Go on with another signed task than the one accepted if it is the same task after a restore; refuse others.

    The owner has confirmed that: now, or in advance for restores of which the operator's signed notice tells.

    Args:
        home: The device's folder.
        sender: What the device has with its server; its member then names the new signed task.
        before: What the signed task said that the owner accepted.
        task_hash: The signed task that the server names.
        confirm: Asked for every restore that was not accepted in advance; None: refuse.
        warn: Told that the task was restored.

    Returns:
        What the new signed task says.
    """
    member, live = sender.member, sender.live
    signed = sender.calls.described().signed
    new = signed.open(expected_key=member.operator)
    if signed.hash != task_hash or not _is_restored(before, new):
        raise TermsViolated(f"{member.task}: the server's signed task is not the one that the owner accepted")
    in_advance = member.accept_restores and _is_announced(live, before, new)
    if not in_advance and (confirm is None or not confirm(new)):
        raise TermsViolated(
            f"{member.task}: the operator restored it from a backup (incarnation {new.incarnation}); terms and ledger "
            "stay, but the owner must confirm\n  crowdml device run --accept-restored …, or in advance for this and "
            "later ones: crowdml device restores --accept"
        )
    sender.ledger.renew(member.account, signed.hash, terms_of(live))
    # Before the member names what was signed anew: after a crash in between all of this is done again.
    sender.memory.begin_again(new.restored.version if new.restored else -1)
    sender.member = member.model_copy(update={"task_hash": signed.hash, "incarnation": new.incarnation})
    home.store(sender.member, signed)
    shown = f", version {new.restored.version}" if new.restored else ""
    warn(
        f"the operator restored {member.task} from a backup (incarnation {new.incarnation}{shown}); the owner accepted "
        f"that{' in advance' if in_advance else ''}, and the ledger goes on"
    )
    return new


def _is_announced(live: LiveTask, before: TaskDocument, now: TaskDocument) -> bool:
    """Tell whether a restored task carries the notice that an owner may have accepted in advance."""
    notice = now.restored
    return (
        notice is not None
        and before.incarnation <= notice.after == now.incarnation - 1
        and 0 <= notice.version <= (live.task.stop.max_versions or MOST_VERSIONS)
    )


def _is_restored(before: TaskDocument, now: TaskDocument) -> bool:
    """Tell whether what was signed is the same task, of a later incarnation."""
    return (
        now.incarnation > before.incarnation
        and (now.task, now.definition) == (before.task, before.definition)
        and len(now.arrays) == len(before.arrays)
        and all(
            new.keys() == old.keys() and all(np.array_equal(new[name], old[name]) for name in new)
            for new, old in zip(now.arrays, before.arrays, strict=True)
        )
    )


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
    with (
        home.lock(),
        connected(member, connect) as calls,
        home.ledger() as ledger,
        closing(Memory(home.memory_path(member))) as memory,
    ):
        me, version = calls.me(), calls.version()
        if me.task_hash != member.task_hash:
            raise TermsViolated(
                f"{member.task}: the server's signed task is not the one that was accepted\n  after a restore: crowdml "
                "device run --accept-restored …"
            )
        require_whole(ledger.chain.tasks[member.account], me.check_ins + me.refused)
        require_plausible(home.live(member), version)
        gap = Gap(version_seen=memory.version, version=version, receipts_seen=memory.number, receipts=me.check_ins)
        if gap.went_back:
            if not confirm(gap):
                raise BadInput("the owner did not confirm: nothing was changed")
            memory.begin_again(version)
        return gap
