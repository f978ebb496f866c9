"""SQLite as the store uses it: safe settings, closed files, honest failures."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.server.store import Store, StoreFailed, open_store
from crowdml.server.store.batch_writes import CHAIN
from crowdml.server.store.open_database import parse
from crowdml.server.store.sqlite import make_safe


def test_only_its_owner_can_read_it(crowd: Any, path: Path) -> None:
    crowd.check_in()
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == [path.name, *(path.name + end for end in ("-shm", "-wal", ".lock"))]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    open_store(f"sqlite:///{path}").close()
    path.chmod(0o644)
    open_store(f"sqlite:///{path}").close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_every_connection_is_safe(store: Store) -> None:
    store.tasks()
    seen: Any = store._database.writer.connection.driver_connection
    with store._database.look_up() as reader:
        for raw in (reader, seen):
            found = [raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
            assert found == ["wal", 2]
            assert [raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("foreign_keys", "secure_delete")] == [1, 1]


def test_readers_cannot_write(store: Store) -> None:
    with pytest.raises(StoreFailed, match="readonly"):
        store._found("DELETE FROM tasks")


def test_unsafe_files_are_refused() -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(BadInput, match="cannot be written safely: journal_mode is memory"),
    ):
        make_safe(connection, Path("somewhere"))


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "sqlite:///x?mode=memory", "mysql://host/crowd", "crowd.sqlite", "", "sqlite:"],
)
def test_addresses_that_keep_nothing_are_refused(url: str) -> None:
    with pytest.raises(BadInput, match="sqlite:///FILE or postgresql://"):
        parse(url)


def test_an_address_shows_no_password() -> None:
    with pytest.raises(BadInput) as caught:
        parse("mysql://anna:secret@host/crowd")
    assert "secret" not in str(caught.value)


def test_another_kind_of_file_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"a text that is long enough to be taken for a database, and is none" * 20)
    before = path.read_bytes()
    with pytest.raises(BadInput, match="not a database"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere/crowd\.sqlite cannot be written"):
        open_store(f"sqlite:///{tmp_path}/nowhere/crowd.sqlite")


def test_a_full_disk_ends_the_store_and_loses_nothing(crowd: Any, store: Store, path: Path) -> None:
    crowd.check_in(3, rows=True)
    raw: Any = store._database.writer.connection.driver_connection
    pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFailed, match="full"):
        crowd.check_in(1, state=b"x" * 1_000_000)
    # Even what would work is refused: the process must end.
    for call in (store.tasks, lambda: crowd.check_in(1), lambda: store.revoke("digits-device-0")):
        with pytest.raises(StoreFailed, match="full"):
            call()
    store.close()
    with open_store(f"sqlite:///{path}") as again:
        (task,) = again.tasks()
        assert (task.version, task.server_state) == (3, b"state")
        assert again.receipts_for(task.id, [(1, "key-000003")]) == {}


def test_nothing_of_a_withdrawn_device_stays_in_the_files(crowd: Any, store: Store, path: Path) -> None:
    crowd.check_in(4, rows=True)
    crowd.check_in(4, rows=True)

    def files() -> bytes:
        return b"".join(file.read_bytes() for file in path.parent.iterdir())

    named = (b"digits-device-1", b"public digits-device-1", b"private row 1")
    assert all(text in files() for text in named)
    assert store.withdraw("digits-device-1")
    assert not any(text in files() for text in named)
    assert b"digits-device-0" in files() and b"private row 0" in files()


def test_look_ups_use_the_index(crowd: Any, store: Store) -> None:
    with store._database.look_up() as cursor:
        reader = store._database.statements(cursor)
        for size, text in store._batch_writes._groups.items():
            plan = [row[3] for row in reader.rows(f"EXPLAIN QUERY PLAN {text}", *(0,) * (2 * size + 1))]
            steps = [step for step in plan if "receipts" in step]
            assert len(steps) == 1
            assert "USING INDEX" in steps[0] and "task=? AND key=? AND slot=?" in steps[0], steps
        plan = [row[3] for row in reader.rows(f"EXPLAIN QUERY PLAN {CHAIN}", 1, 0, 0, 9)]
        assert [step for step in plan if "receipts" in step] == [
            "SEARCH receipts USING INTEGER PRIMARY KEY (rowid=?)"
        ] * 2
