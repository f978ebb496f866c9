"""A start that fails says why in one sentence, and ends with a code by which a supervisor knows it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crowdml.core import BadInput
from crowdml.server.fronts.post import Post
from crowdml.server.store.open_database import VERSION_TABLE
from tests.support.process import Process
from tests.support.served import WAIT_S


def start(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Start a server that cannot start."""
    command = [sys.executable, "-m", "crowdml", "serve", "--home", str(home), "--port", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S)


def test_a_task_that_cannot_be_taken_up_ends_the_start(tmp_path: Path) -> None:
    server = Process(tmp_path / "home")
    server.create()
    assert server.end() == 0
    with closing(sqlite3.connect(tmp_path / "home" / "crowdml.sqlite")) as database:
        database.execute("UPDATE states SET server_state = x'00'")
        database.commit()
    ended = start(tmp_path / "home")
    assert ended.returncode == 2, ended
    assert "\nerror: " in ended.stderr and "Traceback" not in ended.stderr


@pytest.fixture
def aggregator(postgres: Any, tmp_path: Path) -> Iterator[Any]:
    """A front end, and the address of its database."""
    database = postgres.database()
    server = Process(tmp_path / "one", None, "--db", database)
    yield database
    assert server.end() == 0


@pytest.mark.postgres
def test_a_front_end_of_a_release_with_other_tables_ends_with_a_sentence(aggregator: str, tmp_path: Path) -> None:
    with psycopg.connect(aggregator, autocommit=True) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0399'")  # noqa: S608  a constant
    (tmp_path / "two").mkdir(mode=0o700)
    ended = start(tmp_path / "two", "--db", aggregator)
    assert ended.returncode == 2, ended
    assert "error: --db: another server has the database open, whose tables are 0399" in ended.stderr
    assert "stop all front ends" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.postgres
def test_a_user_who_may_make_no_tables_is_told_so(postgres: Any) -> None:
    database = postgres.database()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS poor")
        connection.execute("CREATE ROLE poor LOGIN")
    with pytest.raises(BadInput, match="front ends cannot use the database: permission denied") as told:
        Post(database.replace("postgres@", "poor@"), lambda *_: None, lambda _: None)
    assert "GRANT CREATE" in str(told.value)
