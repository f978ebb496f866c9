"""Certificates that are renewed while a server runs: whoever connects after that sees the new one.

The files are looked at every ten seconds, and at once after SIGHUP. A pair that does not fit together yet, because only
one of the two files was written, is left alone until it does; connections that stand keep what they began with.
"""

from __future__ import annotations

import logging
import signal
import ssl
import threading
from pathlib import Path

log = logging.getLogger("crowdml.server")
LOOK_S = 10.0


class CertificateFiles(threading.Thread):
    """Watches a certificate and its key.

    Args:
        context: What new connections use.
        certificate: TLS certificate, PEM.
        key: Its key, PEM; None: in the same file.
        look_s: Seconds between two looks.
    """

    def __init__(self, context: ssl.SSLContext, certificate: Path, key: Path | None, look_s: float = LOOK_S) -> None:
        super().__init__(name="certificates", daemon=True)
        self._context, self._files, self._look_s = context, (certificate, key), look_s
        self._asked = threading.Event()
        self._seen = self._stands()

    def run(self) -> None:
        """Look, again and again."""
        while True:
            asked = self._asked.wait(self._look_s)
            self._asked.clear()
            self.look(asked)

    def on_hang_up(self) -> None:
        """Look at once whenever SIGHUP comes. To be called in the main thread."""
        signal.signal(signal.SIGHUP, lambda *_: self._asked.set())

    def look(self, even_if_unchanged: bool = False) -> bool:
        """Take the files if they have changed; tell whether they were taken."""
        stands = self._stands()
        if stands == self._seen and not even_if_unchanged:
            return False
        certificate, key = self._files
        try:
            # First by itself: half of a pair must not replace a whole one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            self._context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificate has changed, but cannot be used yet: %s", error)
            return False
        self._seen = stands
        log.info("the certificate was read again")
        return True

    def _stands(self) -> list[tuple[int, int, int]]:
        """Say how the files stand, so that a change shows."""
        found = []
        for file in self._files:
            try:
                about = file.stat() if file else None
            except OSError:
                about = None
            found.append((about.st_ino, about.st_mtime_ns, about.st_size) if about else (0, 0, 0))
        return found
