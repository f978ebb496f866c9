"""Folding in a sum: one absorb and one commit for all survivors, a receipt for each, one transaction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from crowdml.core import record
from crowdml.protocol.sums import Sum
from crowdml.server.answers import Answer, Refusal
from crowdml.server.crowd import DeviceState
from crowdml.server.folding import TaskState, commit, count_device, require_open
from crowdml.server.mutable_task import MutableTask
from crowdml.server.store import Receipt, Store

DONE = Answer(status=204)


@record
class Upload:
    """What a receipt needs to know of a masked vector.

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


def fold_sum(
    running: MutableTask, store: Store, version: int, found: Sum, uploads: Mapping[int, Upload]
) -> dict[int, Receipt]:
    """Fold in a sum and store it; return the survivors' receipts. Runs in the task's writer.

    Args:
        running: The task.
        store: Where it is kept.
        version: Version that the sum is for.
        found: The sum.
        uploads: By slot, for everybody in the sum.
    """
    live, state = running.live, running.state
    require_open(state.state, state.reason)
    if state.version != version or live.masked is None:
        raise Refusal(409, "stale", "another version was made meanwhile", version=state.version)
    check_in = live.form(version).check_in(found.total, len(found.survivors))
    before, now = running.mark(), live.server.at(version)
    stale = np.array([version - uploads[slot].started for slot in found.survivors], np.int32)
    state.server, _ = now.absorb(state.server, now.row_init(), check_in, stale if now.barrier else np.int32(0))
    commit(live, state)
    state.check_ins += len(found.survivors)
    receipts = {slot: _receipt(uploads[slot], state) for slot in found.survivors}
    store.apply(running.since(before, list(receipts.values())))
    running.settle()
    return receipts


def _receipt(upload: Upload, state: TaskState) -> Receipt:
    device = upload.device
    return Receipt(
        device=device.id,
        slot=device.slot,
        key=upload.key,
        body=upload.body,
        number=count_device(state, device, upload.started),
        version=state.version,
        started=upload.started,
        status="applied",
    )


def pause(task: MutableTask, store: Store, version: int, reason: str) -> Answer:
    """Pause a task whose sum cannot be made, unless it has moved on. Runs in the task's writer."""
    state = task.state
    if state.state == "open" and state.version == version:
        store.set_state(task.running.id, "paused", reason)
        state.state, state.reason = "paused", reason
        task.settle()
    return DONE
