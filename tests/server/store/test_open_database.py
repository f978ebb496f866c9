"""Migrations: an opened database always has the tables that the code expects, or stays as it was."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect
from sqlalchemy.pool import NullPool

from crowdml.core import BadInput
from crowdml.server.store import Store, open_database, open_store
from crowdml.server.store.backups import restore
from crowdml.server.store.open_database import FIRST, HEAD, SCRIPTS, TABLES, VERSION_TABLE, parse

SECOND = f'''"""One more table."""
from alembic import op
import sqlalchemy as sa
revision = "9999"
down_revision = "{HEAD}"
def upgrade() -> None:
    op.create_table("more", sa.Column("id", sa.Integer(), primary_key=True))
'''


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pretend that a later release has one more migration; return the folder of migrations."""
    scripts = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "m9999_more.py").write_text(SECOND)
    monkeypatch.setattr(open_database, "SCRIPTS", scripts)
    monkeypatch.setattr(open_database, "HEAD", "9999")
    return scripts


def tables_of(path: Path) -> dict[str, str]:
    """Return the statements that made a file's tables and indices."""
    with closing(sqlite3.connect(path)) as file:
        found = file.execute("SELECT name, sql FROM sqlite_master WHERE name != ?", (VERSION_TABLE,)).fetchall()
    return {name: _sorted(sql) for name, sql in found if sql is not None}


def _sorted(sql: str) -> str:
    """Put the parts of a statement in order: that of constraints is of no matter."""
    first, last = sql.index("("), sql.rindex(")")
    parts = sorted(part.strip() for part in re.split(r",\s*(?![^()]*\))", sql[first + 1 : last]))
    return f"{sql[:first].strip()} ({', '.join(parts)}) {sql[last + 1 :].strip()}"


def test_the_last_migration_is_the_one_the_code_knows() -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [HEAD] and script.get_bases() == [FIRST]
    names = [revision.revision for revision in script.walk_revisions()]
    assert names == sorted(names, reverse=True), "releases are compared by name"


def test_sqlite_has_the_tables_of_its_release(store: Store, path: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.sqlite"
    with closing(sqlite3.connect(expected)) as file:
        file.executescript(Path(__file__).with_name("tables.sql").read_text())
    assert tables_of(path) == tables_of(expected)
    assert tables_of(path).keys() == TABLES


@pytest.mark.postgres
def test_postgres_has_the_tables_of_sqlite(store: Store, path: Path, postgres: Any) -> None:
    url = postgres.database()
    open_store(url).close()
    file = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with file.connect() as one, create_engine(parse(url), poolclass=NullPool).connect() as other:
        here, there = inspect(one), inspect(other)
        assert set(there.get_table_names()) == {*TABLES, VERSION_TABLE}
        for name in TABLES:
            found, wanted = columns_of(there, name), columns_of(here, name)
            if name in (
                "receipts",
                "event_log",
            ):  # in SQLite an INTEGER has 64 bits, and only so is it the place in the file
                wanted["id"] = ("BIGINT", False)
            assert found == wanted
            for method in ("get_pk_constraint", "get_foreign_keys", "get_unique_constraints"):
                assert keys_of(there, method, name) == keys_of(here, method, name) != "", (name, method)
        collation = (
            "SELECT collation_name FROM information_schema.columns WHERE table_name='receipts' AND column_name='key'"
        )
        assert other.exec_driver_sql(collation).scalar() == "C"


def columns_of(database: Any, table: str) -> dict[str, tuple[str, bool]]:
    """Return type and nullability of a table's columns, in SQLite's words."""
    words = {"BYTEA": "BLOB", "DOUBLE PRECISION": "DOUBLE"}
    found = ((column["name"], str(column["type"]), column["nullable"]) for column in database.get_columns(table))
    return {
        name: (words.get(kind.partition(" COLLATE")[0], kind.partition(" COLLATE")[0]), empty)
        for name, kind, empty in found
    }


def keys_of(database: Any, method: str, table: str) -> str:
    """Return the constraints of one kind: names, columns and what they refer to."""
    found = getattr(database, method)(table)
    fields = ("name", "constrained_columns", "column_names", "referred_table", "referred_columns")
    every = found if isinstance(found, list) else [found]
    return str(
        sorted(
            [str(each.get(field)) for field in fields] + [str(each.get("options", {}).get("ondelete"))]
            for each in every
        )
    )


def test_an_older_file_is_copied_and_then_brought_up_to_date(
    crowd: Any, store: Store, path: Path, request: pytest.FixtureRequest
) -> None:
    crowd.check_in(5)
    before = store.tasks()
    store.close()
    request.getfixturevalue("later")
    with open_store(f"sqlite:///{path}") as again:
        assert again.tasks() == before
    assert "more" in tables_of(path)
    copy = path.with_name("crowd.sqlite.before-9999")
    assert "more" not in tables_of(copy) and copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as file:
        assert file.execute("SELECT COUNT(*) FROM receipts").fetchone() == (5,)
    # Nothing is copied when there is nothing to do.
    copy.unlink()
    open_store(f"sqlite:///{path}").close()
    assert not copy.exists()


def test_a_migration_that_fails_changes_nothing(store: Store, path: Path, request: pytest.FixtureRequest) -> None:
    store.close()
    before = tables_of(path)
    scripts = request.getfixturevalue("later")
    with (scripts / "versions" / "m9999_more.py").open("a") as file:
        file.write("    raise RuntimeError('power cut')\n")
    with pytest.raises(RuntimeError, match="power cut"):
        open_store(f"sqlite:///{path}")
    assert tables_of(path) == before
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [(HEAD,)]  # noqa: S608


@pytest.mark.usefixtures("later")
def test_a_newer_file_is_refused(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.close()
    monkeypatch.setattr(open_database, "HEAD", FIRST)
    with pytest.raises(BadInput, match="made by a newer crowdml"):
        open_store(f"sqlite:///{path}")


@pytest.mark.parametrize("tables", ["0001", "0003"])
def test_a_file_from_before_compatibility_is_refused_and_stays_as_it_was(store: Store, path: Path, tables: str) -> None:
    store.close()
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (tables,))  # noqa: S608
        file.execute("DROP TABLE signed_tasks")
        file.commit()
    before = tables_of(path)
    with pytest.raises(BadInput, match=f"made by an older crowdml .tables {tables}.") as caught:
        open_store(f"sqlite:///{path}")
    assert "task export" in caught.value.hint and "--home" in caught.value.hint
    assert tables_of(path) == before and not list(path.parent.glob("*.before-*"))
    backup = path.with_name("old-backup.sqlite")
    shutil.copy(path, backup)
    with pytest.raises(BadInput, match="made by an older crowdml"):
        restore(backup, f"sqlite:///{path.parent}/empty.sqlite")


@pytest.mark.postgres
def test_an_old_postgres_is_refused_too(postgres: Any) -> None:
    url = postgres.database()
    open_store(url).close()
    with create_engine(parse(url), poolclass=NullPool).begin() as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '0003'")  # noqa: S608
    with pytest.raises(BadInput, match="made by an older crowdml"):
        open_store(url)


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE tasks (anything)")
    with pytest.raises(BadInput, match="tables of another program: tasks"):
        open_store(f"sqlite:///{path}")


def test_a_path_with_a_percent_sign_works(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/100%.sqlite") as store:
        assert store.tasks() == []
    assert (tmp_path / "100%.sqlite").exists()
