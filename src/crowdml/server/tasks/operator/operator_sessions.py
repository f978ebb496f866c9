"""The operator's sessions: browsers in which the operator's token was given, each known by a secret of its own.

A session is a random number that its browser keeps in a cookie; the store has its hash, so a restart signs nobody out.
It ends by signing out, an hour after it was last used, twelve hours after it began, and with the operator's token.
Every form carries a second secret that follows from the first: another site's page may make a browser send its cookie,
but cannot read that.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable

from crowdml.core import record
from crowdml.server.store import Store, StoredSession
from crowdml.server.tasks.device_tokens import token_hash
from crowdml.wire.join_link import make_token

LIFE_S = 12 * 3600.0
IDLE_S = 3600.0
LONGEST = 64
"""Characters of a cookie's value that can be one of ours."""


@record
class Session:
    """A browser that has signed in.

    Attributes:
        token_hash: Names it in the store.
        form_secret: What its forms must carry.
    """

    token_hash: bytes
    form_secret: str


class _Known:
    """What is remembered of a session: until when it lasts at most, and when it was used."""

    def __init__(self, until: float, used: float) -> None:
        self.until, self.used = until, used


class Sessions:
    """Finds sessions by what a cookie holds.

    Times are taken from a clock that never goes back; only what outlives a restart is told by the calendar.

    Args:
        store: Keeps them.
        clock: Monotonic seconds.
        calendar: Seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.monotonic,
        calendar: Callable[[], float] = time.time,
    ) -> None:
        """Take up those that the store has and that are not over."""
        self._store, self._clock, self._calendar = store, clock, calendar
        self._lock = threading.Lock()
        now, today = clock(), calendar()
        self._known = {
            stored.token_hash: _Known(now + min(stored.expires - today, LIFE_S), now)
            for stored in store.sessions()
            # One that begins in the future tells of a calendar that was set back: nobody knows how old it is.
            if stored.made <= today < stored.expires
        }

    def __len__(self) -> int:
        """Return how many there are."""
        now = self._clock()
        return sum(_lasts(known, now) for known in list(self._known.values()))

    def begin(self) -> str:
        """Begin a session; return what its cookie holds. Whoever calls has checked the operator's token."""
        token, today = make_token(), self._calendar()
        hashed = token_hash(token.encode())
        with self._lock:
            self._store.add_session(StoredSession(token_hash=hashed, made=today, expires=today + LIFE_S))
            now = self._clock()
            # Of very many the store has ended the oldest.
            kept = {stored.token_hash for stored in self._store.sessions()}
            self._known = {each: known for each, known in self._known.items() if each in kept and _lasts(known, now)}
            self._known[hashed] = _Known(now + LIFE_S, now)
        return token

    def find(self, token: str) -> Session | None:
        """Return the session of a cookie, or None; being found counts as being used."""
        if not 0 < len(token) <= LONGEST or not token.isascii():
            return None
        hashed, now = token_hash(token.encode()), self._clock()
        known = self._known.get(hashed)
        if known is None or not _lasts(known, now):
            return None
        known.used = now
        return Session(token_hash=hashed, form_secret=_form_secret(token))

    def lasts(self, session: Session) -> bool:
        """Tell whether a session that was found is still one: the token may have been changed since."""
        return session.token_hash in self._known

    def end(self, session: Session) -> None:
        """Sign out."""
        with self._lock:
            self._known.pop(session.token_hash, None)
            self._store.end_session(session.token_hash)

    def forget_all(self) -> None:
        """Forget all sessions, which the store has ended."""
        with self._lock:
            self._known.clear()


def is_form_of(session: Session, given: str) -> bool:
    """Compare what a form carries with what it must, in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), session.form_secret.encode())


def _form_secret(token: str) -> str:
    made = hmac.new(token.encode(), b"crowdml form", hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _lasts(known: _Known, now: float) -> bool:
    return now < known.until and now - known.used < IDLE_S
