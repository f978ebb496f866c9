"""An open database: one connection that writes, held for the server's life, and a pool of connections that read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.engine.interfaces import DBAPICursor

from crowdml.core import record


@record
class Database:
    """An open database that no other server has open.

    Attributes:
        writer: The one connection that writes.
        begin: What the driver must be told before a transaction, if anything.
        readers: Where connections that read come from; each statement sees all that is stored when it begins.
        release: Gives up the lock; called last.
        scrub: Makes sure that what was deleted is nowhere in the database's files any more, where that is in our hands.
    """

    writer: Connection
    begin: str
    readers: Engine
    release: Callable[[], None]
    scrub: Callable[[], None]

    @contextmanager
    def transaction(self) -> Iterator[DBAPICursor]:
        """Run a transaction with the driver's own cursor; it is on disk when the block is left."""
        connection = self.writer.connection
        cursor = connection.cursor()
        try:
            if self.begin:
                cursor.execute(self.begin)
            try:
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
        finally:
            cursor.close()

    @contextmanager
    def look_up(self) -> Iterator[DBAPICursor]:
        """Read with the driver's own cursor."""
        connection = self.readers.raw_connection()
        try:
            cursor = connection.cursor()
            try:
                yield cursor
            finally:
                cursor.close()
        finally:
            connection.close()

    def close(self) -> None:
        """Close all connections, then let another server in."""
        try:
            self.writer.close()
            self.readers.dispose()
        finally:
            self.release()
