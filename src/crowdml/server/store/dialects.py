"""What SQLite and PostgreSQL spell differently. Each is imported only where it is used: both take a while."""

from __future__ import annotations

from typing import Any


def insert_of(name: str) -> Any:
    """Return the `insert` that knows what to do when a row is there already."""
    if name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert
    from sqlalchemy.dialects import sqlite

    return sqlite.insert


def array_of(kind: Any) -> Any:
    """Return the type of PostgreSQL's arrays."""
    from sqlalchemy.dialects import postgresql

    return postgresql.ARRAY(kind)
