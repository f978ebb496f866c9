"""Tables for the operator's portal: sessions of signed-in browsers, and the log of who did what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0300"
down_revision = "0200"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "operator_sessions",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name="pk_operator_sessions"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "event_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("task", sa.Integer()),
        sa.Column("slot", sa.Integer()),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event_log"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_event_log_task"),
    )
