"""The messages between devices and server, their bytes, and the protocol that both must speak.

check-out   server → device   version, broadcast
check-in    device → server   version the device started from, sanitised contribution

A message is a safetensors file with a header that is fixed for the task. The receiver never parses a stranger's
header: it compares bytes with the header it would have written itself, then reads numbers at known places.

Every request and every answer names the protocol by the header `Crowdml-Protocol`. Whoever meets another one says so
and sends nothing more; a request or an answer that names none is no device's or server's, such as a browser's.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping

import numpy as np

from crowdml.core import BadInput, record, trees
from crowdml.core.errors import MalformedMessage
from crowdml.core.ops import Array, Tree

PROTOCOL_VERSION = 2
PROTOCOL_HEADER = "crowdml-protocol"
_CODES = {"float32": "F32", "int32": "I32", "int64": "I64"}


class Layout:
    """The one legal shape of a message: encodes and decodes what has it.

    >>> layout = Layout({"n": np.int64(0), "w": np.zeros(2, np.float32)})
    >>> body = layout.encode({"n": np.int64(7), "w": np.ones(2, np.float32)})
    >>> layout.decode(body)["n"].item(), len(body) == layout.size_bytes
    (7, True)
    """

    def __init__(self, example: Tree, same_bytes_as: Layout | None = None) -> None:
        """Take dtypes and shapes from an example message, which stays in `example`.

        Args:
            example: Any message.
            same_bytes_as: A layout whose bytes this one reads and writes in another shape, such as several arrays that
                stand side by side as one.
        """
        self.example = trees.map(np.asarray, example)
        self._fill = trees.filler(self.example)
        self._fields = [_Field(path, leaf) for path, leaf in trees.paths(self.example)]
        names = [field.path for field in self._fields]
        if len(set(names)) != len(names) or "__metadata__" in names:
            raise BadInput(f"the names of a message must differ, and not be __metadata__: {names}")
        self.header: bytes = same_bytes_as.header if same_bytes_as else _header(self._fields)
        self.size_bytes = len(self.header)
        for field in self._fields:
            field.at = self.size_bytes
            self.size_bytes += field.size_bytes
        if same_bytes_as and same_bytes_as.size_bytes != self.size_bytes:
            raise ValueError(f"{self.size_bytes} bytes are not the {same_bytes_as.size_bytes} of the other layout")

    def encode(self, message: Tree) -> bytes:
        """Write a message; one of another shape or dtype is a programmer's mistake."""
        leaves = zip(trees.paths(message), self._fields, strict=True)
        return b"".join([self.header, *(field.write(path, np.asarray(leaf)) for (path, leaf), field in leaves)])

    def decode(self, body: bytes | memoryview) -> Tree:
        """Read a message, or raise `MalformedMessage`. Arrays are views of the bytes, which nobody may change."""
        if len(body) != self.size_bytes:
            raise MalformedMessage(f"the body has {len(body)} bytes, {self.size_bytes} were expected")
        if body[: len(self.header)] != self.header:
            raise MalformedMessage("the header is not the one of this task")
        return self._fill(iter([field.read(body) for field in self._fields]))


class _Field:
    """One tensor of a message, and where its numbers stand: worked out once, as a server reads thousands a second."""

    at: int
    """Where in the body its numbers begin."""

    def __init__(self, path: str, example: Array) -> None:
        self.path, self.shape, self._native = path, tuple(example.shape), example.dtype
        if str(self._native) not in _CODES:
            raise BadInput(f"{path} is {self._native}; the wire carries {', '.join(_CODES)}")
        self._dtype = self._native.newbyteorder("<")
        self._count = math.prod(self.shape)
        self.size_bytes = self._count * self._dtype.itemsize
        self.code = _CODES[str(self._native)]
        self._is_vector, self._is_float = len(self.shape) == 1, self._dtype.kind == "f"
        self._is_native = self._dtype == self._native

    def write(self, path: str, array: Array) -> Array:
        """Return the numbers as they are sent, in an array whose bytes stand one after the other."""
        if (path, array.dtype, array.shape) != (self.path, self._native, self.shape):
            raise ValueError(f"{path} is {array.dtype}{array.shape}, not {self.path} {self._native}{self.shape}")
        return np.ascontiguousarray(array, dtype=self._dtype)

    def read(self, body: bytes | memoryview) -> Array:
        array = np.frombuffer(body, self._dtype, self._count, self.at)
        if self._is_float and not np.isfinite(array).all():
            raise MalformedMessage(f"{self.path} holds a number that is not finite")
        if not self._is_native:
            array = array.astype(self._native)
        if self._is_vector:
            return array
        # A number is quicker to make, and to reckon with, than an array that holds one.
        return array.reshape(self.shape) if self.shape else array[0]


def _header(fields: list[_Field]) -> bytes:
    entries, at = {}, 0
    for field in fields:
        end = at + field.size_bytes
        entries[field.path] = {"dtype": field.code, "shape": list(field.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


@record
class Messages:
    """Both layouts of a task."""

    check_out: Layout
    check_in: Layout


def layouts(broadcast: Tree, check_in: Tree) -> Messages:
    """Fix the layouts of a task from an example of each content."""
    return Messages(check_out=Layout(message(0, broadcast)), check_in=Layout(message(0, check_in)))


def message(version: int, content: Tree) -> Tree:
    """Put the version beside the content."""
    return {"content": content, "version": np.int64(version)}


def check_in_key(version: int) -> str:
    """Make the idempotency key of a check-in that started from a version: one per release, kept for every resend.

    It begins with that version, which the check-in itself says too, so that keys of one time lie side by side in the
    server's index; a server stores a random key as faithfully, but with several times the work.

    >>> check_in_key(255)[:11]
    '00000000ff-'
    """
    return f"{version:010x}-{secrets.token_urlsafe(12)}"


def server_protocol_problem(headers: Mapping[str, str]) -> str | None:
    """Say what is wrong where a server's answer names another protocol than ours; None where it does not.

    >>> print(server_protocol_problem({"crowdml-protocol": "1"}))
    the server speaks protocol '1', and 2 is spoken here
      the server is older: its operator should update crowdml
    """
    spoken = headers.get(PROTOCOL_HEADER, str(PROTOCOL_VERSION))[:20]
    if spoken == str(PROTOCOL_VERSION):
        return None
    older = spoken.isdecimal() and int(spoken) < PROTOCOL_VERSION
    hint = "the server is older: its operator should update crowdml" if older else "update crowdml here"
    return f"the server speaks protocol {spoken!r}, and {PROTOCOL_VERSION} is spoken here\n  {hint}"
