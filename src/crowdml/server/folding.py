"""Folding: what a batch of waiting check-ins does to a task. Pure: no clock, no network, no storage.

Each check-in is looked at in order: is its device still welcome, was it seen before, is it too old; then absorb, and
commit when the algorithm is ready. Where a commit always follows and the algorithm has a quick way through several
check-ins, that is taken after all have been looked at. The result is everything the store must write in one
transaction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from crowdml.algorithms import Counts
from crowdml.algorithms.counting import is_low
from crowdml.algorithms.live import LiveTask
from crowdml.core.ops import Tree
from crowdml.server.answers import Answer, Refusal
from crowdml.server.crowd import DeviceState
from crowdml.server.snapshot import DeviceTotals
from crowdml.server.store import Receipt

Known = Mapping[tuple[int, str], Receipt]


@dataclasses.dataclass(slots=True, kw_only=True)
class CheckIn:
    """A check-in that passed all tests that need no knowledge of other check-ins. Quick to make, so not frozen.

    Attributes:
        device: Who sent it.
        key: Its idempotency key.
        body: SHA-256 of its bytes.
        started: Version it started from.
        content: The decoded contribution.
    """

    device: DeviceState
    key: str
    body: bytes
    started: int
    content: Tree


@dataclasses.dataclass(kw_only=True)
class TaskState:
    """What changes while a task runs.

    Attributes:
        server: The algorithm's server state.
        rows: What the server keeps for each device, by slot.
        devices: What each device that may speak has contributed, by slot.
        version: Commits so far.
        check_ins: Check-ins folded in so far.
        received: Check-ins since the last commit.
        state: draft, open, paused or stopped.
        reason: Why it stopped.
        begun: Version at which the server was started: who was invited to it before is not known.
    """

    server: Tree
    rows: dict[int, Tree]
    devices: dict[int, DeviceTotals]
    version: int
    check_ins: int
    received: int
    state: str
    reason: str | None
    begun: int = 0

    def copy(self) -> TaskState:
        """Return one that stays as it is while this one changes; trees are never changed in place."""
        return dataclasses.replace(self, rows=dict(self.rows), devices=dict(self.devices))


@dataclasses.dataclass(kw_only=True)
class Folded:
    """What one batch did: answers in the order of its check-ins, new receipts, and slots whose row changed."""

    answers: list[Answer]
    receipts: list[Receipt]
    touched: set[int]


def fold(live: LiveTask, sheet: str, state: TaskState, batch: Sequence[CheckIn], known: Known) -> Folded:
    """Fold in a batch, one after another. `state` changes in place.

    Args:
        live: The task.
        sheet: Hash of its sheet, for receipts.
        state: The task's state.
        batch: Check-ins in the order in which they arrived.
        known: Receipts that the store has for their keys.
    """
    folded = Folded(answers=[], receipts=[], touched=set())
    seen = dict(known)
    quick = _has_quick_way(live)
    used: list[tuple[CheckIn, int]] = []
    for check_in in batch:
        place = (check_in.device.slot, check_in.key)
        try:
            earlier = seen.get(place)
            if earlier is not None:
                folded.answers.append(_again(live, sheet, check_in, earlier))
                continue
            staleness = _require(live, state, check_in)
        except Refusal as refusal:
            folded.answers.append(refusal.answer())
            continue
        if quick:
            used.append((check_in, staleness))
            _count(state, check_in)
            _advance(live, state)
        else:
            _absorb(live, state, check_in, staleness)
        receipt = _receipt(state, check_in)
        seen[place] = receipt
        folded.receipts.append(receipt)
        folded.touched.add(check_in.device.slot)
        folded.answers.append(receipt_answer(live.task.name, sheet, receipt))
    if used:
        _absorb_all(live, state, used)
    return folded


def _again(live: LiveTask, sheet: str, check_in: CheckIn, earlier: Receipt) -> Answer:
    if check_in.device.revoked:
        raise _revoked()
    if earlier.body != check_in.body:
        raise Refusal(422, "other-bytes", "other bytes came under this key before", hint="one key, one check-in")
    return receipt_answer(live.task.name, sheet, earlier, again=True)


def _require(live: LiveTask, state: TaskState, check_in: CheckIn) -> int:
    """Refuse what cannot be used; return how stale it is."""
    device = check_in.device
    if device.revoked:
        raise _revoked()
    require_open(state.state, state.reason)
    totals = state.devices[device.slot]
    staleness = state.version - check_in.started
    if staleness < 0 or check_in.started < 0:
        raise Refusal(409, "future-version", "no such version has been published", version=state.version)
    if not live.server.accepts(staleness):
        raise Refusal(409, "stale", f"{staleness} versions old: not used", version=state.version)
    if live.server.rounds and totals.last_version >= check_in.started:
        raise Refusal(409, "already-in-round", "this device has contributed to the round", version=state.version)
    if live.server.rounds and check_in.started > state.begun and device.invited != check_in.started:
        # Otherwise a few devices that are always the first could fill every round.
        raise Refusal(409, "not-invited", "this device was not asked for a contribution", version=state.version)
    limit = live.task.stop.max_releases
    if limit is not None and totals.check_ins >= limit:
        raise Refusal(409, "releases-spent", f"all {limit} releases of this device were made", version=state.version)
    return staleness


def require_open(state: str, reason: str | None) -> None:
    """Refuse unless the task takes check-ins now."""
    if state == "stopped":
        raise Refusal(410, "stopped", reason or "the task has ended")
    if state != "open":
        raise Refusal(503, state, f"the task is {state}", retry_after_s=5)


def _revoked() -> Refusal:
    return Refusal(401, "not-authorised", "the token is not valid")


def _has_quick_way(live: LiveTask) -> bool:
    """Tell whether check-ins may be absorbed after all were looked at: not where a step can end the task."""
    return live.server.succession is not None and live.task.stop.error_below is None


def _absorb(live: LiveTask, state: TaskState, check_in: CheckIn, staleness: int) -> None:
    algorithm, slot = live.server, check_in.device.slot
    row = state.rows.get(slot)
    state.server, state.rows[slot] = algorithm.absorb(
        state.server, algorithm.row_init() if row is None else row, check_in.content, np.int32(staleness)
    )
    _count(state, check_in)
    if algorithm.always_ready or algorithm.ready(Counts(received=state.received, version=state.version)):
        commit(live, state)


def commit(live: LiveTask, state: TaskState) -> None:
    """Make a version of what was absorbed."""
    state.server, _ = live.server.at(state.version).commit(state.server)
    _advance(live, state)


def _absorb_all(live: LiveTask, state: TaskState, used: list[tuple[CheckIn, int]]) -> None:
    assert live.server.succession is not None  # noqa: S101  `_has_quick_way` has said so
    state.server = live.server.succession(
        state.server,
        state.rows,
        [own.device.slot for own, _ in used],
        [own.content for own, _ in used],
        [staleness for _, staleness in used],
    )


def _count(state: TaskState, check_in: CheckIn) -> None:
    state.check_ins += 1
    state.received += 1
    count_device(state, check_in.device, check_in.started)


def count_device(state: TaskState, device: DeviceState, started: int) -> int:
    """Count one check-in of a device; return which of its check-ins it is."""
    number = state.devices[device.slot].check_ins + 1
    state.devices[device.slot] = DeviceTotals(device=device.id, check_ins=number, last_version=started)
    return number


def _advance(live: LiveTask, state: TaskState) -> None:
    """Go on to the next version, and stop where the task says so."""
    state.version += 1
    state.received = 0
    stop = live.task.stop
    if stop.max_versions is not None and state.version >= stop.max_versions:
        state.state, state.reason = "stopped", f"all {stop.max_versions} versions were made"
    if stop.error_below is not None and _is_low(live, state, stop.error_below, stop.error_rows):
        state.state, state.reason = "stopped", f"the error estimated over all check-ins fell to {stop.error_below:g}"


def _receipt(state: TaskState, check_in: CheckIn) -> Receipt:
    device = check_in.device
    return Receipt(
        device=device.id,
        slot=device.slot,
        key=check_in.key,
        body=check_in.body,
        number=state.devices[device.slot].check_ins,
        version=state.version,
        started=check_in.started,
        status="applied",
    )


def _is_low(live: LiveTask, state: TaskState, error: float, rows: int) -> bool:
    assert live.server.totals is not None  # noqa: S101  the task file was checked
    return bool(is_low(live.server.totals(state.server), error, rows))


def receipt_answer(task: str, sheet: str, receipt: Receipt, again: bool = False) -> Answer:
    """Make the answer that acknowledges a check-in. Task, key and sheet hold nothing that JSON would escape."""
    more = ',"again":true' if again else ""
    text = (
        f'{{"status":"{receipt.status}","task":"{task}","key":"{receipt.key}","number":{receipt.number},'
        f'"version":{receipt.version},"sheet":"{sheet}"{more}}}'
    )
    return Answer(status=200, body=text.encode())
