"""A signed task: everything a device must know about a task, signed by the operator.

It is a JSON text that travels as the very bytes that were signed; nobody writes it anew. Its hash names it: a
device pins the hash it accepted, every receipt repeats it, and an invite carries it. Arrays that transforms learnt from
public data are part of it, so that all devices prepare their rows alike.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.core.keys import SigningKey, fingerprint, verify

DOCUMENT_FORMAT = 2
LARGEST_DOCUMENT = 64 << 20
"""Bytes in the text of a signed task at most."""

_PURPOSE = b"crowdml task 2\0"
Arrays = Mapping[str, npt.NDArray[Any]]


@record
class Restored:
    """What a signed task says about the restore that it was signed after.

    Attributes:
        after: The newest incarnation before it, of the backup and of what it overwrote: everything up to that one is
            over.
        version: Version that the task went back to.
    """

    after: int
    version: int


@record
class TaskDocument:
    """What a signed text says.

    Attributes:
        task: Name of the task on its server.
        incarnation: 1 at first; one more after every restore of a backup.
        definition: The task file's content, without the simulated crowd.
        arrays: For every transform what it learnt; empty for fixed ones.
        restored: The notice of the last restore; None for a task that never was restored.
        browser: What browsers need of it; None in tasks from before they could join.
    """

    task: str
    incarnation: int
    definition: dict[str, Any]
    arrays: tuple[dict[str, npt.NDArray[Any]], ...]
    restored: Restored | None = None
    browser: dict[str, Any] | None = None


@record
class SignedTask:
    """The text of a signed task with its signature and the operator's public key.

    Attributes:
        text: The bytes that were signed.
        signature: Ed25519 signature.
        key: The operator's public key.
    """

    text: bytes
    signature: bytes
    key: bytes

    @property
    def hash(self) -> str:
        """Name of this signed task: SHA-256 of its text, in hexadecimal."""
        return hashlib.sha256(self.text).hexdigest()

    def open(self, expected_key: str | None = None) -> TaskDocument:
        """Check the signature and read the text.

        Args:
            expected_key: Fingerprint of the operator's key, where an invite or an earlier signed task gave it.

        Raises:
            NotAuthorised: Signature or key are not the operator's.
            MalformedMessage: The text says no task.
        """
        if expected_key is not None and fingerprint(self.key) != expected_key:
            raise NotAuthorised("the task is signed with another key than the operator's")
        verify(self.key, self.signature, _PURPOSE + self.text)
        return _read(self.text)

    def to_json(self) -> dict[str, str]:
        """Return the envelope that travels."""
        return {"text": self.text.decode("ascii"), "signature": _encode(self.signature), "key": _encode(self.key)}

    @staticmethod
    def from_json(envelope: Any) -> SignedTask:
        """Read an envelope; the signature is not checked yet."""
        if not isinstance(envelope, dict) or not all(
            isinstance(envelope.get(name), str) for name in ("text", "signature", "key")
        ):
            raise MalformedMessage("a signed task has three texts: text, signature, key")
        try:
            text = envelope["text"].encode("ascii")
            return SignedTask(text=text, signature=_decode(envelope["signature"]), key=_decode(envelope["key"]))
        except ValueError:
            raise MalformedMessage("the signed task is not written in ASCII and base64") from None


def sign_task(document: TaskDocument, key: SigningKey) -> SignedTask:
    """Write and sign a task's document."""
    content = {
        "arrays": write_arrays(document.arrays),
        "definition": document.definition,
        "format": DOCUMENT_FORMAT,
        "incarnation": document.incarnation,
        "task": document.task,
    }
    if document.restored is not None:
        content["restored"] = {"after": document.restored.after, "version": document.restored.version}
    if document.browser is not None:
        content["browser"] = document.browser
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    return SignedTask(text=text, signature=key.sign(_PURPOSE + text), key=key.public)


def _read(text: bytes) -> TaskDocument:
    if len(text) > LARGEST_DOCUMENT:
        raise MalformedMessage(f"a signed task of {len(text)} bytes is larger than {LARGEST_DOCUMENT}")
    try:
        content = json.loads(text)
        if content["format"] != DOCUMENT_FORMAT:
            raise MalformedMessage(
                f"the signed task has format {content['format']!r}; this device reads {DOCUMENT_FORMAT}"
            )
        return TaskDocument(
            task=_checked(content["task"], str),
            incarnation=_checked(content["incarnation"], int),
            definition=_checked(content["definition"], dict),
            arrays=read_arrays(content["arrays"]),
            restored=_restored(content["restored"]) if "restored" in content else None,
            browser=_checked(content["browser"], dict) if "browser" in content else None,
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedMessage(f"the text says no task: {error}") from None


def _restored(content: Any) -> Restored:
    return Restored(after=_checked(content["after"], int), version=_checked(content["version"], int))


def write_arrays(arrays: Sequence[Arrays]) -> list[dict[str, Any]]:
    """Write what transforms learnt as JSON."""
    return [{name: _array(value) for name, value in learnt.items()} for learnt in arrays]


def read_arrays(content: Sequence[Any]) -> tuple[dict[str, npt.NDArray[Any]], ...]:
    """Read what `write_arrays` wrote, or raise `MalformedMessage`."""
    try:
        given = _checked(content, list)
        return tuple({name: _to_array(value) for name, value in _checked(learnt, dict).items()} for learnt in given)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise MalformedMessage(f"not arrays of transforms: {error}") from None


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} should be of type {kind.__name__}")
    return value


def _array(value: npt.NDArray[Any]) -> dict[str, Any]:
    little = np.ascontiguousarray(value, "<f4")
    return {"shape": list(little.shape), "values": _encode(little.tobytes())}


def _to_array(value: Mapping[str, Any]) -> npt.NDArray[Any]:
    shape: Sequence[int] = _checked(value["shape"], list)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{shape} is no shape")
    read = np.frombuffer(_decode(value["values"]), "<f4").astype(np.float32).reshape(shape)
    if not np.isfinite(read).all():
        raise ValueError("a number is not finite")
    return read


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii")


def _decode(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
