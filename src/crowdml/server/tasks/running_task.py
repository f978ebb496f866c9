"""A running task as everybody sees it: what never changes, who may speak, and the settled snapshot.

Its state belongs to the writer, which keeps it in a `MutableTask` and lends that to whatever it runs. Nothing leads
from here to there.

In rounds, whom a version is made of is a choice by a keyed hash of version and slot, so a restarted server chooses the
same devices without having stored anything. Devices that stay silent are made up for: after each span of patience as
many more are invited as are missing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.core import NUMPY, CheckIn, trees
from crowdml.core.ops import Tree
from crowdml.server.store import StoredError, StoredTask
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.new_task import read_public_set
from crowdml.server.tasks.snapshot import DeviceTotals, Published, Snapshot
from crowdml.slicing.live.slice_terms import SliceTerms
from crowdml.task.live_task import LiveTask, open_task
from crowdml.task.owners import owner_promise
from crowdml.task.recent_error import count_noise_variance
from crowdml.wire import SignedTask

SMALL = 16 << 10
"""Bytes of a check-in up to which it is cheaper to look at many together."""

Choose = Callable[[int, Sequence[int]], list[int]]
"""`choose(version, slots)`: the slots in the order in which they are invited."""


def by_hash(secret: bytes) -> Choose:
    """Order slots by a hash that only the server can compute."""

    def rank(version: int, slot: int) -> bytes:
        return hashlib.blake2b(f"{version}/{slot}".encode(), key=secret, digest_size=8).digest()

    return lambda version, slots: sorted(slots, key=lambda slot: rank(version, slot))


class Invited:
    """Keeps who is invited to the present version.

    Args:
        per_round: Devices a round needs.
        patience_s: Seconds after which missing devices are made up for.
        choose: Orders the slots.
        clock: Monotonic seconds.
    """

    def __init__(
        self, per_round: int, patience_s: float, choose: Choose, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_round, self._patience_s, self._choose, self._clock = per_round, patience_s, choose, clock
        self._version, self._since, self._slots, self._crowd = -1, 0.0, frozenset[int](), -1
        self._more = 0

    def includes(self, slot: int, version: int, received: int, active: Iterable[int], crowd: int) -> bool:
        """Tell whether a device is in the round of this version.

        Args:
            slot: The device.
            version: The present version.
            received: Check-ins that the round has already.
            active: Slots of all devices that may speak; looked at only when something changed.
            crowd: A number that changes whenever `active` does.
        """
        now = self._clock()
        if version != self._version:
            self._version, self._since, self._more, self._slots, self._crowd = version, now, 0, frozenset(), -1
        elif now - self._since > self._patience_s:
            self._since = now
            self._more += max(0, self._per_round - received)
            self._crowd = -1
        if crowd != self._crowd:
            self._crowd = crowd
            wanted = self._per_round + self._more
            # Whoever was invited once stays invited: it may be at work already.
            fresh = [other for other in self._choose(version, sorted(active)) if other not in self._slots]
            self._slots |= frozenset(fresh[: max(0, wanted - len(self._slots))])
        return slot in self._slots


class RunningTask:
    """What the server shows of one task.

    Args:
        stored: The task as the store has it.
        choose: Orders slots for rounds.
        patience_s: Seconds until a round makes up for silent devices.
        clock: Monotonic seconds.

    Attributes:
        devices: Every device that may speak, by slot; what it has contributed is in the snapshot.
        noise_variance: Of the error count of one check-in.
        looks_together: Whether the numbers of a whole batch are looked at together, by the writer; else those of each
            check-in as it comes.
        validated: Errors of published models on the operator's public rows, by version.
        validation_rows: How many rows those are; 0 where there are none.
        crowd_changed: Called with the slot of every device that came or went; from whichever thread.
        shown: A number that changes with everything that is shown. Whoever keeps what it has written asks for this
            number first, and then for the snapshot.
    """

    def __init__(
        self, stored: StoredTask, *, choose: Choose, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Open the signed task; there is no snapshot before the writer has published one."""
        self.id, self.name, self.file = stored.id, stored.name, stored.file
        self.signed = SignedTask(text=stored.signed_text, signature=stored.signature, key=stored.key)
        self.task_hash = self.signed.hash
        document = self.signed.open()
        self.incarnation = document.incarnation
        self.live: LiveTask = open_task(document, read_public_set(document, stored.public))
        algorithm = self.live.server
        # A server does not know which ε an owner has chosen, so it allows for the most noise.
        self._noisiest = self.live.plan.noisiest.last.bind(algorithm.last.sanitiser.use)
        self.looks_together = self.live.server_messages.check_in.size_bytes <= SMALL
        self.devices: dict[int, DeviceState] = {}
        self.noise_variance = count_noise_variance(self.live.plan)
        self.promise = owner_promise(self.live.task, self.live.plan)
        cohort = algorithm.schedule.cohort
        self._invited = Invited(cohort, patience_s, choose, clock) if algorithm.schedule.invites else None
        self._snapshot: Snapshot | None = None
        self.validated: tuple[StoredError, ...] = ()
        self.validation_rows, self.shown = 0, 0
        self.crowd_changed: Callable[[int], None] = lambda slot: None
        self._moved: list[Callable[[], object]] = []

    @property
    def sliced_terms(self) -> SliceTerms:
        """What groups of this task agree on, whose members hold pieces of one net."""
        if self.live.sliced is None:
            raise ValueError("devices of this task hold no pieces of a net")
        return replace(self.live.sliced, task_hash=self.task_hash)

    @property
    def snapshot(self) -> Snapshot:
        """How the task stands in the store. To show several things that belong together, ask for it once."""
        assert self._snapshot is not None  # noqa: S101  published before anybody is given the task
        return self._snapshot

    def publish(self, snapshot: Snapshot) -> None:
        """Let everybody see what is stored now. For the writer alone."""
        before, self._snapshot = self._snapshot, snapshot
        self.shown += 1
        if before is not None and before.state != snapshot.state:
            for tell in self._moved:
                tell()

    def when_moved(self, tell: Callable[[], object]) -> None:
        """Have a function called whenever the task is in another state; it may be called from any thread."""
        self._moved.append(tell)

    def show_validated(self, errors: Iterable[StoredError], rows: int) -> None:
        """Let everybody see errors on the operator's public rows."""
        self.validated, self.validation_rows = tuple(errors), rows
        self.shown += 1

    def parameters(self, published: Published) -> Tree:
        """Return the parameters of a version as the model has them, in arrays with names."""
        found = published.parameters
        return trees.cut(found, self.live.task.model_for(NUMPY).zeros()) if isinstance(found, np.ndarray) else found

    def problems(self, contents: Sequence[CheckIn]) -> list[str | None]:
        """Say of each why no honest device sends it; None where one might."""
        return self._noisiest.problems(contents, self.live.server.schedule.most_rows)

    def totals(self, device: DeviceState) -> DeviceTotals:
        """Return what is stored of a device's contributions."""
        return self.snapshot.devices.get(device.slot) or DeviceTotals(device=device.id)

    def in_round(self, device: DeviceState) -> bool:
        """Tell whether a device is asked for its contribution now."""
        if self._invited is None:
            return True
        now = self.snapshot
        totals = now.devices.get(device.slot)
        if totals is None or totals.last_version >= now.version:
            return False
        return self._invited.includes(device.slot, now.version, now.received, now.devices, now.crowd)

    def summary(self, snapshot: Snapshot | None = None) -> dict[str, Any]:
        """Say how the task stands, now or in a given snapshot; nothing in it is private."""
        now = snapshot or self.snapshot
        return {
            "task": self.name,
            "objective": self.live.task.objective,
            "state": now.state,
            "reason": now.reason,
            "version": now.version,
            "check_ins": now.check_ins,
            "devices": len(now.devices),
            "estimated_error": now.estimated_error,
            "recent_error": vars(now.recent_error) if now.recent_error else None,
            "rows": now.rows,
            "averaging": now.averaging,
            "validation_error": next(
                (point.error for point in self.validated[::-1] if point.version <= now.version), None
            ),
        }

    def describe(self) -> dict[str, Any]:
        """Say everything public about the task."""
        return self.summary() | self.envelope()

    def envelope(self) -> dict[str, Any]:
        """Say what was signed; it never changes."""
        return {
            "incarnation": self.incarnation,
            "task_hash": self.task_hash,
            "odds": self.promise.in_odds,
            "promise": self.promise.in_epsilon,
            "rests_on": self.promise.rests_on,
            "signed_task": self.signed.to_json(),
        }
