"""An open database: one connection that writes, held for the server's life, and a pool of connections that read."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Engine

from crowdml.core import record


@record
class Database:
    """An open database that no other server has open.

    Attributes:
        writer: The one connection that writes.
        readers: Where connections that read come from; each statement sees all that is stored when it begins.
        release: Gives up the lock; called last.
        scrub: Makes sure that what was deleted is nowhere in the database's files any more, where that is in our hands.
    """

    writer: Connection
    readers: Engine
    release: Callable[[], None]
    scrub: Callable[[], None]

    def close(self) -> None:
        """Close all connections, then let another server in."""
        try:
            self.writer.close()
            self.readers.dispose()
        finally:
            self.release()
