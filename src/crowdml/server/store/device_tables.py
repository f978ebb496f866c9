"""How devices join a task by an invite and leave it again, in the tables. Each function runs inside a transaction."""

from __future__ import annotations

from typing import Any

from crowdml.server.store.database import Statements
from crowdml.server.store.store_records import NewDevice, Refused

FIND_INVITE = "SELECT used, slot FROM invites WHERE task = ? AND code_hash = ?"
TAKE_INVITE = "UPDATE invites SET used = ? WHERE task = ? AND code_hash = ? AND NOT used"
LINK_INVITE = "UPDATE invites SET slot = ? WHERE task = ? AND code_hash = ?"
FIND_KEY = "SELECT slot FROM devices WHERE task = ? AND public_key = ?"
FIND_JOINED = "SELECT * FROM devices WHERE task = ? AND slot = ? AND public_key = ? AND NOT revoked"


def use_invite(
    statements: Statements, task: int, code_hash: bytes, device: NewDevice
) -> tuple[dict[str, Any], bool] | Refused:
    """Give the device a slot if the invite is fresh, or a new token if this very key has used it.

    Returns:
        The device's row and whether it had joined before; or why it cannot join.
    """
    invite = statements.first(FIND_INVITE, task, code_hash)
    if invite is None:
        return "unknown"
    used, slot = invite
    if used:
        joined = statements.records(FIND_JOINED, task, slot, device.public_key)
        if not joined:
            return "used"
        statements.run("UPDATE devices SET token_hash = ? WHERE id = ?", device.token_hash, joined[0]["id"])
        return joined[0] | {"token_hash": device.token_hash}, True
    if statements.first(FIND_KEY, task, device.public_key):
        return "key-taken"
    # Only one transaction can turn it from fresh to used; whoever comes second finds it used when it looks again.
    if statements.run(TAKE_INVITE, True, task, code_hash) != 1:
        return "used"
    statements.run("UPDATE tasks SET slots = slots + 1 WHERE id = ?", task)
    (slots,) = statements.first("SELECT slots FROM tasks WHERE id = ?", task)
    row = {**vars(device), "task": task, "slot": slots - 1, "revoked": False}
    statements.insert("devices", **row)
    statements.run(LINK_INVITE, slots - 1, task, code_hash)
    return row, False


def withdraw(statements: Statements, device: str) -> tuple[int, int] | None:
    """Erase a device, its space and the link from its invite. The invite stays used, the slot is never given again."""
    found = statements.first("SELECT task, slot FROM devices WHERE id = ?", device)
    if found is None:
        return None
    task, slot = found
    statements.run("UPDATE invites SET slot = NULL WHERE task = ? AND slot = ?", task, slot)
    for table in ("device_rows", "counters", "refused_releases", "devices"):
        statements.run(f"DELETE FROM {table} WHERE task = ? AND slot = ?", task, slot)  # noqa: S608  names of ours
    return task, slot
