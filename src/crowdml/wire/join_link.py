"""Joining: the link that invites a device, and what the device sends to enrol.

An invite's secret, the operator's key and the hash of the signed task stand in the fragment of the link, which browsers
do not send to servers: whoever has the link can join once, and notices a server that shows another task.

    https://crowd.example:8800/join/digits#code=…&key=…&hash=…
"""

from __future__ import annotations

import base64
import re
import secrets
from urllib.parse import urlencode

from crowdml.core import BadInput, record
from crowdml.core.keys import SigningKey, verify

_PURPOSE = b"crowdml enrol 1\0"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LINK = re.compile(
    r"(?P<server>https?://(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/[A-Za-z0-9._~-]+)*)/join/(?P<task>[A-Za-z0-9%._~-]+)/?(?:#(?P<fragment>[\x21-\x7e]*))?"
)
_VALUE = re.compile(r"[A-Za-z0-9_-]+")
"""What a link looks like, so narrowly that every runtime reads one alike: a browser's own rules are others."""


@record
class InviteLink:
    """A link taken apart.

    Attributes:
        server: Address of the server, such as `https://crowd.example:8800`.
        task: Name of the task.
        code: The secret, good for one device.
        key: Fingerprint of the operator's key.
        task_hash: Hash of the signed task.
    """

    server: str
    task: str
    code: str
    key: str
    task_hash: str

    def to_url(self) -> str:
        """Write the link."""
        fragment = urlencode({"code": self.code, "key": self.key, "hash": self.task_hash})
        return f"{self.server}/join/{self.task}#{fragment}"

    @staticmethod
    def parse(url: str) -> InviteLink:
        """Read a link, or say what is wrong with it.

        >>> link = InviteLink(server="https://crowd.example", task="digits", code="c", key="k", task_hash="s")
        >>> InviteLink.parse(link.to_url()) == link
        True
        """
        none = BadInput(f"{url.partition('#')[0]} is not an invite", hint="https://SERVER/join/TASK#code=…")
        found = _LINK.fullmatch(url.strip(" \t\r\n"))
        if found is None or not 0 < int(found["port"] or 1) < 1 << 16:
            raise none
        fields: dict[str, str] = {}
        for part in (found["fragment"] or "").split("&"):
            name, _, value = part.partition("=")
            if _VALUE.fullmatch(value):
                fields.setdefault(name, value)
        missing = [name for name in ("code", "key", "hash") if name not in fields]
        if missing or not _NAME.fullmatch(found["task"]):
            lacking = f"it lacks {', '.join(missing)}" if missing else f"{found['task']!r} is no name of a task"
            raise BadInput(f"the invite is not complete: {lacking}", hint="copy the whole link, quoted in a shell")
        return InviteLink(
            server=found["server"],
            task=found["task"],
            code=fields["code"],
            key=fields["key"],
            task_hash=fields["hash"],
        )


def make_code() -> str:
    """Make the secret of an invite: 160 bits that are easy to read aloud."""
    return base64.b32encode(secrets.token_bytes(20)).decode("ascii").lower()


def make_token() -> str:
    """Make a bearer token of 256 bits."""
    return secrets.token_urlsafe(32)


def sign_enrolment(key: SigningKey, task: str, code: str, task_hash: str) -> bytes:
    """Sign a request to join, so that the server can pin the device's key."""
    return key.sign(_enrolment(task, code, task_hash))


def verify_enrolment(public: bytes, signature: bytes, task: str, code: str, task_hash: str) -> None:
    """Check a request to join."""
    verify(public, signature, _enrolment(task, code, task_hash))


def _enrolment(task: str, code: str, task_hash: str) -> bytes:
    return _PURPOSE + "\0".join((task, code, task_hash)).encode()
