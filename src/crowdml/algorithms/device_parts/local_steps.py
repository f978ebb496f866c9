"""local_steps: a device moves its copy of the parameters by several steps and sends what has changed.

Crowd-ML library 2016, algorithm 1; fedavg. What a step takes, and what protects it inside, is the sanitiser's `walk`.

The rate may follow any of four counters: versions and check-ins are the server's and come with the check-out; contacts
and local steps are the device's. What a device remembers counts from its last check-in that was used. A rate that is
corrected by the number of updates in its memory counts those, whatever else it was to follow.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.algorithms.contract import DevicePart
from crowdml.algorithms.rates import Counter, Rate
from crowdml.core import Array, Batch, Broadcast, Coins, Ops, Release, Tree, record, tree_record
from crowdml.privacy.sanitisers import Sanitiser, Walk

SERVER_COUNTERS = ("versions", "check-ins")


@tree_record
class WalkState:
    """What a device remembers: contacts and steps where its rate counts them, and what its rate remembers."""

    contacts: Tree
    steps: Tree
    memory: Tree


@record
class LocalSteps(DevicePart):
    """Several steps, then one message.

    Attributes:
        walk: Takes the steps.
        sanitiser: Bounds what has changed.
        rate: The device's rate.
        counter: What the rate counts.
        zeros: `zeros()`: parameters, all zero.
        ops: Array operations.
        reset: Whether what the rate remembers begins anew with every check-out; otherwise it is kept.
    """

    walk: Walk
    sanitiser: Sanitiser
    rate: Rate
    counter: Counter
    zeros: Callable[[], Tree]
    ops: Ops
    reset: bool = False

    def init(self) -> WalkState:
        """Begin: only what the rate will ask for."""
        zero = self.ops.xp.int32(0)
        return WalkState(
            contacts=zero if self.counter == "device-contacts" else (),
            steps=zero if self._counts_steps else (),
            memory=() if self.reset else self.rate.init(self.zeros()),
        )

    def step(self, broadcast: Broadcast, work: WalkState, batch: Batch, coins: Coins) -> tuple[Release, WalkState]:
        """Take the steps, and bound the change."""
        change, after = self.walked(broadcast, work, batch, coins)
        release = Release(
            update=self.sanitiser.bound_message(change, coins),
            rows=batch.count(self.ops.xp),
            count=self._begin(broadcast, work) if self.sanitiser.wants_count else (),
        )
        return release, after

    def sent_later(self, work: Tree) -> Tree:
        """Return what is remembered, unless the steps had their noise before it was."""
        return () if self.sanitiser.noise_in_steps else work

    def walked(self, broadcast: Broadcast, work: WalkState, batch: Batch, coins: Coins) -> tuple[Tree, WalkState]:
        """Take the steps; return what has changed, not bounded yet, and what to remember."""
        begun = self.rate.init(self.zeros()) if self.reset else work.memory
        change, memory, taken = self.walk.take(broadcast.parameters, begun, self._begin(broadcast, work), batch, coins)
        after = WalkState(
            contacts=self._contacts(work),
            steps=work.steps + taken if self._counts_steps else (),
            memory=() if self.reset else memory,
        )
        return change, after

    @property
    def _counts_steps(self) -> bool:
        return self.counter == "local-steps" or (self.rate.counts_updates and not self.reset)

    def _contacts(self, work: WalkState) -> Tree:
        """Count this contact, where the rate counts them."""
        return work.contacts + self.ops.xp.int32(1) if self.counter == "device-contacts" else ()

    def _begin(self, broadcast: Broadcast, work: WalkState) -> Array:
        """Return the rate's counter at the first local step, from 1."""
        xp = self.ops.xp
        if self.rate.counts_updates:
            return xp.int32(1) if self.reset else work.steps + xp.int32(1)
        if self.counter in SERVER_COUNTERS:
            # Counts start at 1, or a server could make steps longer than any rate allows.
            return xp.maximum(broadcast.count, xp.int32(1))
        return self._contacts(work) if self.counter == "device-contacts" else work.steps + xp.int32(1)
