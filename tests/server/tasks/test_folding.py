"""Folding: what a batch of check-ins does to a task, without a network or a store."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.core import Tally, trees
from crowdml.core.ops import ZeroCoins
from crowdml.server.refusals import Answer
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.folding import CheckIn, Folded, fold
from crowdml.server.tasks.snapshot import DeviceTotals, TaskState
from crowdml.task.live_task import LiveTask
from crowdml.wire.messages import check_in_key

ROUNDS = ("algorithm={ kind = 'fedsgd', per-round = 2 }",)
WINDOW = ("algorithm={ kind = 'local-sgd', local-steps = 1, local-batch = 2, server-batch = 3, stale = 'accept' }",)


class Bench:
    """A task and its state."""

    def __init__(self, live: LiveTask, make_body: Callable[..., bytes]) -> None:
        self.live, self._make_body, self._seed = live, make_body, 0
        server = live.server.last.server.init(ZeroCoins())
        self.state = TaskState(
            server=server, rows={}, devices={}, version=0, check_ins=0, received=0, state="open", reason=None
        )
        self.known: dict[tuple[int, str], Any] = {}

    def device(self, slot: int = 0) -> DeviceState:
        self.state.devices[slot] = DeviceTotals(device=f"device-{slot}")
        return DeviceState(id=f"device-{slot}", task="walk", slot=slot, token_hash=b"", revoked=False)

    def check_in(self, device: DeviceState, started: int | None = None, key: str | None = None) -> CheckIn:
        self._seed += 1
        version = self.state.version if started is None else started
        body = self._make_body(self.live, version, self._seed)
        message = self.live.server_messages.check_in.decode(body)
        digest = hashlib.sha256(body).digest()
        return CheckIn(
            device=device, key=key or check_in_key(version), body=digest, started=version, content=message["content"]
        )

    def fold(self, *batch: CheckIn) -> Folded:
        folded = fold(self.live, "the-hash", self.state, batch, self.known)
        self.known |= {(receipt.slot, receipt.key): receipt for receipt in folded.receipts}
        return folded

    def snapshot(self) -> Any:
        return copy.deepcopy(self.state), [leaf.copy() for leaf in map(np.asarray, trees.leaves(self.state.server))]


@pytest.fixture
def bench(make_live: Any, make_body: Any) -> Callable[..., Bench]:
    return lambda *changes: Bench(make_live(*changes), make_body)


def said(answer: Answer) -> dict[str, Any]:
    content = json.loads(answer.body)
    return {"http": answer.status, **content.get("error", content)}


def codes(folded: Folded) -> list[Any]:
    return [said(answer).get("code", said(answer).get("status")) for answer in folded.answers]


def test_a_check_in_is_absorbed_committed_and_acknowledged(bench: Any) -> None:
    scene = bench()
    device, before = scene.device(), scene.snapshot()[1]
    folded = scene.fold(scene.check_in(device, key="key-number-1"))
    receipt = {
        "status": "applied",
        "task": "walk",
        "key": "key-number-1",
        "number": 1,
        "version": 1,
        "task_hash": "the-hash",
    }
    assert said(folded.answers[0]) == receipt | {"http": 200}
    assert (scene.state.version, scene.state.check_ins, scene.state.received) == (1, 1, 0)
    assert scene.state.devices[0] == DeviceTotals(device=device.id, check_ins=1, last_version=0)
    assert folded.touched == {0}
    assert any(not np.array_equal(a, b) for a, b in zip(before, scene.snapshot()[1], strict=True))


def test_a_batch_is_the_same_as_one_after_another(bench: Any) -> None:
    together, apart = bench(), bench()
    devices = [together.device(slot) for slot in range(3)]
    batch = [together.check_in(device, 0) for device in devices * 4]
    folded = together.fold(*batch)
    others = {slot: apart.device(slot) for slot in range(3)}
    for check_in in batch:
        moved = CheckIn(
            device=others[check_in.device.slot],
            key=check_in.key,
            body=check_in.body,
            started=0,
            content=check_in.content,
        )
        apart.fold(moved)
    assert [said(answer)["version"] for answer in folded.answers] == list(range(1, 13))
    assert [receipt.number for receipt in folded.receipts] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert all(np.array_equal(a, b) for a, b in zip(together.snapshot()[1], apart.snapshot()[1], strict=True))


def test_the_same_key_and_bytes_are_acknowledged_again_and_not_absorbed(bench: Any) -> None:
    scene = bench()
    check_in = scene.check_in(scene.device())
    first = scene.fold(check_in)
    before = scene.snapshot()
    again = scene.fold(check_in, check_in)
    assert [said(answer) for answer in again.answers] == [said(first.answers[0]) | {"again": True}] * 2
    assert again.receipts == [] and again.touched == set()
    assert all(np.array_equal(a, b) for a, b in zip(before[1], scene.snapshot()[1], strict=True))


def test_a_key_that_comes_twice_in_one_batch_is_absorbed_once(bench: Any) -> None:
    scene = bench()
    check_in = scene.check_in(scene.device())
    folded = scene.fold(check_in, check_in)
    assert ["again" in said(answer) for answer in folded.answers] == [False, True]
    assert len(folded.receipts) == 1 and scene.state.check_ins == 1


def test_other_bytes_under_a_key_are_refused(bench: Any) -> None:
    scene = bench()
    device = scene.device()
    folded = scene.fold(scene.check_in(device, key="key-number-1"), scene.check_in(device, key="key-number-1"))
    assert codes(folded) == ["applied", "other-bytes"] and said(folded.answers[1])["http"] == 422
    assert codes(scene.fold(scene.check_in(device, key="key-number-1"))) == ["other-bytes"]
    assert scene.state.check_ins == 1


@pytest.mark.parametrize(
    ("started", "code"), [(1, "future-version"), (2**62, "future-version"), (-1, "future-version")]
)
def test_versions_that_never_were_are_refused(bench: Any, started: int, code: str) -> None:
    scene = bench()
    folded = scene.fold(scene.check_in(scene.device(), started))
    assert codes(folded) == [code] and said(folded.answers[0])["version"] == 0 and scene.state.check_ins == 0


def test_what_is_too_stale_is_refused_with_the_present_version(bench: Any) -> None:
    scene = bench("algorithm.max-staleness=1")
    device = scene.device()
    batch = [scene.check_in(device, 0) for _ in range(4)]
    folded = scene.fold(*batch)
    assert codes(folded) == ["applied", "applied", "stale", "stale"]
    assert said(folded.answers[2])["version"] == 2 and said(folded.answers[2])["http"] == 409
    assert scene.state.devices[device.slot].check_ins == 2, "what is not used is not counted by the server"


def test_a_device_contributes_once_to_a_round(bench: Any) -> None:
    scene = bench(*ROUNDS)
    first, second = scene.device(0), scene.device(1)
    batch = [scene.check_in(first), scene.check_in(first), scene.check_in(second), scene.check_in(second)]
    folded = scene.fold(*batch)
    assert codes(folded) == ["applied", "already-in-round", "applied", "stale"]
    assert (scene.state.version, scene.state.check_ins, scene.state.received) == (1, 2, 0)
    first.invited = second.invited = 1
    assert codes(scene.fold(scene.check_in(first), scene.check_in(second))) == ["applied", "applied"]


def test_only_devices_that_were_invited_contribute_to_a_round(bench: Any) -> None:
    scene = bench(*ROUNDS)
    devices = [scene.device(slot) for slot in range(4)]
    assert codes(scene.fold(*(scene.check_in(device) for device in devices[:2]))) == ["applied", "applied"]
    devices[2].invited = 1
    batch = [scene.check_in(device) for device in devices]
    assert codes(scene.fold(*batch)) == ["not-invited", "not-invited", "applied", "not-invited"]
    assert (scene.state.version, scene.state.received) == (1, 1)


def test_a_server_that_was_started_anew_does_not_know_whom_it_had_invited(bench: Any) -> None:
    scene = bench(*ROUNDS)
    scene.state.version = scene.state.begun = 5
    assert codes(scene.fold(scene.check_in(scene.device()), scene.check_in(scene.device(1)))) == ["applied", "applied"]


def test_a_device_makes_so_many_releases_and_no_more(bench: Any) -> None:
    scene = bench("stop.max-releases=2")
    device = scene.device()
    assert codes(scene.fold(*(scene.check_in(device, 0) for _ in range(3)))) == ["applied", "applied", "releases-spent"]
    assert codes(scene.fold(scene.check_in(scene.device(1)))) == ["applied"], "others go on"


def test_a_revoked_device_is_refused_even_its_receipt(bench: Any) -> None:
    scene = bench()
    device = scene.device()
    known = scene.check_in(device)
    scene.fold(known)
    device.revoked = True
    folded = scene.fold(known, scene.check_in(device))
    assert [said(answer)["http"] for answer in folded.answers] == [401, 401] and scene.state.check_ins == 1


def test_a_window_fills_before_a_version_is_made(bench: Any) -> None:
    scene = bench(*WINDOW)
    device = scene.device()
    folded = scene.fold(*(scene.check_in(device, 0) for _ in range(4)))
    assert [said(answer)["version"] for answer in folded.answers] == [0, 0, 1, 1]
    assert (scene.state.version, scene.state.check_ins, scene.state.received) == (1, 4, 1)


def test_a_refused_check_in_does_not_fill_the_window(bench: Any) -> None:
    """The library's paper counts it in s_s; here a version is a mean of three that were used, whoever was refused."""
    scene = bench(
        "algorithm={ kind = 'local-sgd', local-steps = 1, local-batch = 2, server-batch = 3, stale = 'drop' }"
    )
    device = scene.device()
    scene.fold(*(scene.check_in(device, 0) for _ in range(3)))
    folded = scene.fold(*(scene.check_in(device, started) for started in (1, 0, 0, 1, 0)))
    assert codes(folded) == ["applied", "stale", "stale", "applied", "stale"]
    assert (scene.state.version, scene.state.received) == (1, 2)
    scene.fold(scene.check_in(device, 1))
    assert (scene.state.version, scene.state.received) == (2, 0)


