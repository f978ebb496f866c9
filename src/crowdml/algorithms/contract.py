"""The contract of an algorithm: what devices do, what the server does, when they meet, what protects.

    check_out ─► step ─► noise ─► send ─► absorb ─► (ready?) commit ─► check_out …
      server     device  sanitiser device   server       server

Nothing here knows time, network, files or entropy. The compiled simulation, the step-by-step loop, server and devices
and a test with given coins drive the same functions.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from crowdml.algorithms.schedule import Schedule
from crowdml.core import Batch, Broadcast, CheckIn, Coins, DeviceState, Release, Report, record, trees
from crowdml.core.trees import Array, Integer, Num, SameTree, Tree
from crowdml.privacy.sanitisers import Sanitiser


class DevicePart(abc.ABC):
    """What a device does between check-out and check-in. Everything up to the bound is `step`."""

    def init(self) -> Tree:
        """Begin what a device remembers of its work; a whole number in it is a counter, and says nothing of rows."""
        return ()

    @abc.abstractmethod
    def step(self, broadcast: Broadcast, work: SameTree, batch: Batch, coins: Coins) -> tuple[Release, SameTree]:
        """Work on one batch; return what is bounded but has no noise yet, and what to remember."""

    def send(self, broadcast: Broadcast, work: SameTree, noisy: CheckIn) -> tuple[CheckIn, SameTree]:
        """Make of the noisy release what is sent, and what to remember: post-processing only."""
        return noisy, work

    def model(self, work: Tree) -> Tree | None:
        """Return the device's model, where each device has one of its own."""
        return None

    def sent_later(self, work: Tree) -> Tree:
        """Return that part of what is remembered on which later messages depend: all of it, unless said otherwise."""
        return work


class ServerPart(abc.ABC):
    """What the server does with check-ins. Its state is a lasting part and a window since the last commit.

    Attributes:
        takes: `sums` if only the sum of check-ins matters (then they may be aggregated securely), else `individuals`.
    """

    takes: Literal["sums", "individuals"] = "sums"

    @abc.abstractmethod
    def init(self, coins: Coins) -> Tree:
        """Begin the task."""

    def row(self) -> Tree:
        """Begin what the server keeps for one device; the driver owns the table."""
        return ()

    def check_out(self, server: Tree) -> Broadcast:
        """Say what devices begin with: the parameters of the state, unless said otherwise."""
        return Broadcast(parameters=server.parameters)

    @abc.abstractmethod
    def absorb(
        self, server: Tree, row: SameTree, check_in: CheckIn, staleness: Integer[Array, "*members"]
    ) -> tuple[Tree, SameTree]:
        """Fold in one check-in, or the sum of several; then `staleness` may be one number for each of them."""

    @abc.abstractmethod
    def commit(self, server: Tree) -> tuple[Tree, dict[str, Num[Array, ""]]]:
        """Make the step and empty the window; return the state, and measurements as values."""

    def report(self, server: Tree) -> Report:
        """Return what may be shown: the parameters of the state, unless said otherwise."""
        return Report(parameters=server.parameters)


@record
class Phase:
    """Device part, server part and sanitiser that go together for some versions.

    Attributes:
        device: What devices do.
        server: What the server does.
        sanitiser: What protects.
        versions: For how many versions; None: until the end.
        uses: Uses of a sample's budget that a release of this phase counts for.
    """

    device: DevicePart
    server: ServerPart
    sanitiser: Sanitiser
    versions: int | None = None
    uses: int = 1

    def begin(self) -> DeviceState:
        """Begin a device."""
        return DeviceState(work=self.device.init(), noise=self.sanitiser.memory())

    def contribute(
        self, broadcast: Broadcast, device: DeviceState, batch: Batch, coins: Coins
    ) -> tuple[CheckIn, DeviceState]:
        """Do all that a device does between check-out and check-in: bound, noise, and what follows from them."""
        release, work = self.device.step(broadcast, device.work, batch, coins)
        return self.finish(broadcast, release, DeviceState(work=work, noise=device.noise), coins)

    def finish(
        self, broadcast: Broadcast, release: Release, device: DeviceState, coins: Coins
    ) -> tuple[CheckIn, DeviceState]:
        """Add the noise to a release, and make of it what is sent."""
        noisy, noise = self.sanitiser.noise(release, device.noise, coins)
        check_in, work = self.device.send(broadcast, device.work, noisy)
        return check_in, DeviceState(work=work, noise=noise)


ApplyBatch = Callable[[Tree, dict[int, Tree], Sequence[int], Sequence[CheckIn], Sequence[int]], Tree]
"""`apply_batch(server, rows, slots, check_ins, staleness)`: the state after absorb and commit for each in turn."""


@record
class SpeedHints:
    """What a driver may use to be faster, or ignore: results are the same.

    Attributes:
        in_parts: `step` takes its rows part by part, by `ops.fold` or `rows[numbers]`, so that none need be read before
            its turn.
        multiples: A local step is a multiple of the gradient of its rows, but for a regulariser: a weight without a
            gradient stays where it is, so that columns of zeros can be left out.
        one_trial_at_a_time: It solves equations. Compiled code cannot solve several systems at once on one core without
            waiting for itself, so several trials are run one after the other.
        apply_batch: A quicker way through several check-ins, bit for bit what `absorb` and `commit` do for each; it
            changes `rows`, by slot, in place.
    """

    in_parts: bool = False
    multiples: bool = False
    one_trial_at_a_time: bool = False
    apply_batch: ApplyBatch | None = None


@record
class Algorithm:
    """What an algorithm is, for every driver. All phases share the states of device and server.

    Attributes:
        phases: Nearly always one.
        schedule: When devices and server meet.
        hints: Ways to be faster.
    """

    phases: tuple[Phase, ...]
    schedule: Schedule
    hints: SpeedHints = SpeedHints()

    @property
    def last(self) -> Phase:
        """The phase that goes on until the end; its server part begins and reports, too."""
        return self.phases[-1]

    @property
    def remembers_rows(self) -> bool:
        """Whether a message may depend on rows of earlier ones: devices remember more than counters."""
        begun = [phase.device.sent_later(phase.device.init()) for phase in self.phases]
        return any(np.ndim(leaf) or leaf.dtype.kind not in "iu" for leaf in trees.leaves(begun))

    def at(self, version: int) -> Phase:
        """Return the phase of a version, which is a public integer."""
        for phase in self.phases[:-1]:
            if version < (phase.versions or 0):
                return phase
            version -= phase.versions or 0
        return self.last


def one_phase(
    device: DevicePart, server: ServerPart, sanitiser: Sanitiser, schedule: Schedule, hints: SpeedHints | None = None
) -> Algorithm:
    """Compose an algorithm of one phase."""
    phase = Phase(device=device, server=server, sanitiser=sanitiser)
    return Algorithm(phases=(phase,), schedule=schedule, hints=hints or SpeedHints())
