"""PostgreSQL as the store uses it: safe settings, one server at a time, honest failures."""

from __future__ import annotations

import re
import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from crowdml.core import BadInput
from crowdml.server.store import Store, StoreFailed, open_store
from crowdml.server.store.batch_writes import LOOK_UP_EACH
from crowdml.server.store.open_database import parse
from crowdml.server.store.postgres import POLL_S

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def url(postgres: Any) -> str:
    address: str = postgres.database()
    return address


def command(url: str, text: str) -> None:
    """Run a command on a connection of its own."""
    engine = create_engine(parse(url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(text)


def test_a_database_that_may_lose_what_it_acknowledged_is_refused(url: str) -> None:
    name = parse(url).database
    command(url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    try:
        with pytest.raises(BadInput, match="can lose what it acknowledged: synchronous_commit is off"):
            open_store(url)
    finally:
        command(url, f"ALTER DATABASE {name} RESET synchronous_commit")
    open_store(url).close()


def test_a_server_that_is_not_there_is_named_without_password() -> None:
    with pytest.raises(BadInput, match="cannot be opened") as caught:
        open_store("postgresql://anna:secret@127.0.0.1:1/crowd")
    assert "secret" not in str(caught.value) and "127.0.0.1:1/crowd" in str(caught.value)


def test_who_loses_its_connection_loses_the_lock_and_cannot_write(url: str) -> None:
    with open_store(url) as first:
        with pytest.raises(BadInput, match="another server"):
            open_store(url)
        _cut(first, url)
        with open_store(url) as second:
            with pytest.raises(StoreFailed):
                first.revoke("nobody")
            with pytest.raises(StoreFailed):
                first.tasks()
            assert second.tasks() == []
            assert not second.revoke("nobody")


def test_who_waits_for_the_lock_keeps_nothing_from_being_cleared_away(url: str) -> None:
    """A statement that waits sees the database as it was; and a follower waits for weeks."""
    taken: list[Store] = []
    with open_store(url), psycopg.connect(url, autocommit=True) as looking:
        waiting = threading.Thread(target=lambda: taken.append(open_store(url, wait_ms=0)))
        there = "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database()"
        before = looking.execute(there).fetchone()
        waiting.start()
        while looking.execute(there).fetchone() == before:
            time.sleep(0.01)
        time.sleep(2 * POLL_S)
        told: list[str] = []
        looking.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        looking.execute("CREATE TABLE replaced (value INTEGER)")
        looking.execute("INSERT INTO replaced SELECT generate_series(1, 1000)")
        looking.execute("DELETE FROM replaced")
        time.sleep(2 * POLL_S)
        looking.execute("VACUUM (VERBOSE, TRUNCATE OFF) replaced")
        looking.execute("DROP TABLE replaced")
        assert not taken
    waiting.join(60)
    taken.pop().close()
    assert "remain, 0 are dead but not yet removable" in "\n".join(told), told


def _cut(store: Store, url: str) -> None:
    """Let the server end the connection that writes, and wait until it has."""
    raw: Any = store._database.writer.connection.driver_connection
    command(url, f"SELECT pg_terminate_backend({raw.info.backend_pid}, 60000)")


def test_values_come_back_as_they_were_given(url: str, request: pytest.FixtureRequest) -> None:
    with open_store(url) as store:
        crowd = type(request.getfixturevalue("crowd"))(store)
        crowd.check_in(70, rows=True, state=bytes(range(256)))
        (task,) = store.tasks()
        assert task.server_state == bytes(range(256))
        found = store.receipts_for(task.id, [(number % 2, f"key-{number:06d}") for number in range(70)])
        assert len(found) == 70 and {type(receipt.body) for receipt in found.values()} == {bytes}
        assert store.devices(task.id)[0].joined == 1.0


def test_no_transaction_is_left_open(postgres: Any, request: pytest.FixtureRequest) -> None:
    url = postgres.database()
    with open_store(url) as store:
        crowd = type(request.getfixturevalue("crowd"))(store)
        crowd.check_in(3)
        store.receipts_for(crowd.task, [(0, "key-000000")])
        store.receipts("digits-device-0")
        store.devices(crowd.task)
        with closing(create_engine(parse(url), poolclass=NullPool).connect()) as connection:
            others = "datname = current_database() AND pid != pg_backend_pid() AND backend_type = 'client backend'"
            found = connection.exec_driver_sql(f"SELECT state FROM pg_stat_activity WHERE {others}").all()  # noqa: S608
    assert [tuple(row) for row in found] == [("idle",)] * 2, "one that writes, one that reads"


def test_a_connection_that_cannot_be_used_is_closed(url: str) -> None:
    with open_store(url), pytest.raises(BadInput):
        open_store(url)
    with closing(create_engine(parse(url), poolclass=NullPool).connect()) as connection:
        others = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid != pg_backend_pid()"
        # A backend ends shortly after its connection: wait for it on the server's side.
        for _ in range(100):
            if not (left := connection.exec_driver_sql(others).scalar()):
                break
            connection.exec_driver_sql("SELECT pg_sleep(0.05)")
            connection.rollback()
        assert left == 0


def test_receipts_are_found_by_their_index_in_a_table_that_nobody_has_counted(url: str) -> None:
    with open_store(url), closing(psycopg.connect(str(url), autocommit=True)) as connection:
        connection.execute("CREATE TEMP TABLE receipts (LIKE receipts INCLUDING ALL)")
        connection.execute(
            'INSERT INTO receipts (id, task, slot, "key", body, number, version, started, status) SELECT i, 1, i % 64, '
            "'check-in-' || i, '', i, i, i, 'applied' FROM generate_series(1, 20000) AS i"
        )
        wanted = ([1, 2, 3], ["check-in-1", "check-in-66", "check-in-99999"], 1)
        query = LOOK_UP_EACH.replace("?", "%s")
        assert sorted(row[1] for row in connection.execute(query, wanted)) == ["check-in-1", "check-in-66"]
        ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {query}", wanted)
        (condition,) = re.findall(r"'Relation Name': 'receipts'.*?'Index Cond': ['\"](.*?slot\))", str(plan))
        assert all(f"{column} = " in condition for column in ("task", "key", "slot")), plan
