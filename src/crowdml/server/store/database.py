"""An open database: one connection that writes, held for the server's life, and connections that read.

Statements go to the driver itself: to run one, SQLAlchemy takes more time than the statement, and to load it takes a
third as long again as all the rest of a start (benchmarks/serving/restart.py). SQLAlchemy sees the connection that
writes only where tables are made or copied.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor


class Database:
    """An open database that no other server has open.

    Args:
        driver: The driver's module.
        postgres: Whether it is PostgreSQL; else it is SQLite.
        connection: The driver's connection that writes.
        begin: What the driver must be told before a transaction, if anything.
        borrow: Lends a driver's connection that reads; each statement sees all that is stored when it begins.
        writer: Lets SQLAlchemy see the connection that writes.
        release: Closes connections and gives up the lock; called last.
        scrub: Makes sure that what was deleted is nowhere in the database's files any more, where that is in our hands.
    """

    def __init__(
        self,
        *,
        driver: Any,
        postgres: bool,
        connection: Any,
        begin: str,
        borrow: Callable[[], AbstractContextManager[Any]],
        writer: Callable[[], Connection],
        release: Callable[[], None],
        scrub: Callable[[], None],
    ) -> None:
        self.driver, self.postgres, self.scrub = driver, postgres, scrub
        self._connection, self._begin, self._borrow, self._release = connection, begin, borrow, release
        self._make_writer = writer
        self._writer: Connection | None = None

    @property
    def writer(self) -> Connection:
        """The connection that writes, for SQLAlchemy. To be asked for outside of `transaction` only."""
        if self._writer is None:
            self._writer = self._make_writer()
        return self._writer

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What is raised where the database fails."""
        known = sys.modules.get("sqlalchemy.exc")
        return (self.driver.Error, OSError, *((known.SQLAlchemyError,) if known else ()))

    @contextmanager
    def transaction(self) -> Iterator[DBAPICursor]:
        """Run a transaction; it is on disk when the block is left."""
        cursor = self._connection.cursor()
        try:
            if self._begin:
                cursor.execute(self._begin)
            try:
                yield cursor
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()
        finally:
            cursor.close()

    @contextmanager
    def look_up(self) -> Iterator[DBAPICursor]:
        """Read."""
        with self._borrow() as connection:
            cursor = connection.cursor()
            try:
                yield cursor
            finally:
                cursor.close()

    def close(self) -> None:
        """Close all connections, then let another server in."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._release()

    def sql(self, text: str) -> str:
        """Write a statement for this database: it is given with SQLite's marks for values."""
        return text.replace("?", "%s") if self.postgres else text

    def statements(self, cursor: DBAPICursor) -> Statements:
        """Run statements that come now and then with a cursor."""
        return Statements(cursor, self.sql)


class Statements:
    """Runs statements that come now and then.

    Args:
        cursor: The driver's cursor.
        sql: Writes a statement for its database.
    """

    def __init__(self, cursor: DBAPICursor, sql: Callable[[str], str]) -> None:
        self._cursor, self._sql = cursor, sql

    def run(self, text: str, *given: Any) -> int:
        """Run a statement; return how many rows it changed."""
        self._cursor.execute(self._sql(text), given)
        return self._cursor.rowcount

    def run_all(self, text: str, given: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of many sets of values."""
        self._cursor.executemany(self._sql(text), list(given))

    def insert(self, table: str, **row: Any) -> None:
        """Add a row to a table."""
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        self.run(f"INSERT INTO {table} ({names}) VALUES ({marks})", *row.values())  # noqa: S608  names of ours

    def rows(self, text: str, *given: Any) -> list[Any]:
        """Return the rows that are found."""
        self.run(text, *given)
        return list(self._cursor.fetchall())

    def first(self, text: str, *given: Any) -> Any:
        """Return the first row that is found, or None."""
        return next(iter(self.rows(text, *given)), None)

    def records(self, text: str, *given: Any) -> list[dict[str, Any]]:
        """Return the rows that are found, by the names of their columns."""
        found = self.rows(text, *given)
        names = [column[0] for column in self._cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found]
