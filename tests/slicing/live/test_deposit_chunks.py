"""Deposits in chunks: they come together in order and no other way, and go behind whatever else is to be sent."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from crowdml.core.errors import MalformedMessage
from crowdml.device.slice_member import SliceTaker
from crowdml.slicing.live import controls as say
from crowdml.slicing.live.deposits import CHUNK_BYTES, ChunkGatherer, in_chunks
from crowdml.slicing.live.slice_frames import CHUNK, DEPOSIT, FORWARD, HEADER_BYTES, plain_header, read_header
from tests.support.group_courses import TASK, TERMS


def deposit(length: int = 10_000, batch: int = 4) -> bytes:
    return plain_header(DEPOSIT, 7, (3, 65_537), (2, 0), 1)._replace(batch=batch, micro=1).pack() + bytes(
        at % 251 for at in range(length)
    )


def put_together(chunks: list[bytes], largest: int = 1 << 20) -> bytes | None:
    gatherer, found = ChunkGatherer(largest), None
    for chunk in chunks:
        assert found is None
        found = gatherer.take(read_header(chunk), chunk)
    return found


@pytest.mark.parametrize("size", [HEADER_BYTES, 999, 5018, 10_035])
def test_chunks_make_the_deposit_again(size: int) -> None:
    chunks = in_chunks(deposit(), size)
    assert len(chunks) > 1 and {read_header(chunk).kind for chunk in chunks} == {CHUNK}
    assert all(len(chunk) <= HEADER_BYTES + size for chunk in chunks)
    assert put_together(chunks) == deposit()


def test_a_short_deposit_goes_as_it_is() -> None:
    assert in_chunks(deposit()) == [deposit()] and len(deposit()) <= CHUNK_BYTES


def test_a_new_attempt_begins_anew_and_what_is_not_in_order_is_refused() -> None:
    chunks, gatherer = in_chunks(deposit(), 2000), ChunkGatherer(1 << 20)
    for chunk in chunks[:2]:
        assert gatherer.take(read_header(chunk), chunk) is None
    # The rest was fenced off; the next deposit begins with its first chunk.
    other = in_chunks(deposit(batch=8), 2000)
    assert [gatherer.take(read_header(chunk), chunk) for chunk in other][-1] == deposit(batch=8)
    for wrong in ([chunks[1]], [chunks[0], chunks[2]], [chunks[0], chunks[0], chunks[2]], [chunks[0], other[1]]):
        with pytest.raises(MalformedMessage, match="of a deposit"):
            put_together(wrong)


def test_chunks_of_too_much_or_of_something_else_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="more than 4000 bytes"):
        put_together(in_chunks(deposit(), 2000), largest=4000)
    inside = plain_header(FORWARD, 7, (3, 65_537), (2, 0), 1)._replace(receiver=3, micros=1, rows=1).pack() + bytes(
        5000
    )
    chunks = [
        plain_header(CHUNK, 7, (3, 65_537), (2, 0), 1)._replace(micro=at, micros=2).pack() + inside[at * 4000 :][:4000]
        for at in (0, 1)
    ]
    with pytest.raises(MalformedMessage, match="something else"):
        put_together(chunks)


class Socket:
    """Gives out messages that were prepared, and keeps what is sent."""

    def __init__(self, *messages: str | bytes) -> None:
        self.coming, self.sent = deque(messages), list[str | bytes]()

    def recv(self, timeout: float | None = None) -> str | bytes:
        if not self.coming:
            if timeout == 0:
                raise TimeoutError
            raise EOFError
        return self.coming.popleft()

    def send(self, message: str | bytes) -> None:
        self.sent.append(message)


def taker_of() -> SliceTaker:
    nobody: Any = SimpleNamespace(task_hash=TASK)
    return SliceTaker(nobody, nobody, TERMS)


def test_a_deposit_goes_behind_other_messages_and_whole_before_the_next_one() -> None:
    taker, socket = taker_of(), Socket()
    long, later = deposit(3 * CHUNK_BYTES), deposit(100, batch=8)
    data = plain_header(FORWARD, 7, (3, 65_537), (2, 3), 1)._replace(micros=1, rows=1).pack()
    taker._send(socket, [long, data])  # type: ignore[arg-type]
    assert socket.sent == [data] and len(taker._behind) == 4
    taker._send(socket, [later])  # type: ignore[arg-type]
    assert socket.sent[1:] == in_chunks(long) and list(taker._behind) == [later]


def test_chunks_are_sent_while_nothing_comes_and_dropped_with_their_attempt() -> None:
    taker = taker_of()
    member: Any = SimpleNamespace(
        batches=0, role=None, stage="idle", guard=SimpleNamespace(passes_again=0, observers=()), handle=lambda told: []
    )
    prepare = say.Prepare(group=7, turn=3, attempt=65_538, passes=0, cards={}, assignment=(), cut=None, download=True)
    taker._behind.extend(in_chunks(deposit(3 * CHUNK_BYTES)))
    socket = Socket(say.write_control(say.Ask(turn=3, attempt=65_537)))
    with pytest.raises(EOFError):
        taker._talk(socket, member)  # type: ignore[arg-type]
    assert socket.sent == in_chunks(deposit(3 * CHUNK_BYTES)) and not taker._behind
    taker._behind.extend(in_chunks(deposit(3 * CHUNK_BYTES)))
    socket = Socket(say.write_control(prepare))
    with pytest.raises(EOFError):
        taker._talk(socket, member)  # type: ignore[arg-type]
    assert not socket.sent
