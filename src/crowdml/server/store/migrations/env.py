"""What Alembic runs to bring a database up to date; `crowdml.server.store.open_database` calls it."""

from __future__ import annotations

from alembic import context

from crowdml.server.store.open_database import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    # One transaction for all, in SQLite too: a crash in the midst leaves the tables as they were.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
