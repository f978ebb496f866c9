"""Public rows of a task, apart from everything that changes: they are written once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "public_sets",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_public_sets_task"),
        sa.PrimaryKeyConstraint("task", name="pk_public_sets"),
    )
