"""Bringing a database's tables up to date when it is opened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from crowdml.core import BadInput
from crowdml.server.store.database import Database
from crowdml.server.store.sqlite import make_file

if TYPE_CHECKING:
    from sqlalchemy import Connection

VERSION_TABLE = "schema_version"
HEAD = "0003"
"""The last migration. Alembic is imported only where a database is not there yet: it takes a while."""

SCRIPTS = Path(__file__).with_name("migrations")


def is_current(database: Database) -> bool:
    """Tell whether the tables are there and up to date, without SQLAlchemy; in doubt, no."""
    try:
        with database.look_up() as cursor:
            cursor.execute(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608  a constant
            return cursor.fetchall() == [(HEAD,)]
    except database.driver.Error:
        return False


def migrate(connection: Connection) -> None:
    """Make the tables of an empty database; bring older ones up to date; refuse newer or foreign ones."""
    with connection.begin():
        present = present_version(connection)
    if present == HEAD:
        return
    if present is not None:
        _keep_copy(connection, present)
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

    from crowdml.server.store.schema import metadata

    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        if taken := sorted(tables & set(metadata.tables)):
            raise BadInput(f"the database has tables of another program: {', '.join(taken)}", where="--db")
        return None
    found = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()  # noqa: S608  a constant
    if found is not None and str(found) > HEAD:
        raise BadInput(
            f"the database was made by a newer crowdml (tables {found}, this one knows {HEAD})",
            where="--db",
            hint="install that release",
        )
    return found


def _keep_copy(connection: Connection, present: str) -> None:
    """Copy an SQLite file before it is changed; for PostgreSQL that is the operator's `crowdml backup`."""
    path = connection.engine.url.database
    if connection.dialect.name != "sqlite" or path is None:
        return
    copy = Path(f"{path}.before-{HEAD}")
    make_file(copy)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
