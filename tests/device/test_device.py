"""The loop of a device: what is stored before what is sent, and what becomes of every answer."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crowdml
from crowdml.core import BadInput, trees
from crowdml.core.errors import NotAuthorised
from crowdml.core.ops import ZeroCoins
from crowdml.device import DeviceCoins, Ledger
from crowdml.device.rows.batches import Gatherer

NONE = ("privacy={ mode = 'none' }",)
STEPS = (
    "algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 2, rate = { kind = 'inverse', c = 1.0, counter = "
    "'local-steps' } }",
    *NONE,
)


class Count:
    """Coins that count how often they are made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> DeviceCoins:
        self.made += 1
        return DeviceCoins()


def charged(place: Path) -> dict[str, str]:
    with Ledger(place / "ledger.sqlite") as ledger:
        return {entry["key"]: entry["body"] for entry in map(json.loads, ledger.entries()) if entry["kind"] == "charge"}


def test_a_device_learns_and_ends_when_its_rows_are_used_up(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    seen: list[Any] = []
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        summary = device.run(rows, watch=seen.append)
        assert (summary.releases, summary.used, summary.refused) == (6, 6, 0)
        assert "8 of 8 rows were used 3 times" in summary.reason
        assert summary.spent.epsilon <= 6.0 and seen[-1].epsilon == summary.spent.epsilon
        assert not device.ledger.unsettled()
    assert [outcome.number for outcome in seen] == [1, 2, 3, 4, 5, 6] and server.version == 6
    assert charged(place) == dict(server.sent), "every receipt has exactly one charge, with the same bytes"
    assert all(np.abs(leaf).max() > 0 for leaf in trees.leaves(server.server.parameters))


def test_without_noise_it_is_the_contract_to_the_bit(
    make_server: Any, join: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same batches through the same functions, by hand."""
    server = make_server(*STEPS)
    gathered, gather = list[Any](), Gatherer.gather

    def noted(gatherer: Gatherer) -> Any:
        gathered.append(gather(gatherer))
        return gathered[-1]

    monkeypatch.setattr(Gatherer, "gather", noted)
    with crowdml.Device(join(server), connect=server.connect) as device:
        device.run(rows, releases=5)
    phase = server.live.algorithm.last
    state, by_hand = phase.begin(), phase.server.init(ZeroCoins())
    for batch in (each.batch for each in gathered):
        check_in, state = phase.contribute(phase.server.check_out(by_hand), state, batch, ZeroCoins())
        by_hand, _ = phase.server.absorb(by_hand, phase.server.row(), check_in, np.int32(0))
        by_hand, _ = phase.server.commit(by_hand)
    assert len(gathered) == 5
    for one, other in zip(trees.leaves(by_hand.parameters), trees.leaves(server.server.parameters), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_charge_is_on_disk_before_the_first_byte_leaves(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    known: list[bool] = []
    place = join(server)
    real = server.check_in

    def check_in(token: str, request: httpx.Request) -> httpx.Response:
        copy = place.parent / f"copy-{len(known)}"
        shutil.copytree(place, copy)
        key = request.headers["idempotency-key"]
        known.append(charged(copy).get(key) == hashlib.sha256(request.content).hexdigest())
        with Ledger(copy / "ledger.sqlite") as ledger:
            assert [(unsettled.key, unsettled.body) for unsettled in ledger.unsettled()] == [(key, request.content)]
        response: httpx.Response = real(token, request)
        return response

    server.check_in = check_in
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=3)
    assert known == [True] * 3


def test_a_busy_server_gets_the_same_bytes_again(make_server: Any, join: Any, rows: Any, answers: Any) -> None:
    server, bodies = make_server(), []

    def busy(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        response: httpx.Response = answers.refusal(503, "busy", headers={"Retry-After": "3"})
        return response

    server.faults.extend([busy, answers.lost, busy])
    coins = Count()
    with crowdml.Device(join(server), connect=server.connect, coins=coins) as device:
        assert device.run(rows, releases=1).used == 1
        assert device.releases == coins.made == 1
    assert bodies[0] == bodies[1] and server.clock.slept == [3.5, 1.0, 5.0]


def test_an_answer_that_was_lost_is_asked_for_again(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()

    def apply_and_lose(request: httpx.Request) -> httpx.Response:
        server.check_in("token-0", request)
        raise httpx.ReadError("cut")

    server.faults.append(apply_and_lose)
    with crowdml.Device(join(server), connect=server.connect) as device:
        outcomes: list[Any] = []
        device.run(rows, releases=2, watch=outcomes.append)
        assert [outcome.number for outcome in outcomes] == [1, 2] and device.releases == 2
    assert server.version == 2 and server.sent[0] == server.sent[1]


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("arrived", [False, True])
def test_killed_between_charge_and_receipt(make_server: Any, join: Any, rows: Any, arrived: bool) -> None:
    """It goes on with the very same bytes: no second draw, no second charge, and the state that belongs to them."""
    server = make_server(*STEPS)
    place = join(server)

    def kill(request: httpx.Request) -> httpx.Response:
        if arrived:
            server.check_in("token-0", request)
        raise Killed

    coins = Count()
    with crowdml.Device(place, connect=server.connect, coins=coins) as device:
        device.run(rows, releases=1)
        server.faults.append(kill)
        with pytest.raises(Killed):
            device.run(rows)
        before = device.memory.state()
        expected = device.ledger.unsettled()[0]
    with crowdml.Device(place, connect=server.connect, coins=coins) as device:
        outcomes: list[Any] = []
        summary = device.run(rows, releases=1, watch=outcomes.append)
        assert outcomes[0].key == expected.key and summary.releases == 1 and summary.used == 2
        assert device.releases == coins.made == 3
        assert device.memory.state() != before
        assert device.sender.state().work.steps == 6, "two local steps for each release that was used"
    assert charged(place) == dict(server.sent) and server.version == 3


def test_a_stale_check_in_is_spent_and_changes_no_state(make_server: Any, join: Any, rows: Any, answers: Any) -> None:
    server = make_server(*STEPS)
    for code in ("stale", "future-version"):
        server.faults.append(lambda request, code=code: answers.refusal(409, code, version=7))
    outcomes: list[Any] = []
    with crowdml.Device(join(server), connect=server.connect) as device:
        summary = device.run(rows, releases=3, watch=outcomes.append)
        assert (summary.releases, summary.used, summary.refused) == (3, 1, 2)
        assert [(outcome.status, outcome.version) for outcome in outcomes] == [
            ("refused", 7),
            ("refused", 7),
            ("applied", 1),
        ]
        assert device.sender.state().work.steps == 2
        assert not device.ledger.unsettled() and device.releases == 3


def test_a_task_that_was_stopped_ends_the_run(make_server: Any, join: Any, rows: Any, answers: Any) -> None:
    server = make_server()
    server.faults.append(lambda request: answers.refusal(410, "closed"))
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        summary = device.run(rows)
        assert "closed" in summary.reason and summary.releases == 1 and not device.ledger.unsettled()
        server.state = "stopped"
        assert device.run(rows).releases == 0


def test_the_server_says_that_all_releases_are_made(make_server: Any, join: Any, rows: Any, answers: Any) -> None:
    server = make_server()
    server.faults.append(lambda request: answers.refusal(409, "releases-spent"))
    with crowdml.Device(join(server), connect=server.connect) as device:
        assert "releases-spent" in device.run(rows).reason and device.releases == 1


@pytest.mark.parametrize("status, code", [(422, "malformed"), (413, "too-large"), (415, "type"), (409, "unheard-of")])
def test_a_check_in_that_is_not_understood_is_spent_and_stops_the_device(
    status: int, code: str, make_server: Any, join: Any, rows: Any, answers: Any
) -> None:
    """Going on would burn the whole budget on messages that nobody reads."""
    server = make_server()
    server.faults.append(lambda request: answers.refusal(status, code))
    with crowdml.Device(join(server), connect=server.connect) as device:
        with pytest.raises(Exception, match=code):
            device.run(rows)
        assert device.releases == 1 and not device.ledger.unsettled()


@pytest.mark.parametrize("status, code", [(401, "not-authorised"), (404, "no-task"), (400, "host")])
def test_a_check_in_that_may_still_arrive_is_kept(
    status: int, code: str, make_server: Any, join: Any, rows: Any, answers: Any
) -> None:
    server = make_server()
    server.faults.append(lambda request: answers.refusal(status, code))
    with crowdml.Device(join(server), connect=server.connect) as device:
        with pytest.raises((NotAuthorised, BadInput), match=code):
            device.run(rows)
        assert len(device.ledger.unsettled()) == 1
        assert device.run(rows, releases=1).used == 2


def test_no_guarantee_is_recorded_all_the_same(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server(*NONE, "stop.max-releases=3")
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        summary = device.run(rows)
        assert summary.reason == "all 3 releases of this device are made" and math.isinf(summary.spent.epsilon)
    assert charged(place) == dict(server.sent) and len(server.sent) == 3


def test_a_device_in_rounds_waits_for_the_next_one(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server("algorithm={ kind = 'fedavg', per-round = 2, local-batch = 4 }", *NONE)
    with crowdml.Device(join(server), connect=server.connect) as device:
        device.run(rows, releases=1)
        assert server.version == 0
        real, polls = server.check_out, []

        def check_out(request: httpx.Request) -> httpx.Response:
            polls.append(request.headers.get("if-none-match"))
            if len(polls) == 3:
                server.version = 1  # another device has made the round full
            response: httpx.Response = real(request)
            return response

        server.check_out = check_out
        device.run(rows, releases=1)
        assert len(polls) == 3 and polls[1] == '"1-0"' and server.clock.slept == [0.5, 1.0]


def test_already_in_the_round(make_server: Any, join: Any, rows: Any, answers: Any) -> None:
    server = make_server("algorithm={ kind = 'fedsgd', per-round = 2 }", *NONE)

    def in_round(request: httpx.Request) -> httpx.Response:
        response: httpx.Response = answers.refusal(409, "already-in-round")
        return response

    server.faults.append(in_round)
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        server.version = 1 if "round is not over" in line else 0

    with crowdml.Device(join(server), connect=server.connect, tell=tell) as device:
        summary = device.run(rows, releases=2)
        assert (summary.used, summary.refused) == (1, 1) and "the round is not over" in told[-1]


def test_a_paused_task_is_asked_again_when_it_says(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    with crowdml.Device(join(server), connect=server.connect) as device:
        server.state = "paused"
        assert device.run(rows, releases=1).used == 1
    assert server.clock.slept == [7.5]


def test_a_stream_ends(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    with crowdml.Device(join(server), connect=server.connect) as device:
        summary = device.run(iter([*rows, *rows]))
        assert summary.releases == 4 and summary.reason == "the rows have ended"
        assert device.ledger.spent("walk").epsilon == pytest.approx(4.0, rel=1e-3), "each row was used twice"
        buffer = device.buffer()
        assert buffer.size == 6
        for row, label in rows[:5]:
            buffer.put(row, label)
        buffer.close()
        assert device.run(buffer).releases == 1


def test_only_one_process_runs_a_device(make_server: Any, join: Any) -> None:
    server = make_server()
    place = join(server)
    with crowdml.Device(place, connect=server.connect), pytest.raises(BadInput, match="another process"):
        crowdml.Device(place, connect=server.connect)
    crowdml.Device(place, connect=server.connect).close()


NUMBERS = itertools.count()
FAULTS = ("pass", "busy", "lost before", "lost after", "stale", "killed before", "killed after")


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from(FAULTS), max_size=12))
def test_whatever_happens_every_release_is_charged_once_and_drawn_once(
    kinds: list[str], make_server: Any, join: Any, rows: Any, answers: Any
) -> None:
    server = make_server(*STEPS, "stop.max-releases=40")
    place = join(server, f"home-{next(NUMBERS)}")
    bodies: dict[str, set[bytes]] = {}
    stale = 0

    def fault(kind: str, request: httpx.Request) -> httpx.Response | None:
        nonlocal stale
        key = request.headers["idempotency-key"]
        bodies.setdefault(key, set()).add(request.content)
        if kind.endswith("after"):
            server.check_in("token-0", request)
        if kind == "busy":
            response: httpx.Response = answers.refusal(503, "busy")
            return response
        if kind == "stale" and ("token-0", key) not in server.receipts:
            stale += 1
            refused: httpx.Response = answers.refusal(409, "stale")
            return refused
        if kind.startswith("lost"):
            raise httpx.ReadError("cut")
        if kind.startswith("killed"):
            raise Killed
        return None

    server.faults.extend(functools.partial(fault, kind) for kind in kinds)
    coins, done = Count(), False
    while not done:
        with crowdml.Device(place, connect=server.connect, coins=coins) as device:
            try:
                device.run(rows, releases=2)
                done = not server.faults
            except Killed:
                pass
            steps = device.sender.state().work.steps
    assert all(len(sent) == 1 for sent in bodies.values()), "the same key never carries other bytes"
    found = charged(place)
    receipts = {key: body for (_, key), (body, _) in server.receipts.items()}
    assert len(found) == coins.made, "noise is drawn once per charge"
    assert receipts.items() <= found.items() and len(found) == len(receipts) + stale
    assert server.version == len(receipts) and steps == 2 * len(receipts)
