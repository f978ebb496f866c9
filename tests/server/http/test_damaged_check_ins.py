"""Ten thousand check-ins that were damaged on their way: each is refused in the one shape, or was still a check-in.

Whether a damaged one is still a check-in is told by the device's own reading of the layout and the limits of the task.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from crowdml.core import CrowdError
from crowdml.task.live_task import LiveTask
from tests.support.plans import problem_with

MUTANTS = 5_000
AT_ONCE = 100
SOUND = (
    "privacy={ mode = 'sound', epsilon = 6.0, max-uses = 3, statistics-epsilon = 0.6, clip = 1.0 }",
    "stop={ max-releases = 1000000 }",
    "crowd={ passes = 3 }",
)
PIECES = [b"\xff" * 8, bytes(8), b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f", b"\x00\x00\x80\xff", b"\xff\xff\xff\x7f"]
PIECES += [b"\x00\x00\x00\x80", (2**63 - 1).to_bytes(8, "little"), b"{", b'"', b"F64", b"__metadata__", b"\x80\x04\x95"]

Mutate = Callable[[random.Random, bytes, int], bytes]


def flip(draw: random.Random, body: bytes, start: int) -> bytes:
    made = bytearray(body)
    for _ in range(draw.choice((1, 1, 2, 8))):
        made[draw.randrange(start, len(made))] ^= 1 << draw.randrange(8)
    return bytes(made)


def overwrite(draw: random.Random, body: bytes, start: int) -> bytes:
    piece, at = draw.choice(PIECES), draw.randrange(start, len(body))
    return (body[:at] + piece + body[at + len(piece) :])[: len(body)]


def cut(draw: random.Random, body: bytes, start: int) -> bytes:
    return body[: draw.randrange(len(body))]


def grow(draw: random.Random, body: bytes, start: int) -> bytes:
    return body + draw.randbytes(draw.choice((1, 8, 1000)))


def move(draw: random.Random, body: bytes, start: int) -> bytes:
    at, size = draw.randrange(len(body)), draw.randrange(1, 64)
    return (body[:at] + body[at + size :] + body[at : at + size])[: len(body)]


def replace(draw: random.Random, body: bytes, start: int) -> bytes:
    return body[:start] + draw.randbytes(len(body) - start)


def nothing_left(draw: random.Random, body: bytes, start: int) -> bytes:
    return draw.randbytes(len(body))


def keep(draw: random.Random, body: bytes, start: int) -> bytes:
    return body


MUTATIONS: list[Mutate] = [flip, overwrite, cut, grow, move, replace, nothing_left, keep]


def is_check_in(live: LiveTask, body: bytes, newest: int) -> bool:
    """Tell whether bytes are a check-in that some honest device could have sent by now."""
    try:
        message = live.messages.check_in.decode(body)
    except CrowdError:
        return False
    if problem_with(message["content"], live.algorithm, live.plan) is not None:
        return False
    return 0 <= int(message["version"]) <= newest


def mutants(draw: random.Random, bodies: list[bytes], header: int) -> list[bytes]:
    made = []
    for _ in range(MUTANTS):
        # Half of the damage hits the numbers: a damaged header is refused whatever stands behind it.
        start = header if draw.random() < 0.5 else 0
        made.append(draw.choice(MUTATIONS)(draw, draw.choice(bodies), start))
    return made


async def post(app: Any, device: Any, body: bytes, number: int) -> tuple[int, bytes]:
    """Ask the application itself, without anything that would mend the request."""
    headers = device.headers(f"key-number-{number}") | {"host": "127.0.0.1", "content-length": str(len(body))}
    scope = {
        "type": "http",
        "scheme": "http",
        "method": "POST",
        "path": f"/v1/tasks/{device.task}/check-ins",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    told: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Any) -> None:
        told.append(event)

    await app(scope, receive, send)
    return told[0]["status"], told[1]["body"]


@pytest.mark.parametrize("changes", [(), SOUND], ids=["none", "sound"])
def test_damaged_check_ins_are_refused_or_were_still_check_ins(app: Any, changes: tuple[str, ...]) -> None:
    task = app.fresh(*changes)
    device = app.device(task)
    live = device.live
    bodies = [device.body(0, seed) for seed in range(10)]
    made = mutants(random.Random(2024), bodies, len(live.messages.check_in.header))

    async def post_all() -> list[tuple[int, bytes]]:
        answers: list[tuple[int, bytes]] = []
        for at in range(0, MUTANTS, AT_ONCE):
            group = [post(app.app, device, body, at + n) for n, body in enumerate(made[at : at + AT_ONCE])]
            answers += await asyncio.gather(*group)
        return answers

    answers, stored = app.thread.run(post_all()), 0
    for body, (status, said) in zip(made, answers, strict=True):
        content = json.loads(said)
        if status == 200:
            stored += 1
            assert is_check_in(live, body, newest=content["version"]), body
        else:
            assert status in (409, 413, 422) and set(content) == {"error"}, (status, said)
            assert set(content["error"]) >= {"code", "message"} and len(said) < 500
            # An honest check-in is refused only for its version, which no damage to the numbers explains.
            assert status == 409 or not is_check_in(live, body, newest=0), body
    assert MUTANTS / 10 < stored < MUTANTS * 0.9, "both kinds were tried"
    shown = app.show(task)
    assert shown["check_ins"] == shown["version"] == stored == device.me()["check_ins"]
    assert sum(row[1] == 2 for row in app.stored()["receipts"]) == stored
    assert app.failures == [] and device.check_in(device.body(0)).status_code == 200
