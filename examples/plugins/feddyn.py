"""feddyn: local losses that agree in the end (Acar, Zhao, Matas, Mattina, Whatmough and Saligrama 2021).

A device descends on its loss, minus ⟨gᵢ, w⟩, plus α/2 ‖w - w₀‖². It remembers gᵢ, which becomes the gradient of its
loss where it stopped, and the server remembers h, the mean of all drifts. Device part and server part are its own.
"""

from dataclasses import replace
from typing import Any, Literal

import crowdml
from crowdml.algorithms import compose
from crowdml.algorithms.contract import DevicePart, ServerPart, one_phase
from crowdml.algorithms.rates import Rate
from crowdml.algorithms.recipes.federated.fedavg import FEDAVG, FedAvgSettings
from crowdml.algorithms.schedule import Rounds
from crowdml.core import Release, record, tree_record, trees
from crowdml.privacy import Releases


class FedDynSettings(FedAvgSettings):
    """The `[algorithm]` section."""

    kind: Literal["feddyn"] = "feddyn"
    alpha: float = 0.1


@tree_record
class State:
    """The server's state: what lasts, and a window of what was absorbed since the last commit."""

    parameters: Any
    drift: Any
    window: Any
    heard: Any


@record
class Device(DevicePart):
    """Takes pulled steps; remembers gᵢ."""

    parts: Any
    sanitiser: Any
    walk: Any

    def init(self):
        """Begin with a gradient of zero."""
        return self.parts.model.zeros()

    def step(self, broadcast, work, batch, coins):
        """Go along gradients minus gᵢ, which the rate remembers, and the pull; send what has changed."""
        xp, alpha = self.parts.ops.xp, self.parts.hyper["alpha"]
        moved, _, _ = self.walk.take(broadcast.parameters, work, xp.int32(1), batch, coins)
        release = Release(update=self.sanitiser.bound_message(moved, coins), rows=batch.count(xp))
        return release, trees.map(lambda g, change: g - alpha * change, work, moved)


@record
class Server(ServerPart):
    """Averages, and goes on against the mean drift h."""

    parts: Any
    sanitiser: Any

    def init(self, coins):
        """Begin with the model's first parameters, and h = 0."""
        zeros, first = self.parts.model.zeros(), self.parts.model.init(coins)
        return State(parameters=first, drift=zeros, window=zeros, heard=self.parts.ops.xp.float32(0))

    def absorb(self, server, row, check_in, staleness):
        """Add up."""
        update, weight = self.sanitiser.read(check_in, lambda: None)
        window = trees.map(lambda a, b: a + b, server.window, update)
        return replace(server, window=window, heard=server.heard + weight.astype(self.parts.ops.xp.float32)), row

    def commit(self, server):
        """Take the mean of the models minus h/α; h is over all devices, heard or not."""
        alpha, devices, heard = self.parts.hyper["alpha"], self.parts.devices, server.heard
        drift = trees.map(lambda h, d: h - alpha * d / devices, server.drift, server.window)
        parameters = trees.map(lambda w, d, h: w + d / heard - h / alpha, server.parameters, server.window, drift)
        zeros = self.parts.model.zeros()
        return State(parameters=parameters, drift=drift, window=zeros, heard=heard * 0), {}


def build(parts):
    """Assemble: rounds, as in fedavg, with parts of its own."""
    settings, rate = parts.settings, parts.hyper["rate"]
    sanitiser = parts.sanitiser("change", alone=False, by_rows=False)
    schedule = Rounds(cohort=settings.per_round, epochs=settings.epochs, multiple=settings.local_batch)

    def step(g, update, count):
        return trees.map(lambda slope, mine: rate * (slope - mine), update, g), g

    corrected = Rate(init=lambda parameters: parts.model.zeros(), step=step)
    work = compose.local_work(parts, schedule, rate=corrected, proximal=parts.hyper["alpha"])
    device = Device(parts=parts, sanitiser=sanitiser, walk=sanitiser.walk(work))
    return one_phase(device, Server(parts=parts, sanitiser=sanitiser), sanitiser, schedule)


def releases(settings):
    """Say what is sent: with no word of a grid, so that no ε is promised."""
    return Releases(sends="change")


FEDDYN = replace(
    FEDAVG,
    settings=FedDynSettings,
    build=build,
    releases=releases,
    hyper={**FEDAVG.hyper, "alpha": "alpha"},
    live=False,
    cohort_size=None,
)
crowdml.register("feddyn", FEDDYN)
