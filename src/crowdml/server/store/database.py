"""An open database: one connection that writes, held for the server's life, and connections that read.

Whatever runs at every batch or before the first one speaks to the driver itself. SQLAlchemy sees the same connection
that writes, but only once it is needed: to load it takes longer than all the rest of a start.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPICursor


class Database:
    """An open database that no other server has open.

    Args:
        driver: The driver's module.
        dialect: `sqlite` or `postgresql`.
        connection: The driver's connection that writes.
        begin: What the driver must be told before a transaction, if anything.
        borrow: Lends a driver's connection that reads.
        writer: Lets SQLAlchemy see that connection.
        readers: Gives SQLAlchemy connections that read; each statement sees all that is stored when it begins.
        release: Closes connections and gives up the lock; called last.
        scrub: Makes sure that what was deleted is nowhere in the database's files any more, where that is in our hands.
    """

    def __init__(
        self,
        *,
        driver: Any,
        dialect: str,
        connection: Any,
        begin: str,
        borrow: Callable[[], AbstractContextManager[Any]],
        writer: Callable[[], Connection],
        readers: Callable[[], Engine],
        release: Callable[[], None],
        scrub: Callable[[], None],
    ) -> None:
        """Keep the parts."""
        self.driver, self.dialect, self.scrub = driver, dialect, scrub
        self._connection, self._begin, self._borrow, self._release = connection, begin, borrow, release
        self._make_writer, self._make_readers, self._making = writer, readers, threading.Lock()
        self._writer: Connection | None = None
        self._readers: Engine | None = None

    @property
    def writer(self) -> Connection:
        """The connection that writes, for SQLAlchemy. To be asked for outside of `transaction` only."""
        if self._writer is None:
            self._writer = self._make_writer()
        return self._writer

    @property
    def readers(self) -> Engine:
        """Where connections that read come from, for SQLAlchemy."""
        with self._making:
            if self._readers is None:
                self._readers = self._make_readers()
            return self._readers

    @property
    def conflicts(self) -> tuple[type[Exception], ...]:
        """What is raised where something is stored already, or belongs to nothing."""
        known = sys.modules.get("sqlalchemy.exc")
        return (self.driver.IntegrityError, *((known.IntegrityError,) if known else ()))

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What is raised where the database fails."""
        known = sys.modules.get("sqlalchemy.exc")
        return (self.driver.Error, OSError, *((known.SQLAlchemyError,) if known else ()))

    @contextmanager
    def transaction(self) -> Iterator[DBAPICursor]:
        """Run a transaction with the driver's own cursor; it is on disk when the block is left."""
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
        """Read with the driver's own cursor."""
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
            if self._readers is not None:
                self._readers.dispose()
        finally:
            self._release()
