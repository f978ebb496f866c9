"""The cookie of a session: its name, its form, and how it is read.

It is for pages alone: no route of the API looks at it. Over TLS its name begins with `__Host-`, so that browsers take
it from this very host only, never from a neighbour of the same domain. Without TLS there is no such protection; the
port is part of the name, because browsers keep one jar for all ports of a machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from crowdml.core import record


@record
class SessionCookies:
    """Writes and reads the cookie.

    Attributes:
        secure: Whether browsers reach this server by TLS.
    """

    secure: bool

    def name(self, host: bytes) -> str:
        """Return the cookie's name for a host as requests name it.

        >>> SessionCookies(secure=True).name(b"crowd.example"), SessionCookies(secure=False).name(b"127.0.0.1:8800")
        ('__Host-crowdml-session', 'crowdml-session-8800')
        """
        _, colon, port = host.rpartition(b":")
        suffix = f"-{port.decode()}" if colon and port.isdigit() and len(port) <= 5 else ""
        return f"{'__Host-' if self.secure else ''}crowdml-session{suffix}"

    def read(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return what the cookie holds; nothing where there is none, or several: one of them is somebody else's."""
        host, jar = b"", []
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"cookie":
                jar += value.split(b";")
        wanted = self.name(host).encode()
        found = [value for each in jar for name, _, value in [each.strip().partition(b"=")] if name == wanted]
        return found[0].decode("latin-1") if len(found) == 1 else ""

    def write(self, host: bytes, value: str) -> str:
        """Return the header that sets the cookie, until the browser is closed or the server ends the session."""
        return f"{self.name(host)}={value}; Path=/; HttpOnly; SameSite=Strict{self._secure}"

    def erase(self, host: bytes) -> str:
        """Return the header that removes the cookie."""
        return f"{self.name(host)}=; Path=/; HttpOnly; SameSite=Strict{self._secure}; Max-Age=0"

    @property
    def _secure(self) -> str:
        return "; Secure" if self.secure else ""
