"""The contract of an algorithm: a few pure functions in a frozen record.

An algorithm knows nothing of time, network, files or entropy. The compiled simulation, the step-by-step loop, the
live server with its devices, and a test with given coins all drive these same functions.

    check_out ─► device_step ─► sanitise ─► absorb ─► (ready?) commit ─► check_out …
      server        device       device      server       server
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from crowdml.algorithms.attacks import Attack
from crowdml.algorithms.robust import RobustSettings
from crowdml.core import Array, Batch, Coins, Ops, record
from crowdml.core.ops import Tree
from crowdml.privacy import Plan

Hyper = Mapping[str, Array]
"""Hyper-parameters by name. In a compiled sweep they are traced numbers, elsewhere plain floats. Arrays that only a
driver can work out are handed in the same way."""


@record
class Counts:
    """Public integers the barrier may look at.

    Attributes:
        received: Check-ins absorbed since the last commit.
        version: Commits so far.
        longest: Versions made since the last check-in of the device that has been silent for longest, of those that
            have not checked in since the last commit; -1 where all have, or nobody counts.
    """

    received: int
    version: int
    longest: int = -1


@record
class Rounds:
    """How devices meet where the server invites them.

    Attributes:
        per_round: Devices invited to a round.
        epochs: Times a device goes through its own rows in a round.
        multiple: The number of rows in a batch is padded up to a multiple of this.
        max_rows: Rows of a device in a round at most; None where it uses all it has.
    """

    per_round: int
    epochs: int
    multiple: int
    max_rows: int | None = None


@record
class Barrier:
    """How devices meet where each works at its own speed on all its rows, over and over.

    A device that has checked in waits for the next version. The others go on from the version that they have.

    Attributes:
        least: Check-ins that a version is made of at least.
        max_delay: Every device that still takes part is heard at least once in so many versions.
    """

    least: int
    max_delay: int


@record
class Algorithm:
    """What an algorithm is, for every driver.

    Attributes:
        takes: `sums` if only the sum of check-ins matters (then they may be masked), else `individuals`.
        batch: Rows a device gathers before it contacts the server.
        buffer: Rows a device keeps at most; between outages a batch may grow up to this.
        always_ready: True if every check-in is followed by a commit; then no condition is ever compiled.
        init: `init(coins)` begins the task and returns the server's state.
        device_init: `device_init()` begins a device.
        row_init: `row_init()` begins what the server keeps for one device.
        check_out: `check_out(server)`: what leaves the server; public.
        device_step: `device_step(broadcast, device, batch, coins)` returns the release and the device's new state.
        sanitise: `sanitise(release, coins)`: the last bound and the last noise; the result may leave the device.
        accepts: `accepts(staleness)`: whether a check-in that is so many versions old is used at all.
        absorb: `absorb(server, row, check_in, staleness)` folds in one check-in, or the sum of several. Where devices
            of a barrier began with different versions, `staleness` is one number for each of them.
        ready: `ready(counts)`: whether it is time to commit.
        commit: `commit(server)` makes the step, empties the window, and returns measurements as values.
        parameters: `parameters(server)`: the model as it stands.
        totals: `totals(server)`: rows, errors and labels counted so far; None where counts are not sent.
        perturb: `perturb(rows, labels, coins)`: noise on the rows themselves, drawn once per row for the whole task;
            None where rows stay as they are.
        rounds: How devices are invited; None where they are not.
        barrier: Whom the server waits for, where devices work on all their rows over and over; None elsewhere.
        opening: What is done in the first round instead, with the same states; None where all rounds are alike.
        solves: Whether it solves linear equations. Several trials are then run one after the other, as compiled code
            cannot solve several systems at once on a core of its own without waiting for itself.
        shown: `shown(server)`: how the last version was averaged; None where there is nothing to tell.
        by_size: Whether a device counts as much as it has rows, and says so.
        attack: What devices of a simulated crowd do that lie; None where all are honest.
        of_device: `of_device(device)`: a device's own model, where each learns alone; None where one is common.
        succession: `succession(server, rows, slots, check_ins, staleness)` does for several check-ins, bit for bit,
            what `absorb` and `commit` do for each in turn, but more quickly; it returns the server's state and changes
            `rows`, by slot, in place. None where there is no quicker way.
        in_parts: Whether `device_step` takes its rows part by part, by `ops.fold` or `rows[numbers]`, so that none need
            be read before its turn.
    """

    takes: Literal["sums", "individuals"]
    batch: int
    buffer: int
    always_ready: bool
    init: Callable[[Coins], Tree]
    device_init: Callable[[], Tree]
    row_init: Callable[[], Tree]
    check_out: Callable[[Tree], Tree]
    device_step: Callable[[Tree, Tree, Batch, Coins], tuple[Tree, Tree]]
    sanitise: Callable[[Tree, Coins], Tree]
    accepts: Callable[[int], bool]
    absorb: Callable[[Tree, Tree, Tree, Array], tuple[Tree, Tree]]
    ready: Callable[[Counts], bool]
    commit: Callable[[Tree], tuple[Tree, Tree]]
    parameters: Callable[[Tree], Tree]
    totals: Callable[[Tree], Tree] | None = None
    perturb: Callable[[Array, Array, Coins], tuple[Array, Array]] | None = None
    of_device: Callable[[Tree], Tree] | None = None
    opening: Algorithm | None = None
    solves: bool = False
    rounds: Rounds | None = None
    succession: Callable[[Tree, dict[int, Tree], Sequence[int], Sequence[Tree], Sequence[int]], Tree] | None = None
    in_parts: bool = False
    shown: Callable[[Tree], Tree] | None = None
    by_size: bool = False
    attack: Attack | None = None
    barrier: Barrier | None = None

    @property
    def whole(self) -> bool:
        """Whether all of a device's rows are behind each of its releases."""
        return self.visit is not None

    @property
    def visit(self) -> Rounds | None:
        """How a device goes through all its rows for a release; None where it takes batches of them."""
        if self.barrier is not None:
            return Rounds(per_round=self.barrier.least, epochs=1, multiple=1)
        return self.rounds

    def at(self, version: int) -> Algorithm:
        """Return what is done at a version: something else first, where an algorithm begins with another message."""
        return self.opening if self.opening is not None and version == 0 else self


@record
class Parts:
    """What a recipe assembles an algorithm from.

    Attributes:
        settings: The `[algorithm]` section.
        model: The model (`Model`), built for `ops`; for a server that never looks inside, one vector (`FlatModel`).
        plan: Bound, noise and promise.
        classes: Number of labels.
        hyper: Hyper-parameters, possibly traced.
        ops: Array operations.
        devices: Devices that take part.
        robust: The `[robust]` section.
        attack: What devices of a simulated crowd do that lie; None where all are honest.
    """

    settings: object
    model: Any
    plan: Plan
    classes: int
    hyper: Hyper
    ops: Ops
    devices: int = 1
    robust: RobustSettings = RobustSettings()
    attack: Attack | None = None
