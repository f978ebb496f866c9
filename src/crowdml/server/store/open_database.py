"""Opening a database: by its address, with the tables that this release knows.

Compatibility starts with the migration `FIRST`. Tables of an earlier release are refused, and so are those of a later
one; whatever lies between is brought up to date when it is opened.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdml.core import BadInput
from crowdml.server.store.database import Database
from crowdml.server.store.sqlite import make_file, open_sqlite

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

URLS = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
_PLAIN = re.compile(r"sqlite:///([^?:]+)")
"""An address that needs no interpretation: a file, no options."""

VERSION_TABLE = "schema_version"
FIRST = "0100"
"""The first migration: older tables are refused."""
HEAD = "0400"
"""The last migration. Alembic is imported only where a database is not there yet: it takes a while."""

TABLES = {"tasks", "signed_tasks", "public_sets", "states", "points", "devices", "invites", "device_rows"}
TABLES |= {"receipts", "counters", "server_identity", "meta", "days", "validations", "operator_sessions", "event_log"}
TABLES |= {"refused_releases"}
"""Names that no other program may have taken."""

SCRIPTS = Path(__file__).with_name("migrations")


def open_database(url: str, **options: Any) -> Database:
    """Open a database by its address, or say why it cannot be used; `options` are those of `open_postgres`."""
    if plain := _PLAIN.fullmatch(url):
        # Read without SQLAlchemy, which takes longer to load than a server with SQLite needs for all else.
        return open_sqlite(Path(plain[1]))
    parsed = parse(url)
    if not is_postgres(parsed):
        return open_sqlite(path_of(parsed))
    from crowdml.server.store.postgres import open_postgres

    return open_postgres(parsed, **options)


def parse(url: str) -> URL:
    """Read an address.

    >>> parse("postgresql://crowd@localhost/crowd").drivername
    'postgresql+psycopg'
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        raise BadInput(f"{url!r} is not the address of a database", where="--db", hint=URLS) from None
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername != "sqlite" or parsed.database in (None, "", ":memory:") or parsed.query:
        shown = parsed.render_as_string(hide_password=True)
        raise BadInput(f"{shown} is not a database that keeps what it was given", where="--db", hint=URLS)
    return parsed


def is_postgres(url: URL) -> bool:
    """Tell PostgreSQL from SQLite."""
    return url.get_backend_name() == "postgresql"


def path_of(url: URL) -> Path:
    """Return the file of an SQLite address."""
    return Path(url.database or "")


def is_current(database: Database) -> bool:
    """Tell whether the tables are there and up to date, without SQLAlchemy; in doubt, no."""
    try:
        with database.look_up() as cursor:
            cursor.execute(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608  a constant
            return cursor.fetchall() == [(HEAD,)]
    except database.driver.Error:
        return False


def migrate(connection: Connection) -> None:
    """Make the tables of an empty database; bring earlier ones up to date; refuse older, newer or foreign ones."""
    with connection.begin():
        present = present_version(connection)
    if present == HEAD:
        return
    if present is not None:
        _keep_copy(connection)
    upgrade(connection, HEAD)


def upgrade(connection: Connection, to: str) -> None:
    """Run the migrations up to one of them, all in one transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
    connection.commit()


def present_version(connection: Connection) -> str | None:
    """Return the migration that the database is at; None for an empty one."""
    from sqlalchemy import inspect

    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        if taken := sorted(tables & TABLES):
            raise BadInput(f"the database has tables of another program: {', '.join(taken)}", where="--db")
        return None
    found = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()  # noqa: S608  a constant
    if found is not None and str(found) < FIRST:
        raise BadInput(
            f"the database was made by an older crowdml (tables {found}), whose tasks this one cannot continue",
            where="--db",
            hint="export its models with that release (crowdml task export), then give this one a new --db or an empty "
            "--home and create the tasks again",
        )
    if found is not None and str(found) > HEAD:
        raise BadInput(
            f"the database was made by a newer crowdml (tables {found}, this one knows {HEAD})",
            where="--db",
            hint="install that release",
        )
    return found


def _keep_copy(connection: Connection) -> None:
    """Copy an SQLite file before it is changed; for PostgreSQL that is the operator's `crowdml backup`."""
    path = connection.engine.url.database
    if connection.dialect.name != "sqlite" or path is None:
        return
    copy = Path(f"{path}.before-{HEAD}")
    make_file(copy)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
