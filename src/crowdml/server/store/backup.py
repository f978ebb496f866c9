"""Backups: a consistent copy of a whole store in one SQLite file, made while the server runs.

The file holds the operator's secret key: keep it as safe as the database itself.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection, insert, select
from sqlalchemy.engine import URL

from crowdml.core import BadInput
from crowdml.core.validation import writable
from crowdml.server.store.engines import is_postgres, parse, path_of
from crowdml.server.store.migrating import HEAD, VERSION_TABLE, present_version, upgrade
from crowdml.server.store.postgres import connect_postgres
from crowdml.server.store.schema import metadata
from crowdml.server.store.sqlite import connect_sqlite, make_file, sync_folder

ROWS = 1000
"""Rows copied at a time between databases of different kinds."""


def backup(url: str, path: Path) -> None:
    """Copy a store into a new file; the server may go on working."""
    source = parse(url)
    writable(path)
    if path.exists():
        raise BadInput(f"{path} is there already", hint="choose another name; a backup never replaces one")
    with new_file(path) as unfinished:
        if is_postgres(source):
            _copy_postgres(source, unfinished)
        else:
            copy_sqlite(path_of(source), unfinished)
        seal(unfinished)
        os.rename(unfinished, path)
        sync_folder(path.parent)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Make a file beside another, under a name that says it is not finished; gone at the end unless it was renamed."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    discard(unfinished)
    make_file(unfinished)
    try:
        yield unfinished
    finally:
        discard(unfinished)


def discard(path: Path) -> None:
    """Remove an SQLite file and what belongs to it."""
    for ending in ("-wal", "-shm", "-journal", ""):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy one file of a store as it is at one moment."""
    if not source.is_file():
        raise BadInput(f"there is no file {source}", hint="--home FOLDER or --db URL says where a server keeps it")
    address = f"{source.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as read, closing(sqlite3.connect(target)) as written:
        try:
            read.backup(written)
            found = read.execute("SELECT name FROM sqlite_master WHERE name = ?", (VERSION_TABLE,)).fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise BadInput(f"{target.parent} has no room for a copy of {source}", hint="make room there") from None
            raise BadInput(f"{source} cannot be read: {error}") from None
        if not found:
            raise BadInput(f"{source} is not a store of crowdml")


def seal(path: Path) -> None:
    """Make one whole file of it, check it, and write it to disk."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = DELETE")
        if (verdict := file.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
            raise BadInput(f"the copy is damaged: {verdict}")
    with path.open("rb") as file:
        os.fsync(file.fileno())


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy the rows of all tables, inside a transaction on either side."""
    for table in metadata.sorted_tables:
        found = source.execution_options(yield_per=ROWS).execute(select(table))
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
                    copy_rows(read, written)
