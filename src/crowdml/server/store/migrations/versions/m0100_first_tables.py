"""The first tables. A migration is never changed after it was released; a later one changes what it made.

`receipts` is a log: a batch of check-ins is appended to it, so that it dirties few pages however large the log is. The
other tables keep away from that path. What changes with every batch (`tasks`, `states`) stands apart from what is long
and never changes (`signed_tasks`, `public_sets`); what follows from receipts (`counters`) is written from time to time.
A receipt names a device by its slot alone: the name is in one place, `devices`, so that deleting that row erases it
from all receipts.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    _make_tasks()
    _make_devices()
    _make_receipts()
    _make_server()


def _make_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("check_ins", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
        sa.UniqueConstraint("name", name="uq_tasks_name"),
    )
    op.create_table(
        "signed_tasks",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("signed_text", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task", name="pk_signed_tasks"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_signed_tasks_task"),
    )
    op.create_table(
        "public_sets",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task", name="pk_public_sets"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_public_sets_task"),
    )
    op.create_table(
        "states",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("server_state", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task", name="pk_states"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_states_task"),
    )
    op.create_table(
        "points",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("check_ins", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("estimated_error", sa.Double()),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("counted", sa.BigInteger()),
        sa.Column("errors", sa.BigInteger()),
        sa.PrimaryKeyConstraint("task", "check_ins", name="pk_points"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_points_task"),
        sqlite_with_rowid=False,
    )


def _make_devices() -> None:
    op.create_table(
        "devices",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("slot", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("joined", sa.Double(), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("task", "slot", name="pk_devices"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_devices_task"),
        sa.UniqueConstraint("id", name="uq_devices_id"),
        sa.UniqueConstraint("task", "public_key", name="uq_devices_task_public_key"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "invites",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.Column("used", sa.Boolean(), nullable=False),
        sa.Column("slot", sa.Integer()),
        sa.PrimaryKeyConstraint("task", "code_hash", name="pk_invites"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_invites_task"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "device_rows",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("slot", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("row", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task", "slot", name="pk_device_rows"),
        _slot_of_device("device_rows"),
    )


def _make_receipts() -> None:
    # In the index the key comes before the slot: our devices begin a key with the version they started from, so that
    # the entries of a batch lie side by side. The task is not checked here; the fence in `apply` has done so.
    op.create_table(
        "receipts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=False),
        sa.Column("task", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("previous", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_receipts"),
        sa.UniqueConstraint("task", "key", "slot", name="uq_receipts_task_key_slot"),
    )
    op.create_table(
        "counters",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("slot", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("check_ins", sa.BigInteger(), nullable=False),
        sa.Column("last_version", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task", "slot", name="pk_counters"),
        _slot_of_device("counters"),
        sqlite_with_rowid=False,
    )


def _make_server() -> None:
    op.create_table(
        "server_identity",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("signing_key", sa.LargeBinary(), nullable=False),
        sa.Column("operator_token_hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_server_identity"),
    )
    op.create_table(
        "meta",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_meta"),
    )


def _slot_of_device(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["task", "slot"], ["devices.task", "devices.slot"], name=f"fk_{table}_task_slot", ondelete="CASCADE"
    )
