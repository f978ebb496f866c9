"""The operator's token: compared, and changed for another one.

A new token is first written beside the old one, then stored, then put in its place. Wherever a process ends in between,
the next start finds out which of the two the store knows, so the operator is never left without.
"""

from __future__ import annotations

import hmac
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from crowdml.core import BadInput
from crowdml.core.files import write_whole
from crowdml.core.keys import SigningKey
from crowdml.server.refusals import Refusal
from crowdml.server.store import Actor, Identity, Store
from crowdml.server.tasks.device_tokens import token_hash
from crowdml.wire.join_link import make_token

log = logging.getLogger("crowdml.server")
TOKEN_FILE = "operator.token"  # noqa: S105  the name of a file


def require_identity(store: Store, folder: Path) -> None:
    """Make the operator's key and token on the first start; the token goes into a file that only its owner reads."""
    identity = store.identity()
    if identity is None:
        token = make_token()
        write_whole(folder / TOKEN_FILE, f"{token}\n".encode(), secret=True)
        made = Identity(signing_key=SigningKey.make().secret, operator_token_hash=token_hash(token.encode()))
        store.set_identity(made)
        return
    _finish(folder / TOKEN_FILE, identity.operator_token_hash)


class OperatorToken:
    """Tells the operator's token, and changes it.

    Args:
        store: Has its hash.
        file: Where the token itself is written; None: nowhere, whoever changes it is told.
    """

    def __init__(self, store: Store, file: Path | None) -> None:
        identity = store.identity()
        if identity is None:
            raise BadInput("this database has no operator yet", hint="crowdml serve makes one")
        self._store, self._file, self._hash = store, file, identity.operator_token_hash
        self._lock = threading.Lock()

    def matches(self, token: bytes) -> bool:
        """Compare a token with the operator's, in constant time."""
        return hmac.compare_digest(token_hash(token), self._hash)

    def begin(self, token: bytes, work: Callable[[], str]) -> str | None:
        """Do something for whoever has the token, which is not changed meanwhile; None for others."""
        with self._lock:
            return work() if self.matches(token) else None

    def rotate(self, allowed: Callable[[], bool], ended: Callable[[], None], by: Actor = "operator") -> str:
        """Change the token for a new one and return it: it is shown this once. All sessions end in the store.

        Args:
            allowed: Tells whether whoever asks may still do so: of several that ask at once, one does.
            ended: Called when all sessions have ended, before any other can begin.
            by: Who asks.
        """
        with self._lock:
            if not allowed():
                raise Refusal(401, "not-authorised", "the operator's token was changed a moment ago")
            token = make_token()
            hashed = token_hash(token.encode())
            if self._file is not None:
                _write(_beside(self._file), token)
            self._store.rotate(hashed, by)
            self._hash = hashed
            ended()
            if self._file is not None:
                try:
                    os.replace(_beside(self._file), self._file)
                except OSError as error:
                    # It is stored, so it is told; the next start puts the file in its place.
                    log.error("the new operator's token could not be put in its place: %s", error.strerror)
        return token


def _write(file: Path, token: str) -> None:
    try:
        write_whole(file, f"{token}\n".encode(), secret=True)
    except (OSError, BadInput) as error:
        raise Refusal(
            503, "failed", "the new token could not be written, so the old one stays", hint=str(error)
        ) from None


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.new")


def _finish(file: Path, known: bytes) -> None:
    """Put a new token in its place if the store knows it, after a process ended in between; else forget it."""
    new = _beside(file)
    try:
        token = new.read_bytes().strip()
    except FileNotFoundError:
        return
    if hmac.compare_digest(token_hash(token), known):
        os.replace(new, file)
    else:
        new.unlink()
