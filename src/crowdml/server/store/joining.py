"""How devices join and leave, inside a transaction."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, delete, insert, select, update

from crowdml.server.store.records import Joined, NewDevice, StoredDevice
from crowdml.server.store.schema import device_rows, devices, invites, tasks


def use_invite(
    connection: Connection, task: int, code_hash: bytes, device: NewDevice
) -> Joined | Literal["unknown", "used", "key-taken"]:
    """Give the device a slot if the invite is fresh, or a new token if this very key has used it."""
    own = (invites.c.task == task) & (invites.c.code_hash == code_hash)
    row = connection.execute(select(invites.c.used, invites.c.slot).where(own)).first()
    if row is None:
        return "unknown"
    if row.used:
        return _join_again(connection, task, row.slot, device)
    taken = (devices.c.task == task) & (devices.c.public_key == device.public_key)
    if connection.execute(select(devices.c.slot).where(taken)).first():
        return "key-taken"
    grown = update(tasks).where(tasks.c.id == task).values(slots=tasks.c.slots + 1).returning(tasks.c.slots)
    slot = connection.execute(grown).scalar_one() - 1
    # Only one transaction can turn it from fresh to used.
    won = connection.execute(update(invites).where(own, invites.c.used.is_(False)).values(used=True, slot=slot))
    if won.rowcount != 1:
        raise AssertionError("the invite was used inside another transaction")
    made = StoredDevice(
        task=task,
        slot=slot,
        id=device.id,
        token_hash=device.token_hash,
        public_key=device.public_key,
        joined=device.joined,
        revoked=False,
        check_ins=0,
        last_version=-1,
    )
    connection.execute(insert(devices).values(**vars(made)))
    return Joined(device=made, again=False)


def _join_again(connection: Connection, task: int, slot: int | None, device: NewDevice) -> Joined | Literal["used"]:
    own = (
        (devices.c.task == task)
        & (devices.c.slot == slot)
        & (devices.c.public_key == device.public_key)
        & devices.c.revoked.is_(False)
    )
    connection.execute(update(devices).where(own).values(token_hash=device.token_hash))
    row = connection.execute(select(devices).where(own)).mappings().first()
    return Joined(device=StoredDevice(**row), again=True) if row else "used"


def withdraw(connection: Connection, device: str) -> bool:
    """Erase a device, its space and the link from its invite. The invite stays used, the slot is never given again."""
    row = connection.execute(select(devices.c.task, devices.c.slot).where(devices.c.id == device)).first()
    if row is None:
        return False
    task, slot = row
    connection.execute(update(invites).where(invites.c.task == task, invites.c.slot == slot).values(slot=None))
    connection.execute(delete(device_rows).where(device_rows.c.task == task, device_rows.c.slot == slot))
    connection.execute(delete(devices).where(devices.c.task == task, devices.c.slot == slot))
    return True
