"""The device's half of algorithms with local steps (Crowd-ML library 2016, algorithm 1, device routine).

A device moves its copy of the parameters by several steps, each on a part of its rows, and sends what has changed.
With no local steps it sends the mean gradient of all its rows and leaves the step to the server. Noise is added once,
to the message, or into every step (`private_walk`); where it is correlated over messages, the device remembers what it
added. In sound mode the message is integers on a grid; the change is bounded as a whole, whatever rate and loss made of
it.

The rate may follow any of four counters: versions and check-ins are the server's and come with the check-out; contacts
and local steps are the device's own. What a device remembers counts from its last check-in that was used.
"""

from __future__ import annotations

from typing import Any

from crowdml.algorithms.contract import Parts
from crowdml.algorithms.correlated import next_noise, no_noise_yet
from crowdml.algorithms.counting import Counting
from crowdml.algorithms.gradients import (
    MeanGradient,
    mean_gradient,
    sanitise_correlated,
    sanitise_given,
    sanitise_mean,
)
from crowdml.algorithms.grid_gradient import grid_change, grid_gradient, sanitise_grid
from crowdml.algorithms.private_walk import PrivateWalk
from crowdml.algorithms.rates import RateSettings
from crowdml.algorithms.server import Sends
from crowdml.algorithms.stable_walk import StableWalk
from crowdml.core import Array, BadInput, Batch, Coins, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.sound import Stability

SERVER_COUNTERS = ("versions", "check-ins")


