"""Backups: a consistent copy of a whole store in one SQLite file, made while the server runs, and the way back.

The file holds the operator's secret key: keep it as safe as the database itself.

A restored task goes back in time, and says so. It gets a new incarnation number, signed anew with the operator's key
from the backup. The signed task says which incarnations are over and which version it went back to: that is the notice
for devices. They ask their owners, unless these have accepted such a notice in advance, and accept that the version
went back; within one incarnation they would refuse that.

Who left does not come back: a device that was revoked or has withdrawn since the backup stays out, as far as the
database that is overwritten still knows. Where nothing was there to overwrite, the operator has to revoke again.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection, MetaData, Table, delete, insert, select
from sqlalchemy.engine import URL

from crowdml.core import BadInput, record
from crowdml.core.files import sqlite_errors, writable
from crowdml.core.keys import SigningKey
from crowdml.server.store.database import Statements
from crowdml.server.store.device_tables import withdraw
from crowdml.server.store.event_log import forget, note
from crowdml.server.store.open_database import (
    HEAD,
    TABLES,
    VERSION_TABLE,
    is_postgres,
    migrate,
    open_database,
    parse,
    path_of,
    present_version,
    upgrade,
)
from crowdml.server.store.postgres import connect_postgres
from crowdml.server.store.session_tables import end_sessions
from crowdml.server.store.sqlite import connect_sqlite, make_file, sync_folder
from crowdml.wire.signed_task import Restored, SignedTask, sign_task

ROWS = 1000
"""Rows copied at a time between databases of different kinds."""


def backup(url: str, path: Path) -> None:
    """Copy a store into a new file; the server may go on working."""
    source = parse(url)
    writable(path)
    if path.exists():
        raise BadInput(f"{path} is there already", hint="choose another name; a backup never replaces one")
    with _new_file(path) as unfinished:
        if is_postgres(source):
            _copy_postgres(source, unfinished)
        else:
            _copy_sqlite(path_of(source), unfinished)
        _seal(unfinished)
        os.rename(unfinished, path)
        sync_folder(path.parent)


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
            with source.begin(), target.begin(), closing(target.connection.cursor()) as cursor:
                statements = database.statements(cursor)
                before = _present(statements)
                if not force and (before.tasks or before.key is not None):
                    raise BadInput("the database is not empty", where="--db", hint="--force overwrites what is there")
                for table in reversed(tables_of(target)):
                    target.execute(delete(table))
                _copy_rows(source, target)
                _keep_out(statements, before)
                # Who had signed in when the backup was made may have signed out since.
                end_sessions(statements)
                note(statements, "operator", "restored a backup")
                return _sign_anew(statements, before)


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """Make a file beside another, under a name that says it is not finished; gone at the end unless it was renamed."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    _discard(unfinished)
    make_file(unfinished)
    try:
        yield unfinished
    finally:
        _discard(unfinished)


def _discard(path: Path) -> None:
    """Remove an SQLite file and what belongs to it."""
    for ending in ("-wal", "-shm", "-journal", ""):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _copy_sqlite(source: Path, target: Path) -> None:
    """Copy one file of a store as it is at one moment."""
    if not source.is_file():
        hint = "give a backup that is there; --home FOLDER or --db URL says where a server keeps its tasks"
        raise BadInput(f"there is no file {source}", hint=hint)
    address = f"{source.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as read, closing(sqlite3.connect(target)) as written:
        try:
            with sqlite_errors():
                read.backup(written)
                found = read.execute("SELECT name FROM sqlite_master WHERE name = ?", (VERSION_TABLE,)).fetchone()
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
                raise BadInput(f"{target.parent} has no room for a copy of {source}", hint="make room there") from None
            raise BadInput(f"{source} cannot be read: {error}") from None
        if not found:
            raise BadInput(f"{source} is not a store of crowdml")


