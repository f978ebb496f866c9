"""Counts at every point of a curve, so that the error of a window can be told from that of the whole course."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; points from before have no counts."""
    op.add_column("points", sa.Column("counted", sa.BigInteger(), nullable=True))
    op.add_column("points", sa.Column("errors", sa.BigInteger(), nullable=True))
