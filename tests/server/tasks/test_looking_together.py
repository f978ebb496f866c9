"""Check-ins that are looked at together: exactly the dishonest are refused, in the words that each would get alone."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.core import CheckIn
from crowdml.core.errors import MalformedMessage
from crowdml.wire import message
from tests.server.http.test_direct import answers, written
from tests.server.http.test_direct_attacks import await_waiting, hold
from tests.support.on_socket import OnSocket

PRIVACY = "privacy={{ mode = 'sound', epsilon = 6.0, max-uses = 3, statistics-epsilon = {}, clip = 1.0{} }}"
GAUSSIAN = ", mechanism = 'gaussian', delta = 1e-5"
KINDS = {
    "none": (),
    "with counts": (PRIVACY.format(0.6, ""),),
    "laplace": (PRIVACY.format(0.0, ""),),
    "gaussian": (PRIVACY.format(0.0, GAUSSIAN),),
}
STOP = ("stop={ max-releases = 50 }", "crowd={ passes = 3 }")


def changes(kind: str) -> tuple[str, ...]:
    return (*KINDS[kind], *STOP) if KINDS[kind] else ()


@pytest.mark.parametrize("kind", list(KINDS))
def test_any_bytes_are_judged_together_as_alone_and_nothing_is_raised(make_live: Any, kind: str) -> None:
    """A server ends where its writer fails, so no body of the right layout may raise anything, nor warn."""
    live = make_live(*changes(kind))
    layout, most_rows = live.server_messages.check_in, live.server.schedule.most_rows
    sanitiser = live.plan.noisiest.last.bind(live.server.last.sanitiser.use)
    draws = np.random.default_rng(5)
    size = layout.size_bytes - len(layout.header)
    words = [np.frombuffer(word, np.uint8) for word in (b"\0\0\0\0", b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"\xff" * 4)]
    fine = refused = 0
    for _ in range(60):
        batch: list[CheckIn] = []
        while len(batch) < 8:
            scale = int(10 ** draws.uniform(0, 9.3))
            raw = draws.integers(-scale, scale + 1, size // 4 + 1).astype("<i4").view(np.uint8)[:size]
            if draws.random() < 0.4:
                raw = np.resize(words[draws.integers(len(words))], size)
            with contextlib.suppress(MalformedMessage):
                content = layout.decode(layout.header + raw.tobytes())["content"]
                if draws.random() < 0.7:
                    content = replace(content, weight=np.int32(draws.choice([1, 1, 0, most_rows, most_rows + 1, -1])))
                batch.append(content)
        alone = [sanitiser.problem(content, most_rows) for content in batch]
        assert sanitiser.problems(batch, most_rows) == alone
        fine, refused = fine + alone.count(None), refused + len(batch) - alone.count(None)
    assert fine > 20 and refused > 100


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_one_unit_beyond_a_limit_is_refused_among_honest_ones_and_one_unit_within_is_not(
    make_app: Any, make_gate: Any, kind: str
) -> None:
    """Through the socket; nothing travels beside the update and its weight, so a batch is looked at as one matrix."""
    app = make_app(kind=OnSocket)
    app.create(*changes(kind))
    running = app.app._coordinator.tasks["walk"]
    layout, limit = running.live.server_messages.check_in, running._noisiest.limits.update
    example = layout.example["content"]
    assert running.looks_together and isinstance(example.update, np.ndarray) and not example.counts
    size, most, longest = example.update.size, limit.most(1), limit.norm + limit.norm_each
    power = (lambda value: value) if limit.order == 1 else np.square
    within = np.full(size, int(longest // size if limit.order == 1 else longest // np.sqrt(size)))
    while power(within.astype(float)).sum() <= longest**limit.order:
        longer, within = within.copy(), within + (np.arange(size) == size - 1)
    within, beyond = longer, within  # the longest that is allowed, and one unit more

    def encoded(update: Any, weight: int = 1) -> bytes:
        content = CheckIn(update=np.asarray(update).astype(example.update.dtype), weight=np.int32(weight))
        made: bytes = layout.encode(message(0, content))
        return made

    one = np.arange(size) == 1
    cases = [
        (encoded(one * 3), True),
        (encoded(within), True),
        (encoded(-beyond), False),
        (encoded(one * -most), True),
        (encoded(one * (most + 1)), False),
        (encoded(one * -(2**31)), False),
        (encoded(one, 0), True),
        (encoded(one, -1), False),
        (encoded(one, 2**31 - 1), False),
        (encoded(one * 5), True),
    ]
    devices = [app.device() for _ in cases]
    with contextlib.ExitStack() as stack:
        gate, first = hold(app, make_gate, stack)
        links = [stack.enter_context(app.connect()) for _ in cases]
        for number, (link, device, (body, _)) in enumerate(zip(links, devices, cases, strict=True)):
            link.sendall(written(device, body))
            await_waiting(app, number + 1)
        gate.open.set()
        assert answers(first)[0][0] == 200
        found = [answers(link)[0] for link in links]
    assert [status == 200 for status, _, _ in found] == [good for _, good in cases]
    for (body, good), (_, _, said) in zip(cases, found, strict=True):
        problem = running._noisiest.problem(layout.decode(body)["content"], running.live.server.schedule.most_rows)
        assert (problem is None) == good and (good or problem.encode() in said)
    assert [device.me()["check_ins"] for device in devices] == [int(good) for _, good in cases]
    assert app.show()["check_ins"] == 1 + sum(good for _, good in cases)