@record
class DeviceHalf:
    """What a device does between check-out and check-in.

    Attributes:
        parts: What the algorithm is assembled from.
        rate: The rate: the device's own where it takes steps, otherwise the server's.
        sends: A change after local steps, or a gradient.
        local_batch: Rows per local step.
        by_size: Whether a device counts as much as it has rows, or all count alike.
        alone: Whether a commit follows every check-in; then no weight is needed.
        padded: Whether some of a device's parts may be empty, because devices differ in their number of rows.
        group: Rows that go through together where steps bound every row.
        counting: Counts errors and labels at the parameters checked out, where a gradient is sent; None: nothing.
    """

    parts: Parts
    rate: RateSettings
    sends: Sends
    local_batch: int
    by_size: bool
    alone: bool
    padded: bool
    group: int = 64
    counting: Counting | None = None

    @property
    def told(self) -> bool:
        """Whether the device needs the server's counter with the check-out."""
        return self.rate.counter in SERVER_COUNTERS and (self.sends == "change" or self._sequence == "rate")

    @property
    def _sequence(self) -> str:
        return self.parts.plan.given.sequence if self.parts.plan.given else "iid"

    @property
    def _counts_contacts(self) -> bool:
        return self.rate.counter == "device-contacts" or self._sequence == "geometric" or self._correlated

    @property
    def _correlated(self) -> bool:
        return self.parts.plan.banded is not None

    def init(self) -> Tree:
        """Begin a device: only what its rate and its noise will ask for."""
        xp, device = self.parts.ops.xp, {}
        if self._counts_contacts:
            device["contacts"] = xp.int32(0)
        if self.rate.counter == "local-steps":
            device["steps"] = xp.int32(0)
        if self._correlated:
            device["noise"] = no_noise_yet(self.parts)
        if self.sends == "change":
            device["memory"] = self._rate(self.parts.hyper["rate"]).init(self.parts.model.zeros())
        return device

    def step(self, broadcast: Tree, device: Tree, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        """Work on one batch; return the release and the device's new state."""
        one = self.parts.ops.xp.int32(1)
        parameters = broadcast["parameters"] if self.told else broadcast
        after = {"contacts": device["contacts"] + one} if self._counts_contacts else {}
        begin = self._begin(broadcast, device, after)
        release = self._noise_factor(begin, after)
        if self._correlated:
            release["noise"], after["noise"] = next_noise(
                self.parts, device["contacts"], device["noise"], coins, self.sends
            )
        if self.sends == "gradient":
            found = self._gradient(parameters, batch, coins)
            release |= self._counts(found, batch)
            return release | {"gradient": found.gradient} | self._weight(found.samples), after
        change, after["memory"], taken = self._change(parameters, device["memory"], begin, batch, coins)
        if "steps" in device:
            after["steps"] = device["steps"] + taken
        release["change"] = grid_change(self.parts, change, coins) if self.parts.plan.sound else change
        return release | self._weight(self.parts.ops.xp.sum(batch.mask)), after

    def _counts(self, found: MeanGradient, batch: Batch) -> dict[str, Tree]:
        if self.counting is None:
            return {}
        wrong = self.parts.model.loss.predict(found.outputs) != batch.labels
        return {"counts": self.counting.count(batch, wrong, batch.mask)}

    def sanitise(self, release: Tree, coins: Coins) -> Tree:
        """Add the noise, once, and multiply by the weight that the server divides by."""
        made: Tree = self._sanitise_update(release, coins)
        return made | {"counts": self.counting.sanitise(release["counts"], coins)} if self.counting else made

    def _sanitise_update(self, release: Tree, coins: Coins) -> Tree:
        if self.parts.plan.sound:
            return self._sanitise_sound(release, coins)
        update = release[self.sends]
        if self._correlated:
            update = sanitise_correlated(self.parts, update, release["noise"], release.get("samples"))
        elif self.parts.plan.gradient:
            update = sanitise_mean(self.parts, update, release["samples"], coins)
        else:
            update = sanitise_given(self.parts, update, release.get("factor", 1.0), coins, self.sends)
        if self.alone:
            return {self.sends: update}
        xp = self.parts.ops.xp
        weight = release["samples"] if "samples" in release and self.by_size else xp.int32(1)
        return {self.sends: trees.map(lambda leaf: leaf * xp.float32(weight), update), "weight": weight}

    def _sanitise_sound(self, release: Tree, coins: Coins) -> Tree:
        """Add discrete noise; the server scales. A sum of examples goes with their number, a whole message counts 1."""
        noisy = {self.sends: sanitise_grid(self.parts, release[self.sends], coins)}
        if "samples" in release:
            return noisy | {"samples": release["samples"]}
        return noisy if self.alone else noisy | {"weight": self.parts.ops.xp.int32(1)}

    def _gradient(self, parameters: Tree, batch: Batch, coins: Coins) -> MeanGradient:
        if self.parts.plan.sound:
            return grid_gradient(self.parts, parameters, batch, batch.mask, coins)
        return mean_gradient(self.parts, parameters, batch, batch.mask)

    def _change(
        self, parameters: Tree, memory: Tree, begin: Array, batch: Batch, coins: Coins
    ) -> tuple[Tree, Tree, Array]:
        """Return what all steps have changed, what the rate remembers, and steps taken."""
        if self._stable:
            walk = StableWalk(
                parts=self.parts,
                rate=self.rate,
                stable=self._stable,
                local_batch=self.local_batch,
                padded=self.padded,
            )
            change, taken = walk.take(parameters, begin, batch)
            return change, memory, taken  # such rates remember nothing
        moved, memory, taken = self._walk(parameters, memory, begin, batch, coins)
        return trees.map(lambda new, old: new - old, moved, parameters), memory, taken

    def _walk(
        self, parameters: Tree, memory: Tree, begin: Array, batch: Batch, coins: Coins
    ) -> tuple[Tree, Tree, Array]:
        """Take one step on each part of the batch; return parameters, what the rate remembers, and steps taken."""
        ops, rate = self.parts.ops, self._rate(self.parts.hyper["rate"])
        if self.parts.plan.steps:
            counts_up = self.rate.counter == "local-steps"
            walk = PrivateWalk(
                parts=self.parts, steps=self.parts.plan.steps, rate=rate, counts_up=counts_up, group=self.group
            )
            moved, memory = walk.take(parameters, memory, begin, batch, coins)
            return moved, memory, ops.xp.int32(walk.steps.steps)
        one = ops.xp.int32(1)
        counts_up = one if self.rate.counter == "local-steps" else ops.xp.int32(0)

        def step(carry: Tree, part: Batch) -> Tree:
            own, memory, taken = carry
            found = mean_gradient(self.parts, own, part, part.mask)
            change, after = rate.step(memory, found.gradient, begin + counts_up * taken)
            if not self.padded:
                return trees.map(lambda old, new: old - new, own, change), after, taken + one
            real = found.samples > 0
            moved = trees.map(lambda old, new: old - new * real.astype(ops.xp.float32), own, change)
            after = trees.map(lambda old, new: ops.xp.where(real, new, old), memory, after)
            return moved, after, taken + real.astype(ops.xp.int32)

        cut = trees.map(lambda leaf: leaf.reshape(-1, self.local_batch, *leaf.shape[1:]), batch)
        moved, memory, taken = ops.fold(step, (parameters, memory, ops.xp.int32(0)), cut)
        return moved, memory, taken

    @property
    def proven(self) -> bool:
        """Whether steps are those of a proof, on whole rows."""
        return self._stable is not None

    @property
    def _stable(self) -> Stability | None:
        return self.parts.plan.sound.update.stable if self.parts.plan.sound else None

    def _begin(self, broadcast: Tree, device: Tree, after: Tree) -> Array:
        """Return the rate's counter at the first local step, from 1."""
        if self.told:
            # Counts start at 1, or a server could make steps longer than any rate allows.
            return self.parts.ops.xp.maximum(broadcast["count"], self.parts.ops.xp.int32(1))
        if self.rate.counter == "device-contacts":
            return after["contacts"]
        if self.rate.counter == "local-steps":
            return device["steps"] + self.parts.ops.xp.int32(1)
        return self.parts.ops.xp.int32(1)

    def _noise_factor(self, begin: Array, after: Tree) -> dict[str, Any]:
        """Return how much of the first message's noise this one gets; nothing where all get the same."""
        xp, given = self.parts.ops.xp, self.parts.plan.given
        if self._sequence == "geometric":
            assert given is not None  # noqa: S101  a sequence belongs to given noise
            return {"factor": xp.float32(given.factor) ** (after["contacts"] - xp.int32(1)).astype(xp.float32)}
        if self._sequence == "rate":
            # A power rate makes of 1 what it is at this count, as a share of c.
            share, _ = self._rate(xp.float32(1)).step((), xp.float32(1), begin)
            return {"factor": share}
        return {}

    def _weight(self, samples: Array) -> dict[str, Array]:
        plan = self.parts.plan
        if plan.sound:
            needed = plan.sound.update.grid.per == "example"
        else:
            # With noise in the steps nothing is said about the number of rows, which would not be protected.
            needed = plan.gradient is not None or (self.by_size and not self.alone and plan.steps is None)
        return {"samples": samples.astype(self.parts.ops.xp.int32)} if needed else {}

    def _rate(self, c: Array) -> Any:
        return self.rate.build(c, self.parts.ops)


def check_terms(parts: Parts, rate: RateSettings, sends: Sends) -> None:
    """Refuse what cannot be kept or has no meaning for these steps."""
    if sends == "change" and parts.plan.gradient:
        raise BadInput(
            "a change after local steps has no proven bound, so no ε can be claimed for it",
            where="privacy.epsilon",
            hint="give noise-scale instead, or send gradients: local-steps = 0",
        )
    if sends == "gradient" and rate.counter not in SERVER_COUNTERS:
        raise BadInput(
            f'without local steps the rate is the server\'s: it cannot count "{rate.counter}"',
            where="algorithm.rate.counter",
            hint='use counter = "versions" or "check-ins"',
        )
    remembers = bool(trees.leaves(rate.build(1.0, parts.ops).init(parts.ops.xp.float32(1))))
    if parts.plan.given and parts.plan.given.sequence == "rate" and remembers:
        raise BadInput(
            f'the rate "{rate.kind}" differs from number to number, so noise cannot follow it',
            where="privacy.noise-sequence",
            hint='use "iid" or "geometric", or a rate that depends on its counter alone',
        )
