"""personal: beside what it sends, a device keeps a model of its own, held near the common one (Ditto).

After each of its contacts it takes as many steps on its own model v, along the gradient plus λ(v - w), where w is the
common model that it checked out. Nothing of v is sent: it costs no privacy, and has no noise but what w has.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.algorithms.contract import DevicePart
from crowdml.core import Array, Batch, Broadcast, Coins, Ops, Release, Tree, record, tree_record, trees
from crowdml.privacy.sanitisers import Objective
from crowdml.privacy.sanitisers.local_work import mean_weights
from crowdml.privacy.sanitisers.walks import cut_batch


@tree_record
class PersonalState:
    """What the device remembers of what it sends, its own model, and how often it has worked on it."""

    sent: Tree
    parameters: Tree
    contacts: Array


@record
class WithPersonal(DevicePart):
    """A device part, and a model of the device's own beside it.

    Attributes:
        shared: What the device does for the crowd.
        objective: The model.
        rate: Constant rate of the device's own steps.
        pull: λ.
        size: Rows per step.
        zeros: `zeros()`: parameters, all zero.
        ops: Array operations.
    """

    shared: DevicePart
    objective: Objective
    rate: Array
    pull: Array
    size: int
    zeros: Callable[[], Tree]
    ops: Ops

    def init(self) -> PersonalState:
        """Begin; the device's own model begins as the common one that it first checks out."""
        return PersonalState(sent=self.shared.init(), parameters=self.zeros(), contacts=self.ops.xp.int32(0))

    def step(
        self, broadcast: Broadcast, work: PersonalState, batch: Batch, coins: Coins
    ) -> tuple[Release, PersonalState]:
        """Work for the crowd, then for the owner."""
        xp = self.ops.xp
        release, sent = self.shared.step(broadcast, work.sent, batch, coins)
        common, first = broadcast.parameters, work.contacts == 0
        begun = trees.map(lambda shared, kept: xp.where(first, shared, kept), common, work.parameters)

        def step(here: Tree, part: Batch) -> Tree:
            slopes = self.objective.gradients(here, part).total(mean_weights(part.mask, self.ops))
            # A part of padding alone moves nothing.
            eta = self.rate * (xp.sum(part.mask) > 0).astype(xp.float32)
            return trees.map(
                lambda v, w, slope, common_slope: v - eta * (slope + common_slope + self.pull * (v - w)),
                here,
                common,
                slopes,
                self.objective.regulariser(here),
            )

        after = self.ops.fold(step, begun, cut_batch(batch, self.size))
        return release, PersonalState(sent=sent, parameters=after, contacts=work.contacts + xp.int32(1))

    def model(self, work: PersonalState) -> Tree:
        """Return the device's own model; zeros before its first contact."""
        return work.parameters

    def sent_later(self, work: PersonalState) -> Tree:
        """Nothing of the device's own model is in a message."""
        return self.shared.sent_later(work.sent)
