"""Databases by their address: SQLite, or PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from crowdml.core import BadInput
from crowdml.server.store.database import Database
from crowdml.server.store.sqlite import open_sqlite

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_PLAIN = re.compile(r"sqlite:///([^?:]+)")
"""An address that needs no interpretation: a file, no options."""

URLS = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"


def open_database(url: str) -> Database:
    """Open a database by its address, or say why it cannot be used."""
    if plain := _PLAIN.fullmatch(url):
        # Read without SQLAlchemy, which takes longer to load than a server with SQLite needs for all else.
        return open_sqlite(Path(plain[1]))
    parsed = parse(url)
    if not is_postgres(parsed):
        return open_sqlite(path_of(parsed))
    from crowdml.server.store.postgres import open_postgres

    return open_postgres(parsed)


def parse(url: str) -> URL:
    """Read an address.

    >>> parse("postgresql://crowd@localhost/crowd").drivername
    'postgresql+psycopg'
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:
        raise BadInput(f"{url!r} is not the address of a database", where="--db", hint=URLS) from None
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername != "sqlite" or parsed.database in (None, "", ":memory:") or parsed.query:
        shown = parsed.render_as_string(hide_password=True)
        raise BadInput(f"{shown} is not a database that keeps what it was given", where="--db", hint=URLS)
    return parsed


def is_postgres(url: URL) -> bool:
    """Say which of the two it is."""
    return url.get_backend_name() == "postgresql"


def path_of(url: URL) -> Path:
    """Return the file of an SQLite address."""
    return Path(url.database or "")
