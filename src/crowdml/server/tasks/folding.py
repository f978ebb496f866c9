"""Folding: what check-ins do to a task, one by one or in a secure sum. Pure: no clock, no network, no storage.

Each check-in is looked at in order: is its device still welcome, was it seen before, is it too old; then absorb, and
commit when the algorithm is ready. Where a commit always follows and the algorithm has a quick way through several
check-ins, that is taken after all have been looked at. A secure sum is one absorb and one commit for all who are in it.
The result is everything the store must write in one transaction. Nothing else on the server changes a task's model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from crowdml.algorithms import Counts
from crowdml.algorithms.device_parts.gradient import is_low
from crowdml.core.ops import Tree
from crowdml.secure_aggregation import Sum
from crowdml.server.refusals import Answer, Refusal
from crowdml.server.store import Receipt
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.snapshot import DeviceTotals, TaskState
from crowdml.task.live_task import LiveTask

Known = Mapping[tuple[int, str], Receipt]

SPENT = ("stale", "already-in-round", "not-invited", "releases-spent", "stopped")
"""Why an honest release is refused for good: it was read, and is not used."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Upload:
    """What a receipt needs to know of a contribution; a masked vector itself is in the sum alone.

    Attributes:
        device: Who sent it.
        key: Its idempotency key.
        body: SHA-256 of its bytes.
        started: Version that the device began with.
    """

    device: DeviceState
    key: str
    body: bytes
    started: int


@dataclasses.dataclass(slots=True, kw_only=True)
class CheckIn(Upload):
    """A check-in that passed all tests that need no knowledge of other check-ins. Quick to make, so not frozen.

    Attributes:
        content: The decoded contribution.
    """

    content: Tree


@dataclasses.dataclass(kw_only=True)
class Folded:
    """What one batch did.

    Attributes:
        answers: In the order of its check-ins.
        receipts: New receipts.
        touched: Slots whose row changed.
        refused: Slot and key of what was refused for good, and is spent all the same.
    """

    answers: list[Answer]
    receipts: list[Receipt]
    touched: set[int]
    refused: list[tuple[int, str]]


def fold(live: LiveTask, task_hash: str, state: TaskState, batch: Sequence[CheckIn], known: Known) -> Folded:
    """Fold in a batch, one after another. `state` changes in place.

    Args:
        live: The task.
        task_hash: Hash of the signed task, for receipts.
        state: The task's state.
        batch: Check-ins in the order in which they arrived.
        known: Receipts that the store has for their keys.
    """
    folded = Folded(answers=[], receipts=[], touched=set(), refused=[])
    seen = dict(known)
    quick = _has_quick_way(live)
    used: list[tuple[CheckIn, int]] = []
    for check_in in batch:
        place = (check_in.device.slot, check_in.key)
        try:
            earlier = seen.get(place)
            if earlier is not None:
                folded.answers.append(_again(live, task_hash, check_in, earlier))
                continue
            staleness = _require(live, state, check_in)
        except Refusal as refusal:
            folded.answers.append(refusal.answer())
            if refusal.code in SPENT:
                folded.refused.append(place)
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
        folded.answers.append(receipt_answer(live.task.name, task_hash, receipt))
    if used:
        _absorb_all(live, state, used)
    return folded


def fold_sum(
    live: LiveTask, state: TaskState, version: int, found: Sum, uploads: Mapping[int, Upload]
) -> dict[int, Receipt]:
    """Fold in a secure sum; return the survivors' receipts, by slot. `state` changes in place.

    Args:
        live: The task.
        state: The task's state.
        version: Version that the sum is for.
        found: The sum.
        uploads: By slot, for everybody in the sum.
    """
    require_open(state.state, state.reason)
    if state.version != version or live.masked is None:
        raise Refusal(409, "stale", "another version was made meanwhile", version=state.version)
    if not state.devices.keys() >= set(found.survivors):
        raise Refusal(409, "left", "a device of this sum has left the task meanwhile", version=state.version)
    check_in = live.form(version).check_in(found.total, len(found.survivors))
    server, schedule = live.server.at(version).server, live.server.schedule
    stale = np.array([version - uploads[slot].started for slot in found.survivors], np.int32)
    ages = stale if schedule.waits else np.int32(0)
    state.server, _ = server.absorb(state.server, server.row(), check_in, ages)
    _commit(live, state)
    state.check_ins += len(found.survivors)
    for slot in found.survivors:
        _count_device(state, uploads[slot])
    return {slot: _receipt(state, uploads[slot]) for slot in found.survivors}


