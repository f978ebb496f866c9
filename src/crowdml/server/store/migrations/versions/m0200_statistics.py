"""Tables of what a page shows of a task: days on which devices took part, and errors on the operator's public rows.

A day's row is written when the day begins, and says where in the log of receipts that is; whatever else is known of the
day follows from the receipts, and is written down when the next one begins. So a start reads the receipts of one day.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0200"
down_revision = "0100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "days",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("day", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("staleness", sa.Text(), nullable=False),
        sa.Column("check_ins", sa.BigInteger()),
        sa.Column("devices", sa.Integer()),
        sa.PrimaryKeyConstraint("task", "day", name="pk_days"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_days_task"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "validations",
        sa.Column("task", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("version", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("error", sa.Double(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("task", "version", name="pk_validations"),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name="fk_validations_task"),
        sqlite_with_rowid=False,
    )
