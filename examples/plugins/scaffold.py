"""scaffold: local steps corrected by control variates (Karimireddy et al. 2020, algorithm 1 with option II).

Every device keeps a control variate cᵢ, the server their mean c. A local step goes along g - cᵢ + c; afterwards cᵢ is
what a step of this round was on average, and both changes are sent. Device part and server part are its own: the server
broadcasts c beside the parameters (`Broadcast.more`), and an update has two halves.
"""

from dataclasses import replace
from typing import Any, Literal

import crowdml
from crowdml.algorithms.contract import DevicePart, ServerPart, one_phase
from crowdml.algorithms.rates import Rate
from crowdml.algorithms.recipes.federated.fedavg import FEDAVG, FedAvgSettings
from crowdml.algorithms.schedule import Rounds
from crowdml.core import Broadcast, Release, Report, record, tree_record, trees
from crowdml.privacy import Releases
from crowdml.privacy.sanitisers import LocalWork


class ScaffoldSettings(FedAvgSettings):
    """The `[algorithm]` section."""

    kind: Literal["scaffold"] = "scaffold"


@tree_record
class Both:
    """Something of parameters, and the same of control variates."""

    w: Any
    c: Any


@tree_record
class State:
    """The server's state: what lasts, and a window of what was absorbed since the last commit."""

    parameters: Any
    control: Any
    window: Any
    heard: Any


@record
class Device(DevicePart):
    """Takes corrected steps; remembers its control variate."""

    parts: Any
    sanitiser: Any
    walk: Any

    def init(self):
        """Begin with a control variate of zero."""
        return self.parts.model.zeros()

    def step(self, broadcast, work, batch, coins):
        """Go along gradients plus c - cᵢ, which the rate remembers; send what has changed of both."""
        xp = self.parts.ops.xp
        drift = trees.map(lambda c, ci: c - ci, broadcast.more, work)
        dw, _, taken = self.walk.take(broadcast.parameters, drift, xp.int32(1), batch, coins)
        length = xp.maximum(taken, 1).astype(xp.float32) * self.parts.hyper["rate"]
        dc = trees.map(lambda c, d: -c - d / length, broadcast.more, dw)
        update = self.sanitiser.bound_message(Both(w=dw, c=dc), coins)
        release = Release(update=update, rows=xp.sum(batch.mask).astype(xp.int32))
        return release, trees.map(lambda ci, d: ci + d, work, dc)


@record
class Server(ServerPart):
    """Averages both halves; c moves by the share of the crowd that was heard."""

    parts: Any
    sanitiser: Any

    def init(self, coins):
        """Begin with the model's first parameters, and c = 0."""
        zeros, xp = self.parts.model.zeros(), self.parts.ops.xp
        first = self.parts.model.init(coins)
        return State(parameters=first, control=zeros, window=Both(w=zeros, c=zeros), heard=xp.float32(0))

    def check_out(self, server):
        """Tell parameters and c."""
        return Broadcast(parameters=server.parameters, more=server.control)

    def absorb(self, server, row, check_in, staleness):
        """Add up."""
        update, weight = self.sanitiser.read(check_in, lambda: None)
        window = trees.map(lambda a, b: a + b, server.window, update)
        return replace(server, window=window, heard=server.heard + weight.astype(self.parts.ops.xp.float32)), row

    def commit(self, server):
        """Take the mean of the changes; c is over all devices, heard or not."""
        zeros, heard, devices = self.parts.model.zeros(), server.heard, self.parts.devices
        parameters = trees.map(lambda w, d: w + d / heard, server.parameters, server.window.w)
        control = trees.map(lambda c, d: c + d / devices, server.control, server.window.c)
        empty = Both(w=zeros, c=zeros)
        return State(parameters=parameters, control=control, window=empty, heard=heard * 0), {}

    def report(self, server):
        """Show the model."""
        return Report(parameters=server.parameters)


def build(parts):
    """Assemble: rounds, as in fedavg, with parts of its own."""
    settings, zeros, rate = parts.settings, parts.model.zeros, parts.hyper["rate"]
    sanitiser = parts.sanitiser("change", alone=False, by_rows=False, like=lambda: Both(w=zeros(), c=zeros()))

    def corrected(drift, update, count):
        return trees.map(lambda g, d: rate * (g + d), update, drift), drift

    work = LocalWork(
        objective=parts.objective(),
        rate=Rate(init=lambda parameters: zeros(), step=corrected),
        largest_rate=rate,
        counts_up=False,
        size=settings.local_batch,
        padded=True,
    )
    device = Device(parts=parts, sanitiser=sanitiser, walk=sanitiser.walk(work))
    schedule = Rounds(cohort=settings.per_round, epochs=settings.epochs, multiple=settings.local_batch)
    return one_phase(device, Server(parts=parts, sanitiser=sanitiser), sanitiser, schedule)


def releases(settings):
    """Say what is sent: with no word of a grid, so that no ε is promised."""
    return Releases(sends="change")


SCAFFOLD = replace(FEDAVG, settings=ScaffoldSettings, build=build, releases=releases, live=False, cohort_size=None)
crowdml.register("scaffold", SCAFFOLD)
