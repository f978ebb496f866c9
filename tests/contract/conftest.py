"""The databases that a store can be kept in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from crowdml.server.store import Store, open_store
from crowdml.server.store.backups import tables_of
from crowdml.server.store.open_database import parse
from crowdml.server.store.postgres import connect_postgres


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/crowd.sqlite"
    address: str = request.getfixturevalue("shared_database")
    with closing(connect_postgres(parse(address))) as connection, connection.begin():
        for table in reversed(tables_of(connection)):
            connection.execute(delete(table))
    return address


@pytest.fixture(scope="session")
def shared_database(postgres: Any) -> str:
    """A database that has its tables already; each test empties it."""
    address: str = postgres.database()
    open_store(address).close()
    return address


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened
