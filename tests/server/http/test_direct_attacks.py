"""Check-ins that are answered directly, by whoever means harm: one answer each, in its place, and counted once."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from crowdml.server.http.direct import DirectCycle
from crowdml.server.store import StoreFailed
from crowdml.server.tasks.coordinator import Options
from crowdml.wire.messages import check_in_key
from tests.server.http.test_direct import answers, ask, written
from tests.support.on_socket import OnSocket, parse_answers, read_all


def await_that(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.002)


def writer_of(app: Any, task: str = "walk") -> Any:
    return app.app._coordinator.writers[task]


def await_waiting(app: Any, number: int) -> None:
    await_that(lambda: writer_of(app).waiting == number)


def begun(app: Any) -> list[Any]:
    """Connections whose request has come as far as its headers."""
    return [connection for connection in list(app.server.server_state.connections) if connection._headers_done]


def cut_off(link: socket.socket) -> None:
    """Leave without a farewell."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def hold(app: Any, make_gate: Any, links: contextlib.ExitStack) -> tuple[Any, socket.socket]:
    """Let the writer hang in its transaction, with the check-in of somebody else."""
    other, gate = app.device(), make_gate(app)
    link = links.enter_context(app.connect())
    link.sendall(written(other, other.body(0)))
    assert gate.reached.wait(20)
    return gate, link


def test_the_same_key_on_two_connections_at_once_is_counted_once(on_socket: Any, make_gate: Any) -> None:
    device, key = on_socket.device(), "one-key-for-all"
    bodies = [device.body(0, seed=1)] * 3 + [device.body(0, seed=2)]
    with contextlib.ExitStack() as stack:
        gate, _ = hold(on_socket, make_gate, stack)
        links = [stack.enter_context(on_socket.connect()) for _ in bodies]
        for number, (link, body) in enumerate(zip(links, bodies, strict=True)):
            link.sendall(written(device, body, idempotency_key=key))
            await_waiting(on_socket, number + 1)
        gate.open.set()
        found = [answers(link)[0] for link in links]
    assert [status for status, _, _ in found] == [200, 200, 200, 422]
    assert [b'"again":true' in body for _, _, body in found] == [False, True, True, False]
    assert b"other-bytes" in found[3][2] and device.me()["check_ins"] == 1


@pytest.mark.parametrize(("change", "status"), [("revoked", 401), ("paused", 503), ("stopped", 410)])
def test_what_changes_while_a_check_in_waits_holds_for_it(
    on_socket: Any, make_gate: Any, refused: Any, change: str, status: int
) -> None:
    device = on_socket.device()

    def begin_change() -> Any:
        if change == "revoked":
            return on_socket.as_operator("DELETE", f"/v1/tasks/walk/devices/{device.id}")
        return on_socket.move(change)

    with contextlib.ExitStack() as stack:
        gate, first = hold(on_socket, make_gate, stack)
        thread, link = stack.enter_context(ThreadPoolExecutor(1)), stack.enter_context(on_socket.connect())
        # A state changes for what comes behind it in the queue, a revoked device may speak no more at once.
        steps: list[Callable[[], Any]] = [
            lambda: thread.submit(begin_change),
            lambda: link.sendall(written(device, device.body(0))),
        ]
        for number, step in enumerate(steps[::-1] if change == "revoked" else steps):
            step()
            await_waiting(on_socket, number + 1)
        gate.open.set()
        assert answers(first)[0][0] == 200
        (answer,) = answers(link)
    refused(answer, status)
    assert ("retry-after" in answer[1]) == (status == 503)
    assert on_socket.show()["check_ins"] == 1


def test_a_device_that_is_revoked_before_its_body_comes_is_not_heard(on_socket: Any, refused: Any) -> None:
    device = on_socket.device()
    body = device.body(0)
    with on_socket.connect() as link:
        link.sendall(written(device, body)[: -len(body)])
        await_that(lambda: bool(begun(on_socket)))
        assert on_socket.as_operator("DELETE", f"/v1/tasks/walk/devices/{device.id}").status_code == 204
        link.sendall(body)
        refused(answers(link)[0], 401, "not-authorised")
    assert on_socket.show()["check_ins"] == 0


def test_a_full_queue_refuses_and_says_when_to_come_back(make_app: Any, make_gate: Any, refused: Any) -> None:
    app = make_app(kind=OnSocket, options=Options(capacity=2))
    app.create()
    devices = [app.device() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        gate, _ = hold(app, make_gate, stack)
        links = [stack.enter_context(app.connect()) for _ in devices]
        for number, (link, device) in enumerate(zip(links, devices, strict=True)):
            link.sendall(written(device, device.body(0)))
            await_waiting(app, min(number + 1, 2))
        (answer,) = answers(links[2])
        refused(answer, 503, "busy")
        assert answer[1]["retry-after"] == "1"
        gate.open.set()
        assert [answers(link)[0][0] for link in links[:2]] == [200, 200]
    assert app.show()["check_ins"] == 3 and app.app._coordinator.check_ins[503] == 1


def test_when_the_store_fails_everybody_who_waits_is_told_and_nobody_is_taken_after_that(
    on_socket: Any, refused: Any
) -> None:
    """Some in the batch that failed, some behind it, one that has left."""
    devices = [on_socket.device() for _ in range(6)]
    writer, error, held = writer_of(on_socket), StoreFailed("disk"), time.monotonic() + 20

    def apply(_: object) -> None:
        while writer.waiting < len(devices) - 1 and time.monotonic() < held:
            time.sleep(0.002)
        raise error

    on_socket.store.apply = apply
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(on_socket.connect()) for _ in devices]
        for link, device in zip(links, devices, strict=True):
            link.sendall(written(device, device.body(0)))
        cut_off(links.pop())
        for link in links:
            refused(answers(link)[0], 503, "failed")
        assert on_socket.failures == [error] and not writer.alive
        refused(ask(on_socket, written(devices[0], devices[0].body(0))), 503, "busy")
    assert on_socket.show()["check_ins"] == 0


def test_a_mistake_over_one_check_in_is_its_own_alone(
    on_socket: Any, make_gate: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking at numbers changes nothing, so a server need not end where that goes wrong; else one could end it."""
    devices = [on_socket.device() for _ in range(5)]
    running = on_socket.app._coordinator.tasks["walk"]
    usual = running.problems

    def problems(contents: Any) -> Any:
        if any(content.update[0] == np.float32(66) for content in contents):
            raise ZeroDivisionError("secret-detail")
        return usual(contents)

    with contextlib.ExitStack() as stack:
        gate, _ = hold(on_socket, make_gate, stack)
        monkeypatch.setattr(running, "problems", problems)
        links = [stack.enter_context(on_socket.connect()) for _ in devices]
        for number, (link, device) in enumerate(zip(links, devices, strict=True)):
            body = bytearray(device.body(0))
            at = len(device.live.messages.check_in.header)
            if number == 2:
                body[at : at + 4] = struct.pack("<f", 66.0)
            link.sendall(written(device, bytes(body)))
            await_waiting(on_socket, number + 1)
        gate.open.set()
        found = [answers(link)[0] for link in links]
    assert [status for status, _, _ in found] == [200, 200, 500, 200, 200]
    refused(found[2], 500, "internal")
    assert b"secret" not in found[2][2] and on_socket.failures == [] and on_socket.show()["check_ins"] == 5


def test_whatever_comes_behind_a_check_in_that_waits_does_not_touch_it(on_socket: Any, make_gate: Any) -> None:
    """Not HTTP, or more requests: the check-in is stored once, and no other answer stands in its place."""
    device = on_socket.device()
    sent = written(device, device.body(0))
    with contextlib.ExitStack() as stack:
        gate, _ = hold(on_socket, make_gate, stack)
        link = stack.enter_context(on_socket.connect())
        link.sendall(sent)
        await_waiting(on_socket, 1)
        link.sendall(b"\0 no HTTP\r\n\r\n")
        assert read_all(link) == b""
        gate.open.set()
    status, _, body = ask(on_socket, sent)
    assert status == 200 and b'"again":true' in body and device.me()["check_ins"] == 1


SMUGGLED: dict[str, tuple[tuple[str, str], ...]] = {
    "two lengths": (("Content-Length", "{less}"),),
    "the same length twice": (("Content-Length", "{size}"),),
    "a list of lengths": (("content-length", "{size}, {less}"),),
    "a length and chunks": (("Transfer-Encoding", "chunked"),),
    "a length and other chunks": (("Transfer-Encoding", "xchunked"),),
    "a negative length": (("content-length", "-1"),),
    "a length with a sign": (("content-length", "+{size}"),),
    "a hexadecimal length": (("content-length", "0x238"),),
    "a folded length": (("X", "a\r\n Content-Length: 5"), ("content-length", "{size}\r\n ,5")),
    "a space before the colon": (("Content-Length ", "5"),),
    "a line feed alone": (("X", "a\nContent-Length: 5"),),
}


@pytest.mark.parametrize("kind", list(SMUGGLED))
def test_22_a_body_has_one_length_or_is_refused_and_the_connection_closed(hasty: Any, kind: str) -> None:
    """The body holds a whole check-in of its own, which nobody must find."""
    device = hasty.device()
    hidden = written(device, device.body(), idempotency_key="hidden-in-a-body")
    size = len(device.body())
    body = (hidden + bytes(size))[:size]
    text = written(device, body)[: -len(body)].decode()
    for name, value in SMUGGLED[kind]:
        given = value.format(size=size, less=size - 20)
        if name == "content-length":
            text = text.replace(f"content-length: {size}", f"content-length: {given}")
        else:
            text = text.replace("\r\n\r\n", f"\r\n{name}: {given}\r\n\r\n")
    with hasty.connect() as link:
        with contextlib.suppress(ConnectionError):
            link.sendall(text.encode() + body + hidden)
        found = parse_answers(read_all(link))
    assert len(found) <= 1 and all(400 <= status < 500 for status, _, _ in found)
    assert device.me()["check_ins"] == 0


def test_2_a_body_that_comes_byte_by_byte_is_cut_at_its_deadline(hasty: Any) -> None:
    """A byte now and then does not move the deadline."""
    device = hasty.device()
    sent = written(device, device.body())
    body_at = sent.index(b"\r\n\r\n") + 4
    limits = hasty.protocol.limits
    allowed_s = limits.deadline_s + (len(sent) - body_at) / limits.bytes_per_second
    with hasty.connect() as link:
        link.sendall(sent[:body_at])
        began, at = time.monotonic(), body_at
        link.settimeout(0.02)
        while time.monotonic() - began < 3 * allowed_s + 5:
            with contextlib.suppress(ConnectionError):
                link.sendall(sent[at : at + 1])
            at += at < len(sent) - 2
            with contextlib.suppress(TimeoutError):
                with contextlib.suppress(ConnectionError):
                    assert link.recv(100) == b""
                break
        took_s = time.monotonic() - began
    assert allowed_s - 0.2 < took_s < allowed_s + 3 and device.me()["check_ins"] == 0


def test_a_peer_that_reads_no_answers_is_cut_and_costs_little_memory(hasty: Any) -> None:
    device, largest = hasty.device(), 0
    sent = written(device, b"\1" + device.body()[1:]) * 50
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(("127.0.0.1", hasty.port))
        link.settimeout(20)
        with pytest.raises(ConnectionError):
            for _ in range(2000):
                link.sendall(sent)
                for connection in list(hasty.server.server_state.connections):
                    largest = max(largest, connection.transport.get_write_buffer_size())
    assert 0 < largest < 4 << 20


def test_answers_stay_with_their_requests_among_many_connections(on_socket: Any) -> None:
    """Whatever is sent at once, in pieces, and by peers that leave: each answer names its own key, in order."""
    draws, devices = random.Random(8), [on_socket.device() for _ in range(6)]
    body, wrong = devices[0].body(0), b"\1" + devices[0].body(0)[1:]

    def talk(number: int) -> int:
        device, fine = devices[number % len(devices)], 0
        for turn in range(6):
            plan = [draws.random() < 0.8 for _ in range(draws.choice([1, 1, 2, 5]))]
            keys = [check_in_key(number) for _ in plan]
            sent = b"".join(
                written(device, body if good else wrong, idempotency_key=key)
                for good, key in zip(plan, keys, strict=True)
            )
            with on_socket.connect() as link:
                cut = draws.randrange(len(sent))
                link.sendall(sent[:cut])
                link.sendall(sent[cut:])
                if turn % 3 == 2:
                    cut_off(link)
                    continue
                found = answers(link, len(plan))
            assert [status for status, _, _ in found] == [200 if good else 422 for good in plan]
            assert all(key.encode() in said for good, key, (_, _, said) in zip(plan, keys, found, strict=True) if good)
            fine += sum(plan)
        return fine

    with ThreadPoolExecutor(12) as threads:
        told = sum(threads.map(talk, range(12)))
    await_waiting(on_socket, 0)
    receipts = [receipt["key"] for device in devices for receipt in device.receipts()]
    assert told <= on_socket.show()["check_ins"] == sum(device.me()["check_ins"] for device in devices)
    assert len(set(receipts)) == len(receipts)


def test_a_length_with_zeros_in_front_is_as_long_as_it_says(hasty: Any) -> None:
    """Its body is read like any other of that length, not put together piece by piece."""
    device = hasty.device(hasty.fresh("data.features=60000"))
    body = device.body()
    with hasty.connect() as link:
        link.sendall(written(device, body, content_length=str(len(body)).rjust(15, "0"))[: -len(body)])
        await_that(lambda: bool(begun(hasty)))
        assert [connection._announced for connection in begun(hasty)] == [len(body)]
        link.sendall(body)
        assert answers(link)[0][0] == 200
    assert device.me()["check_ins"] == 1


def test_whoever_leaves_in_the_middle_of_a_body_leaves_nothing_in_memory(hasty: Any) -> None:
    """A connection and its request refer to each other, so both may stay until garbage is collected."""
    device = hasty.device()
    with hasty.connect() as link:
        link.sendall(written(device, device.body())[:-1])
        await_that(lambda: any(connection.cycle.body for connection in begun(hasty)))
        (connection,) = begun(hasty)
        cut_off(link)
        await_that(lambda: connection not in hasty.server.server_state.connections)
    await_that(lambda: not connection.cycle.body)


def test_a_body_in_pieces_is_put_together_once_and_cannot_be_changed_after_that() -> None:
    """Copied for every piece, a body of 128 KiB that comes byte by byte would be 8 GiB."""
    taken: list[Any] = []

    class Expects:
        size = 1 << 17

        def take(self, body: Any, answered: Any) -> None:
            taken.append(body)

    cycle = DirectCycle(None, ())  # type: ignore[arg-type]  # nothing is answered
    cycle.begin(Expects())
    cycle.add(b"a")
    cycle.add(b"b")
    pieces = cycle.body
    for _ in range(1000):
        cycle.add(b"c")
    assert cycle.body is pieces, "put behind the others in place"
    cycle.take()
    assert taken == [b"ab" + b"c" * 1000] and type(taken[0]) is bytes and not cycle.body
