"""The tables.

`receipts` is a log: a batch of check-ins is appended to it, so that it dirties few pages however large the log is. The
other tables keep away from that path. What changes with every batch (`tasks`, `states`) stands apart from what is long
and never changes (`sheets`, `public_sets`); what follows from receipts (`counters`) is written from time to time. A
receipt names a device by its slot alone: the name is in one place, `devices`, so that deleting that row erases it from
all receipts.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

NAMES = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}
metadata = MetaData(naming_convention=NAMES)


def _task() -> Column[int]:
    """The leading column of a table of which every task has its own part."""
    return Column("task", Integer, ForeignKey("tasks.id"), primary_key=True, autoincrement=False)


tasks = Table(
    "tasks",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("incarnation", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("check_ins", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("slots", Integer, nullable=False),
)

sheets = Table(
    "sheets",
    metadata,
    _task(),
    Column("file", Text, nullable=False),
    Column("sheet", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("key", LargeBinary, nullable=False),
)

public_sets = Table(
    "public_sets",
    metadata,
    _task(),
    Column("content", LargeBinary, nullable=False),
)

states = Table(
    "states",
    metadata,
    _task(),
    Column("server_state", LargeBinary, nullable=False),
)

devices = Table(
    "devices",
    metadata,
    _task(),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("token_hash", LargeBinary, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("joined", Double, nullable=False),
    Column("revoked", Boolean, nullable=False),
    UniqueConstraint("task", "public_key"),
    sqlite_with_rowid=False,
)

invites = Table(
    "invites",
    metadata,
    _task(),
    Column("code_hash", LargeBinary, primary_key=True),
    Column("used", Boolean, nullable=False),
    Column("slot", Integer),
    sqlite_with_rowid=False,
)

# In the index the key comes before the slot: our devices begin a key with the version they started from, so that the
# entries of a batch lie side by side. The task is not checked by the database; the fence in `apply` has done so.
receipts = Table(
    "receipts",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("task", Integer, nullable=False),
    Column("slot", Integer, nullable=False),
    Column("key", Text().with_variant(Text(collation="C"), "postgresql"), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("previous", BigInteger),
    UniqueConstraint("task", "key", "slot"),
)


def _slot_of_device() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["task", "slot"], ["devices.task", "devices.slot"], ondelete="CASCADE")


counters = Table(
    "counters",
    metadata,
    Column("task", Integer, primary_key=True, autoincrement=False),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("check_ins", BigInteger, nullable=False),
    Column("last_version", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    _slot_of_device(),
    sqlite_with_rowid=False,
)

device_rows = Table(
    "device_rows",
    metadata,
    Column("task", Integer, primary_key=True, autoincrement=False),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("row", LargeBinary, nullable=False),
    _slot_of_device(),
)

points = Table(
    "points",
    metadata,
    _task(),
    Column("check_ins", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("estimated_error", Double),
    Column("time", Double, nullable=False),
    Column("counted", BigInteger),
    Column("errors", BigInteger),
    sqlite_with_rowid=False,
)

server_identity = Table(
    "server_identity",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("signing_key", LargeBinary, nullable=False),
    Column("operator_token_hash", LargeBinary, nullable=False),
)

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