def _seal(path: Path) -> None:
    """Make one whole file of it, check it, and write it to disk."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = DELETE")
        if (verdict := file.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
            raise BadInput(f"the copy is damaged: {verdict}")
    with path.open("rb") as file:
        os.fsync(file.fileno())


def tables_of(connection: Connection) -> list[Table]:
    """Return the tables of a store as its database has them, each after those that it refers to.

    Tables of others, with which a server may share its database, are never touched.
    """
    found = MetaData()
    found.reflect(connection, only=sorted(TABLES))
    return found.sorted_tables


def _copy_rows(source: Connection, target: Connection) -> None:
    """Copy the rows of all tables, inside a transaction on either side."""
    here = {table.name: table for table in tables_of(source)}
    for table in tables_of(target):
        found = source.execution_options(yield_per=ROWS).execute(select(here[table.name]))
        for part in found.mappings().partitions():
            target.execute(insert(table), [dict(row) for row in part])


def _copy_postgres(source: URL, target: Path) -> None:
    with closing(connect_postgres(source)) as read:
        read = read.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with read.begin():
            if (present := present_version(read)) != HEAD:
                shown = source.render_as_string(hide_password=True)
                raise BadInput(
                    f"{shown} is not a store of this release (tables {present}, this one knows {HEAD})",
                    hint="open it once with crowdml serve",
                )
            with closing(connect_sqlite(target)) as written:
                upgrade(written, HEAD)
                with written.begin():
                    _copy_rows(read, written)


def _older_too(path: Path, copy: Path) -> Connection:
    """Open a copy of a backup whose tables were brought up to date; the backup itself is only read."""
    make_file(copy)
    _copy_sqlite(path, copy)
    connection = connect_sqlite(copy)
    try:
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@record
class _Present:
    """What a database knows of tasks and devices.

    Attributes:
        key: The operator's key: another operator's devices say nothing about ours.
        tasks: Incarnation and slots given so far, by the name of the task.
        revoked: Whether each device is revoked, by its name.
    """

    key: bytes | None
    tasks: dict[str, tuple[int, int]]
    revoked: dict[str, bool]


def _present(statements: Statements) -> _Present:
    key = statements.first("SELECT signing_key FROM server_identity")
    tasks = statements.rows("SELECT name, incarnation, slots FROM tasks")
    return _Present(
        key=key[0] if key else None,
        tasks={name: (incarnation, slots) for name, incarnation, slots in tasks},
        revoked=dict(statements.rows("SELECT id, revoked FROM devices")),
    )


def _keep_out(statements: Statements, before: _Present) -> None:
    """Revoke again whom the overwritten database had revoked, and erase again who had withdrawn from it."""
    if before.key is None or before.key != _present(statements).key:
        return
    everyone = "SELECT devices.id, devices.slot, tasks.name FROM devices JOIN tasks ON tasks.id = devices.task"
    for name, slot, task in statements.rows(everyone):
        if before.revoked.get(name):
            statements.run("UPDATE devices SET revoked = ? WHERE id = ?", True, name)
        # A slot the overwritten database had not given yet belongs to somebody who joined later, not who left.
        elif name not in before.revoked and slot < before.tasks.get(task, (0, 0))[1]:
            if gone := withdraw(statements, name):
                forget(statements, *gone)


def _sign_anew(statements: Statements, before: _Present) -> dict[str, int]:
    """Give each task an incarnation above that of the backup and above the one that is overwritten."""
    secret = _present(statements).key
    renewed = {}
    found = (
        'SELECT id, name, incarnation, version, signed_text, signature, "key" FROM tasks JOIN signed_tasks ON task = id'
    )
    for task, name, incarnation, version, text, signature, key in statements.rows(found):
        if secret is None:
            raise BadInput("the backup has tasks, but not the operator's key")
        notice = Restored(after=max(incarnation, before.tasks.get(name, (0, 0))[0]), version=version)
        renewed[name] = notice.after + 1
        document = SignedTask(text=text, signature=signature, key=key).open()
        signed = sign_task(
            dataclasses.replace(document, incarnation=renewed[name], restored=notice), SigningKey(secret)
        )
        statements.run(
            'UPDATE signed_tasks SET signed_text = ?, signature = ?, "key" = ? WHERE task = ?',
            *(signed.text, signed.signature, signed.key, task),
        )
        statements.run("UPDATE tasks SET incarnation = ? WHERE id = ?", renewed[name], task)
    return renewed
