"""Joining: the link that invites a device, and what the device sends to enrol.

An invite's secret, the operator's key and the hash of the signed task stand in the fragment of the link, which browsers
do not send to servers: whoever has the link can join once, and notices a server that shows another task.

    https://crowd.example:8800/join/digits#code=…&key=…&hash=…
"""

from __future__ import annotations

import base64
import re
import secrets
from urllib.parse import parse_qs, urlencode, urlsplit

from crowdml.core import BadInput, record
from crowdml.core.keys import SigningKey, verify

_PURPOSE = b"crowdml enrol 1\0"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


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
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            raise none from None
        found = re.fullmatch(r"(.*)/join/([^/]+)/?", parts.path)
        if not valid or not found:
            raise none
        fields = {name: values[0] for name, values in parse_qs(parts.fragment).items()}
        missing = [name for name in ("code", "key", "hash") if not fields.get(name)]
        if missing or not _NAME.fullmatch(found[2]):
            lacking = f"it lacks {', '.join(missing)}" if missing else f"{found[2]!r} is no name of a task"
            raise BadInput(f"the invite is not complete: {lacking}", hint="copy the whole link, quoted in a shell")
        return InviteLink(
            server=f"{parts.scheme}://{parts.netloc}{found[1]}",
            task=found[2],
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
