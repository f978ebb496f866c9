"""Migrations: an opened database always has the tables that the code expects, or stays as it was."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect
from sqlalchemy.pool import NullPool

from crowdml.core import BadInput
from crowdml.server.store import Store, migrating, open_store
from crowdml.server.store.engines import parse
from crowdml.server.store.migrating import HEAD, SCRIPTS, VERSION_TABLE
from crowdml.server.store.schema import metadata

SECOND = '''"""One more table."""
from alembic import op
import sqlalchemy as sa
revision = "0004"
down_revision = "0003"
def upgrade() -> None:
    op.create_table("more", sa.Column("id", sa.Integer(), primary_key=True))
'''


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pretend that a later release has one more migration; return the folder of migrations."""
    scripts = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "m0004_more.py").write_text(SECOND)
    monkeypatch.setattr(migrating, "SCRIPTS", scripts)
    monkeypatch.setattr(migrating, "HEAD", "0004")
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
    assert script.get_heads() == [HEAD]
    names = [revision.revision for revision in script.walk_revisions()]
    assert names == sorted(names, reverse=True), "releases are compared by name"


def test_sqlite_has_the_tables_of_the_schema(store: Store, path: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.sqlite"
    engine = create_engine(f"sqlite:///{expected}", poolclass=NullPool)
    metadata.create_all(engine)
    assert tables_of(path) == tables_of(expected)
    assert len(tables_of(path)) == len(metadata.tables)


@pytest.mark.postgres
def test_postgres_has_the_tables_of_the_schema(postgres: Any) -> None:
    migrated, expected = postgres.database(), postgres.database()
    open_store(migrated).close()
    made = create_engine(parse(expected), poolclass=NullPool)
    metadata.create_all(made)
    with create_engine(parse(migrated), poolclass=NullPool).connect() as one, made.connect() as other:
        options = {"compare_type": True, "version_table": VERSION_TABLE}
        assert compare_metadata(MigrationContext.configure(one, opts=options), metadata) == []
        here, there = inspect(one), inspect(other)
        for name in metadata.tables:
            for method in ("get_columns", "get_pk_constraint", "get_foreign_keys", "get_unique_constraints"):
                found, wanted = getattr(here, method)(name), getattr(there, method)(name)
                assert str(found) == str(wanted), (name, method)
        collation = (
            "SELECT collation_name FROM information_schema.columns WHERE table_name='receipts' AND column_name='key'"
        )
        assert one.exec_driver_sql(collation).scalar() == other.exec_driver_sql(collation).scalar() == "C"


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
    copy = path.with_name("crowd.sqlite.before-0004")
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
    with (scripts / "versions" / "m0004_more.py").open("a") as file:
        file.write("    raise RuntimeError('power cut')\n")
    with pytest.raises(RuntimeError, match="power cut"):
        open_store(f"sqlite:///{path}")
    assert tables_of(path) == before
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [(HEAD,)]  # noqa: S608


@pytest.mark.usefixtures("later")
def test_a_newer_file_is_refused(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.close()
    monkeypatch.setattr(migrating, "HEAD", "0001")
    with pytest.raises(BadInput, match="made by a newer crowdml"):
        open_store(f"sqlite:///{path}")


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE tasks (anything)")
    with pytest.raises(BadInput, match="tables of another program: tasks"):
        open_store(f"sqlite:///{path}")


def test_a_path_with_a_percent_sign_works(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/100%.sqlite") as store:
        assert store.tasks() == []
    assert (tmp_path / "100%.sqlite").exists()
