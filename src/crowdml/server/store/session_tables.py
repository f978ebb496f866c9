"""The operator's token and sessions, in the tables. Each function runs inside a transaction.

Of a session only a hash is stored: whoever reads the database, or a backup of it, cannot continue it.
"""

from __future__ import annotations

from crowdml.core import record
from crowdml.server.store.database import Statements

MOST_SESSIONS = 100
"""Beyond so many the oldest ends: one operator has few browsers."""


@record
class StoredSession:
    """A browser in which the operator has signed in.

    Attributes:
        token_hash: SHA-256 of what its cookie holds.
        made: When, in seconds since 1970.
        expires: When it ends by itself.
    """

    token_hash: bytes
    made: float
    expires: float


def add_session(statements: Statements, session: StoredSession) -> None:
    """Begin a session; those that are over go."""
    statements.run("DELETE FROM operator_sessions WHERE expires <= ?", session.made)
    kept = statements.rows("SELECT token_hash FROM operator_sessions ORDER BY made DESC")
    for (ended,) in kept[MOST_SESSIONS - 1 :]:
        end_session(statements, ended)
    statements.insert("operator_sessions", **vars(session))


def end_session(statements: Statements, token_hash: bytes) -> bool:
    """End a session; say whether there was one."""
    return statements.run("DELETE FROM operator_sessions WHERE token_hash = ?", token_hash) == 1


def end_sessions(statements: Statements) -> int:
    """End all sessions; return how many."""
    return statements.run("DELETE FROM operator_sessions")


def sessions(statements: Statements) -> list[StoredSession]:
    """Return all that were not ended, those that are over too."""
    return [StoredSession(**row) for row in statements.records("SELECT * FROM operator_sessions ORDER BY made")]
