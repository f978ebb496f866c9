"""What front ends write to each other: batches of check-ins and their answers, and ASGI's events as bytes.

All of it comes from a front end of the same release, through a database that no stranger reaches; a letter that cannot
be read is an error of ours and ends the process that met it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from crowdml.core import record
from crowdml.server.refusals import JSON, NO_STORE, Answer

LARGEST_NOTICE = 7_500
"""Bytes of a notification; PostgreSQL takes 8,000."""
_HEAD = struct.Struct(">IBI")


@record
class Posted:
    """A check-in on its way to the aggregator.

    Attributes:
        slot: Slot of its device.
        key: Its idempotency key.
        body: Its bytes.
    """

    slot: int
    key: str
    body: bytes


def write_batch(check_ins: Sequence[tuple[int, str, bytes | memoryview]]) -> bytes:
    """Write slot, key and body of each check-in.

    >>> list(read_batch(write_batch([(3, "a key", b"bytes")])))
    [Posted(slot=3, key='a key', body=b'bytes')]
    """
    parts: list[bytes | memoryview] = []
    for slot, key, body in check_ins:
        parts += (_HEAD.pack(slot, len(key), len(body)), key.encode("ascii"), body)
    return b"".join(parts)


def read_batch(raw: bytes) -> Iterator[Posted]:
    """Read what `write_batch` has written."""
    at = 0
    while at < len(raw):
        slot, key_size, size = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        key = raw[at : at + key_size].decode("ascii")
        at += key_size
        yield Posted(slot=slot, key=key, body=raw[at : at + size])
        at += size


def write_answers(batch: int, answers: Sequence[Answer], largest: int | None = LARGEST_NOTICE) -> Iterator[str]:
    """Write the answers to a batch, in as many pieces as it takes; None: in one piece.

    >>> read_answers(next(write_answers(7, [Answer(status=200, body=b"{}")])))[:2]
    (7, 0)
    """
    lines, size, first = list[str](), 0, 0
    for at, answer in enumerate(answers):
        retry = next((value for name, value in answer.headers if name == b"retry-after"), b"-")
        line = f"{answer.status} {retry.decode()} {answer.body.decode()}"
        length = len(line.encode()) + 1 if largest is not None else 0
        if lines and largest is not None and size + length > largest:
            yield f"{batch} {first}\n" + "\n".join(lines)
            lines, size, first = [], 0, at
        lines.append(line)
        size += length
    if lines:
        yield f"{batch} {first}\n" + "\n".join(lines)


def read_answers(notice: str) -> tuple[int, int, list[Answer]]:
    """Read a notification: number of the batch, place of the first answer in it, and the answers."""
    head, *lines = notice.split("\n")
    batch, _, first = head.partition(" ")
    return int(batch), int(first), [_answer(line) for line in lines]


def _answer(line: str) -> Answer:
    status, retry, body = line.split(" ", 2)
    headers = (JSON, NO_STORE)
    if retry != "-":
        headers = (*headers, (b"retry-after", retry.encode()))  # type: ignore[assignment]
    if status == "401":
        headers = (*headers, (b"www-authenticate", b"Bearer"))  # type: ignore[assignment]
    return Answer(status=int(status), body=body.encode(), headers=headers)


def write_event(event: MutableMapping[str, Any]) -> bytes:
    """Write an event of ASGI, or the scope of a request.

    >>> read_event(write_event({"type": "http.request", "body": b"abc", "headers": [(b"a", b"b")]}))
    {'type': 'http.request', 'headers': [(b'a', b'b')], 'body': b'abc'}
    """
    content = event.get("body")
    name = "body" if content is not None else "bytes"
    content = event.get("bytes") if content is None else content
    told = {key: value for key, value in event.items() if key not in ("body", "bytes")}
    if "headers" in told:
        told["headers"] = [[part.decode("latin-1") for part in pair] for pair in told["headers"]]
    if content is not None:
        told["_"] = name
    head = json.dumps(told).encode()
    return struct.pack(">I", len(head)) + head + (bytes(content) if content is not None else b"")


def read_event(raw: bytes) -> dict[str, Any]:
    """Read what `write_event` has written."""
    (size,) = struct.unpack_from(">I", raw)
    event: dict[str, Any] = json.loads(raw[4 : 4 + size])
    if "headers" in event:
        event["headers"] = [tuple(part.encode("latin-1") for part in pair) for pair in event["headers"]]
    name = event.pop("_", None)
    if name is not None:
        event[name] = raw[4 + size :]
    return event
