"""A table for releases that were refused: they are spent, so a device's mirror counts them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0400"
down_revision = "0300"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "refused_releases",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("slot", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("key", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("task", "slot", "key", name="pk_refused_releases"),
        sa.ForeignKeyConstraint(
            ["task", "slot"],
            ["devices.task", "devices.slot"],
            name="fk_refused_releases_task_slot",
            ondelete="CASCADE",
        ),
        sqlite_with_rowid=False,
    )