def test_a_task_stops_after_its_last_version_and_the_rest_of_the_batch_is_refused(bench: Any) -> None:
    scene = bench("stop.max-versions=2")
    folded = scene.fold(*(scene.check_in(scene.device(slot), 0) for slot in range(4)))
    assert codes(folded) == ["applied", "applied", "stopped", "stopped"]
    assert said(folded.answers[2])["http"] == 410
    assert scene.state.state == "stopped" and scene.state.reason == "all 2 versions were made"


@pytest.mark.parametrize(("rows", "stops"), [(8, True), (9, False)])
def test_a_task_stops_when_its_estimated_error_is_low_and_enough_rows_were_counted(
    bench: Any, rows: int, stops: bool
) -> None:
    scene = bench("stop.error-below=0.5", f"stop.error-rows={rows}")
    device = scene.device()
    for _ in range(2):
        check_in = scene.check_in(device, 0)
        four = np.int32(4)
        counts = Tally(rows=four, counted=four, errors=np.int32(2), spread=np.array([2, 2], np.int32))
        content = replace(check_in.content, counts=counts)
        scene.fold(CheckIn(device=device, key=check_in.key, body=check_in.body, started=0, content=content))
    assert (scene.state.state == "stopped") == stops


@pytest.mark.parametrize(("state", "status"), [("draft", 503), ("paused", 503), ("stopped", 410)])
def test_a_task_that_is_not_open_takes_nothing_but_acknowledges_what_it_has(
    bench: Any, state: str, status: int
) -> None:
    scene = bench()
    device = scene.device()
    known = scene.check_in(device)
    scene.fold(known)
    scene.state.state = state
    folded = scene.fold(known, scene.check_in(device))
    assert [answer.status for answer in folded.answers] == [200, status] and scene.state.check_ins == 1
    assert any(name == b"retry-after" for name, _ in folded.answers[1].headers) == (status == 503)


def test_the_state_after_a_batch_survives_its_encoding(bench: Any) -> None:
    for changes in ((), WINDOW, ROUNDS):
        scene = bench(*changes)
        scene.fold(*(scene.check_in(scene.device(slot), 0) for slot in range(2)))
        read = scene.live.state.decode(scene.live.state.encode(scene.state.server))
        assert all(
            np.array_equal(a, b) for a, b in zip(trees.leaves(read), trees.leaves(scene.state.server), strict=True)
        )
