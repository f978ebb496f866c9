"""Layout: the one legal shape of a message, and the bytes it becomes.

A message is a safetensors file with a header that is fixed for the task. The receiver never parses a stranger's
header: it compares bytes with the header it would have written itself, then reads numbers at known places.
"""

from __future__ import annotations

import json

import numpy as np

from crowdml.core import BadInput, record, trees
from crowdml.core.errors import MalformedMessage
from crowdml.core.ops import Array, Tree

_CODES = {"float32": "F32", "int32": "I32", "int64": "I64"}


@record
class Field:
    """One tensor: its dtype and shape. A leaf of the tree that describes a message."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Length of its numbers on the wire."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class Layout:
    """Encodes and decodes messages of one fixed shape.

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
        self._fields = [
            (path, Field(dtype=str(leaf.dtype), shape=tuple(leaf.shape))) for path, leaf in trees.paths(self.example)
        ]
        self._fill = trees.filler(self.example)
        names = [path for path, _ in self._fields]
        if len(set(names)) != len(names) or "__metadata__" in names:
            raise BadInput(f"the names of a message must differ, and not be __metadata__: {names}")
        for path, field in self._fields:
            if field.dtype not in _CODES:
                raise BadInput(f"{path} is {field.dtype}; the wire carries {', '.join(_CODES)}")
        self.header: bytes = same_bytes_as.header if same_bytes_as else _header(self._fields)
        self._places, at = [], len(self.header)
        for path, field in self._fields:
            self._places.append(_Place(path=path, field=field, at=at))
            at += field.size_bytes
        self.size_bytes = at
        if same_bytes_as and same_bytes_as.size_bytes != at:
            raise ValueError(f"{at} bytes are not the {same_bytes_as.size_bytes} of the other layout")

    def encode(self, message: Tree) -> bytes:
        """Write a message; one of another shape or dtype is a programmer's mistake."""
        parts = [self.header]
        for (path, leaf), place in zip(trees.paths(message), self._places, strict=True):
            parts.append(place.write(path, np.asarray(leaf)))
        return b"".join(parts)

    def decode(self, body: bytes) -> Tree:
        """Read a message, or raise `MalformedMessage`. Arrays are read-only views of the bytes."""
        if len(body) != self.size_bytes:
            raise MalformedMessage(f"the body has {len(body)} bytes, {self.size_bytes} were expected")
        if not body.startswith(self.header):
            raise MalformedMessage("the header is not the one of this task")
        return self._fill(iter([place.read(body) for place in self._places]))


class _Place:
    """Where the numbers of one field stand. Worked out once: a server reads thousands of messages a second."""

    def __init__(self, *, path: str, field: Field, at: int) -> None:
        self._path, self._field, self._shape, self._at = path, field, field.shape, at
        self._dtype = np.dtype(field.dtype).newbyteorder("<")
        self._native = np.dtype(field.dtype)
        self._count = field.size_bytes // self._dtype.itemsize
        self._is_vector = len(field.shape) == 1
        self._is_native = self._dtype == self._native
        self._is_float = self._dtype.kind == "f"

    def write(self, path: str, array: Array) -> bytes:
        if (path, array.dtype, array.shape) != (self._path, self._native, self._shape):
            field = self._field
            raise ValueError(f"{path} is {array.dtype}{array.shape}, not {self._path} {field.dtype}{field.shape}")
        written: bytes = np.ascontiguousarray(array, dtype=self._dtype).tobytes()
        return written

    def read(self, body: bytes) -> Array:
        array = np.frombuffer(body, self._dtype, self._count, self._at)
        if self._is_float and not np.isfinite(array).all():
            raise MalformedMessage(f"{self._path} holds a number that is not finite")
        if not self._is_native:
            array = array.astype(self._native)
        return array if self._is_vector else array.reshape(self._shape)


def _header(fields: list[tuple[str, Field]]) -> bytes:
    entries, at = {}, 0
    for path, field in fields:
        entries[path] = {
            "dtype": _CODES[field.dtype],
            "shape": list(field.shape),
            "data_offsets": [at, at + field.size_bytes],
        }
        at += field.size_bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
