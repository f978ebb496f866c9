"""Frames: how this process and a worker talk. JSON that says what follows, then arrays as they lie in memory.

Both ends are ours, and the socket between processes of one machine has no name, so nobody else can speak there; a
cluster carries the same frames as bytes. Lengths are checked nevertheless before anything is read, and no frame names a
class that is not listed here.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.ops import Tree
from crowdml.simulation.engine.data_tables import DataTables
from crowdml.simulation.engine.run_records import Events, Replicas
from crowdml.simulation.timeline.timeline import Sent

HEAD_BYTES = 64 << 20
ARRAY_BYTES = 64 << 30
MOST_FILES = 250
TYPES = {"<f2", "<f4", "<f8", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "|i1", "|u1", "|b1"}
RECORDS: dict[str, type] = {kind.__name__: kind for kind in (Events, Replicas, DataTables, Sent)}


@record
class Frame:
    """What was received.

    Attributes:
        words: Plain values.
        tree: Arrays, in the structure they were sent in.
        files: Open files that came along.
    """

    words: dict[str, Any]
    tree: Tree
    files: tuple[int, ...] = ()


def pack(tree: Tree, arrays: list[Any]) -> Any:
    """Describe a tree by plain values; its leaves go to `arrays`, and their numbers stand for them."""
    if isinstance(tree, dict):
        return {"dict": {name: pack(child, arrays) for name, child in tree.items()}}
    if isinstance(tree, tuple | list):
        return {"tuple": [pack(child, arrays) for child in tree]}
    if type(tree) in RECORDS.values():
        return {"record": type(tree).__name__, "of": {name: pack(child, arrays) for name, child in vars(tree).items()}}
    arrays.append(np.asarray(tree, order="C"))
    return len(arrays) - 1


def unpack(described: Any, arrays: Sequence[Any]) -> Tree:
    """Put a tree together again."""
    if isinstance(described, int):
        return arrays[described]
    if "dict" in described:
        return {name: unpack(child, arrays) for name, child in described["dict"].items()}
    if "tuple" in described:
        return tuple(unpack(child, arrays) for child in described["tuple"])
    return RECORDS[described["record"]](**{name: unpack(child, arrays) for name, child in described["of"].items()})


def send(end: socket.socket, words: dict[str, Any], tree: Tree = (), files: Sequence[int] = ()) -> None:
    """Send plain values, arrays and open files."""
    start, head, *arrays = _parts(words, tree)
    if files:
        socket.send_fds(end, [start], list(files))
    else:
        end.sendall(start)
    end.sendall(head)
    for array in arrays:
        end.sendall(array)


def to_bytes(words: dict[str, Any], tree: Tree = ()) -> bytes:
    """Return a frame of plain values and arrays as it would be sent."""
    return b"".join(_parts(words, tree))


def from_bytes(content: bytes) -> Frame:
    """Read a frame that `to_bytes` has made.

    Raises:
        ValueError: It is none, or was cut short.
    """
    view = memoryview(content)
    length = int.from_bytes(view[:8], "little")
    if length > min(HEAD_BYTES, len(view) - 8):
        raise ValueError(f"a head of {length} bytes")
    head, at = json.loads(bytes(view[8 : 8 + length])), 8 + length
    arrays = []
    for kind, shape in head["arrays"]:
        size = _size(kind, tuple(shape))
        if size > len(view) - at:
            raise ValueError(f"an array of {size} bytes, of which {len(view) - at} are there")
        arrays.append(np.frombuffer(view[at : at + size], kind).reshape(tuple(shape)).copy())  # aligned
        at += size
    if at != len(view):
        raise ValueError(f"{len(view) - at} bytes behind the last array")
    return Frame(words=head["words"], tree=unpack(head["tree"], arrays))


def _parts(words: dict[str, Any], tree: Tree) -> list[Any]:
    """Return the pieces of a frame: the length of its head, the head, and arrays that are not empty."""
    arrays: list[npt.NDArray[Any]] = []
    described = pack(tree, arrays)
    layout = [[array.dtype.str, list(array.shape)] for array in arrays]
    head = json.dumps({"words": words, "tree": described, "arrays": layout}).encode()
    content = [array.reshape(-1).view(np.uint8).data for array in arrays if array.nbytes]
    return [len(head).to_bytes(8, "little"), head, *content]


def receive(end: socket.socket) -> Frame:
    """Receive a frame.

    Raises:
        EOFError: The other end is gone.
    """
    start, files, _, _ = socket.recv_fds(end, 8, MOST_FILES)
    if not start:
        raise EOFError
    start += bytes(_exactly(end, 8 - len(start)))
    length = int.from_bytes(start, "little")
    if length > HEAD_BYTES:
        raise ValueError(f"a head of {length} bytes")
    head = json.loads(bytes(_exactly(end, length)))
    arrays = [_array(end, kind, tuple(shape)) for kind, shape in head["arrays"]]
    return Frame(words=head["words"], tree=unpack(head["tree"], arrays), files=tuple(files))


def _array(end: socket.socket, kind: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    return np.frombuffer(_exactly(end, _size(kind, shape)), kind).reshape(shape)


def _size(kind: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of an array, unless it is none that we send."""
    if kind not in TYPES or any(length < 0 for length in shape):
        raise ValueError(f"no array: {kind} {shape}")
    size = np.dtype(kind).itemsize * math.prod(shape)
    if size > ARRAY_BYTES:
        raise ValueError(f"an array of {size} bytes")
    return size


def _exactly(end: socket.socket, count: int) -> bytearray:
    content = bytearray(count)
    view = memoryview(content)
    while view:
        got = end.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return content
