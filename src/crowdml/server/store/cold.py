"""What a store does now and then, with SQLAlchemy: tasks, devices and invites come and go.

Each function runs inside a transaction or on a connection that reads. `store` loads this module when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from crowdml.core import BadInput
from crowdml.server.store.errors import StoreConflict
from crowdml.server.store.records import Identity, NewTask, StoredTask
from crowdml.server.store.schema import devices, invites, public_sets, server_identity, sheets, states, tasks


def create_task(connection: Connection, task: NewTask) -> StoredTask:
    """Store a new task, at version 0."""
    if connection.execute(select(tasks.c.id).where(tasks.c.name == task.name)).first():
        raise BadInput(f"there is already a task {task.name!r}", where="name")
    number = (connection.execute(select(func.max(tasks.c.id))).scalar() or 0) + 1
    own = {name: getattr(task, name) for name in ("name", "state", "reason", "incarnation")}
    connection.execute(insert(tasks).values(id=number, **own, version=0, check_ins=0, received=0, slots=0))
    sheet = {name: getattr(task, name) for name in ("file", "sheet", "signature", "key")}
    connection.execute(insert(sheets).values(task=number, **sheet))
    connection.execute(insert(states).values(task=number, server_state=task.server_state))
    if task.public is not None:
        connection.execute(insert(public_sets).values(task=number, content=task.public))
    return StoredTask(**vars(task), id=number, version=0, check_ins=0, received=0, slots=0)


def set_state(connection: Connection, task: int, state: str, reason: str | None) -> None:
    """Open, pause or stop a task."""
    changed = update(tasks).where(tasks.c.id == task).values(state=state, reason=reason)
    if connection.execute(changed).rowcount != 1:
        raise StoreConflict(f"there is no task {task}")


def add_invites(connection: Connection, task: int, code_hashes: Iterable[bytes]) -> None:
    """Store invites by the SHA-256 of their codes."""
    new = [{"task": task, "code_hash": code, "used": False} for code in code_hashes]
    if new:
        connection.execute(insert(invites), new)


def device(connection: Connection, name: str) -> Any | None:
    """Find a device by its name."""
    return connection.execute(select(devices).where(devices.c.id == name)).mappings().first()


def revoke(connection: Connection, name: str) -> bool:
    """Shut a device out; say whether there is such a device."""
    return connection.execute(update(devices).where(devices.c.id == name).values(revoked=True)).rowcount == 1


def set_identity(connection: Connection, identity: Identity) -> None:
    """Store the server's keys in place of any before."""
    connection.execute(delete(server_identity))
    connection.execute(
        insert(server_identity).values(
            id=1, signing_key=identity.signing_key, operator_token_hash=identity.operator_token_hash
        )
    )
