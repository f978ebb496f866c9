"""Restoring a backup: the tasks go back in time, and say so.

Every restored task gets a new incarnation number in its sheet, signed anew with the operator's key from the backup.
The sheet says which incarnations are over and which version the task went back to: that is the notice for devices.
They ask their owners, unless these have accepted such a notice in advance, and accept that the version went back;
within one incarnation they would refuse that.

Who left does not come back: a device that was revoked or has withdrawn since the backup stays out, as far as the
database that is overwritten still knows. Where nothing was there to overwrite, the operator has to revoke again.
"""

from __future__ import annotations

import dataclasses
import tempfile
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, delete, select, update

from crowdml.core import BadInput, record
from crowdml.protocol.keys import SigningKey
from crowdml.protocol.sheet import Restored, SignedSheet, sign_sheet
from crowdml.server.store.backup import copy_rows, copy_sqlite
from crowdml.server.store.engines import open_database
from crowdml.server.store.joining import withdraw
from crowdml.server.store.migrating import migrate
from crowdml.server.store.schema import devices, metadata, server_identity, sheets, tasks
from crowdml.server.store.sqlite import connect_sqlite, make_file


def restore(path: Path, url: str, *, force: bool = False) -> dict[str, int]:
    """Bring a backup into a database that no server has open. All of it is restored, or nothing.

    Args:
        path: The backup.
        url: Address of the database.
        force: Whether what is in the database may be overwritten.

    Returns:
        The new incarnation of every task, by its name.
    """
    with tempfile.TemporaryDirectory() as folder, closing(_older_too(path, Path(folder) / "copy")) as source:
        with closing(open_database(url)) as database:
            target = database.writer
            migrate(target)
            with source.begin(), target.begin():
                before, left = _incarnations(target), _who_stayed(target)
                if not force and (before or target.execute(select(server_identity)).first()):
                    raise BadInput("the database is not empty", where="--db", hint="--force overwrites what is there")
                for table in reversed(metadata.sorted_tables):
                    target.execute(delete(table))
                copy_rows(source, target)
                _keep_out(target, left)
                return _sign_anew(target, before)


def _older_too(path: Path, copy: Path) -> Connection:
    """Open a copy of a backup whose tables were brought up to date; the backup itself is only read."""
    make_file(copy)
    copy_sqlite(path, copy)
    connection = connect_sqlite(copy)
    try:
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _incarnations(target: Connection) -> dict[str, int]:
    return {name: incarnation for name, incarnation in target.execute(select(tasks.c.name, tasks.c.incarnation))}


@record
class _Members:
    """The devices a database knows.

    Attributes:
        key: The operator's key: another operator's devices say nothing about ours.
        slots: Slots given so far, by the name of the task.
        revoked: Whether each device is revoked, by its name.
    """

    key: bytes | None
    slots: dict[str, int]
    revoked: dict[str, bool]


def _who_stayed(target: Connection) -> _Members:
    return _Members(
        key=target.execute(select(server_identity.c.signing_key)).scalar(),
        slots={name: slots for name, slots in target.execute(select(tasks.c.name, tasks.c.slots))},
        revoked={name: revoked for name, revoked in target.execute(select(devices.c.id, devices.c.revoked))},
    )


def _keep_out(target: Connection, before: _Members) -> None:
    """Revoke again whom the overwritten database had revoked, and erase again who had withdrawn from it."""
    restored = _who_stayed(target)
    if before.key is None or before.key != restored.key:
        return
    gone = [name for name, revoked in before.revoked.items() if revoked]
    target.execute(update(devices).where(devices.c.id.in_(gone)).values(revoked=True))
    everyone = select(devices.c.id, devices.c.slot, tasks.c.name).join(tasks, tasks.c.id == devices.c.task)
    for name, slot, task in target.execute(everyone).all():
        # A slot the overwritten database had not given yet belongs to somebody who joined later, not who left.
        if name not in before.revoked and slot < before.slots.get(task, 0):
            withdraw(target, name)


def _sign_anew(target: Connection, before: dict[str, int]) -> dict[str, int]:
    """Give each task an incarnation above that of the backup and above the one that is overwritten."""
    secret = target.execute(select(server_identity.c.signing_key)).scalar()
    told = {}
    found = select(tasks.c.id, tasks.c.name, tasks.c.incarnation, tasks.c.version)
    for task, name, incarnation, version in target.execute(found).all():
        if secret is None:
            raise BadInput("the backup has tasks, but not the operator's key")
        notice = Restored(after=max(incarnation, before.get(name, 0)), version=version)
        told[name] = notice.after + 1
        old = target.execute(
            select(sheets.c.sheet, sheets.c.signature, sheets.c.key).where(sheets.c.task == task)
        ).one()
        sheet = SignedSheet(text=old.sheet, signature=old.signature, key=old.key).open()
        renewed = dataclasses.replace(sheet, incarnation=told[name], restored=notice)
        new = sign_sheet(renewed, SigningKey(secret))
        target.execute(
            update(sheets).where(sheets.c.task == task).values(sheet=new.text, signature=new.signature, key=new.key)
        )
        target.execute(update(tasks).where(tasks.c.id == task).values(incarnation=told[name]))
    return told
