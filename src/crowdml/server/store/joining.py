"""How devices join and leave, inside a transaction."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import Connection, delete, insert, select, update

from crowdml.server.store.records import NewDevice
from crowdml.server.store.schema import counters, device_rows, devices, invites, tasks

Refused = Literal["unknown", "used", "key-taken"]


def use_invite(
    connection: Connection, task: int, code_hash: bytes, device: NewDevice
) -> tuple[dict[str, Any], bool] | Refused:
    """Give the device a slot if the invite is fresh, or a new token if this very key has used it.

    Returns:
        The device's row and whether it had joined before; or why it cannot join.
    """
    own = (invites.c.task == task) & (invites.c.code_hash == code_hash)
    invite = connection.execute(select(invites.c.used, invites.c.slot).where(own)).first()
    if invite is None:
        return "unknown"
    if invite.used:
        row = _new_token(connection, task, invite.slot, device)
        return (row, True) if row else "used"
    taken = (devices.c.task == task) & (devices.c.public_key == device.public_key)
    if connection.execute(select(devices.c.slot).where(taken)).first():
        return "key-taken"
    # Only one transaction can turn it from fresh to used; whoever comes second finds it used when it looks again.
    if connection.execute(update(invites).where(own, invites.c.used.is_(False)).values(used=True)).rowcount != 1:
        return "used"
    grown = update(tasks).where(tasks.c.id == task).values(slots=tasks.c.slots + 1).returning(tasks.c.slots)
    slot = connection.execute(grown).scalar_one() - 1
    row = {**vars(device), "task": task, "slot": slot, "revoked": False}
    connection.execute(insert(devices).values(**row))
    connection.execute(update(invites).where(own).values(slot=slot))
    return row, False


def _new_token(connection: Connection, task: int, slot: int | None, device: NewDevice) -> dict[str, Any] | None:
    own = (
        (devices.c.task == task)
        & (devices.c.slot == slot)
        & (devices.c.public_key == device.public_key)
        & devices.c.revoked.is_(False)
    )
    connection.execute(update(devices).where(own).values(token_hash=device.token_hash))
    row = connection.execute(select(devices).where(own)).mappings().first()
    return dict(row) if row else None


def withdraw(connection: Connection, device: str) -> tuple[int, int] | None:
    """Erase a device, its space and the link from its invite. The invite stays used, the slot is never given again."""
    row = connection.execute(select(devices.c.task, devices.c.slot).where(devices.c.id == device)).first()
    if row is None:
        return None
    task, slot = row
    connection.execute(update(invites).where(invites.c.task == task, invites.c.slot == slot).values(slot=None))
    for table in (device_rows, counters, devices):
        connection.execute(delete(table).where(table.c.task == task, table.c.slot == slot))
    return task, slot