def _again(live: LiveTask, task_hash: str, check_in: CheckIn, earlier: Receipt) -> Answer:
    if check_in.device.revoked:
        raise _revoked()
    if earlier.body != check_in.body:
        raise Refusal(422, "other-bytes", "other bytes came under this key before", hint="one key, one check-in")
    return receipt_answer(live.task.name, task_hash, earlier, again=True)


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
    if not live.server.schedule.accepts(staleness):
        raise Refusal(409, "stale", f"{staleness} versions old: not used", version=state.version)
    if live.server.schedule.invites and totals.last_version >= check_in.started:
        raise Refusal(409, "already-in-round", "this device has contributed to the round", version=state.version)
    if live.server.schedule.invites and check_in.started > state.begun and device.invited != check_in.started:
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
    return live.server.hints.apply_batch is not None and live.task.stop.error_below is None


def _absorb(live: LiveTask, state: TaskState, check_in: CheckIn, staleness: int) -> None:
    server, schedule, slot = live.server.at(state.version).server, live.server.schedule, check_in.device.slot
    row = state.rows.get(slot)
    state.server, state.rows[slot] = server.absorb(
        state.server, server.row() if row is None else row, check_in.content, np.int32(staleness)
    )
    _count(state, check_in)
    if schedule.ready(Counts(received=state.received, version=state.version)):
        _commit(live, state)


def _commit(live: LiveTask, state: TaskState) -> None:
    """Make a version of what was absorbed."""
    state.server, _ = live.server.at(state.version).server.commit(state.server)
    _advance(live, state)


def _absorb_all(live: LiveTask, state: TaskState, used: list[tuple[CheckIn, int]]) -> None:
    apply_batch = live.server.hints.apply_batch
    assert apply_batch is not None  # noqa: S101  `_has_quick_way` has said so
    state.server = apply_batch(
        state.server,
        state.rows,
        [check_in.device.slot for check_in, _ in used],
        [check_in.content for check_in, _ in used],
        [staleness for _, staleness in used],
    )


def _count(state: TaskState, check_in: CheckIn) -> None:
    state.check_ins += 1
    state.received += 1
    _count_device(state, check_in)


def _count_device(state: TaskState, sent: Upload) -> None:
    device = sent.device
    number = state.devices[device.slot].check_ins + 1
    state.devices[device.slot] = DeviceTotals(device=device.id, check_ins=number, last_version=sent.started)


def _advance(live: LiveTask, state: TaskState) -> None:
    """Go on to the next version, and stop where the task says so."""
    state.version += 1
    state.received = 0
    stop = live.task.stop
    if stop.max_versions is not None and state.version >= stop.max_versions:
        state.state, state.reason = "stopped", f"all {stop.max_versions} versions were made"
    if stop.error_below is not None and _is_low(live, state, stop.error_below, stop.error_rows):
        state.state, state.reason = "stopped", f"the error estimated over all check-ins fell to {stop.error_below:g}"


def _receipt(state: TaskState, sent: Upload) -> Receipt:
    """Make the receipt of a check-in that was counted just now."""
    device = sent.device
    return Receipt(
        device=device.id,
        slot=device.slot,
        key=sent.key,
        body=sent.body,
        number=state.devices[device.slot].check_ins,
        version=state.version,
        started=sent.started,
        status="applied",
    )


def _is_low(live: LiveTask, state: TaskState, error: float, rows: int) -> bool:
    return bool(is_low(live.server.last.server.report(state.server).counts, error, rows))


def receipt_answer(task: str, task_hash: str, receipt: Receipt, again: bool = False) -> Answer:
    """Make the answer that acknowledges a check-in. Task, key and hash hold nothing that JSON would escape."""
    more = ',"again":true' if again else ""
    text = (
        f'{{"status":"{receipt.status}","task":"{task}","key":"{receipt.key}","number":{receipt.number},'
        f'"version":{receipt.version},"task_hash":"{task_hash}"{more}}}'
    )
    return Answer(status=200, body=text.encode())
