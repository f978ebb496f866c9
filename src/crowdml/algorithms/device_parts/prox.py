"""prox: a device solves its problem near the common model, and remembers its price for being different.

Guo and Gong's asynchronous consensus ADMM. `Prox` sends what the paper sends: by how much local model and dual have
changed. Noise goes on the local model before anything is made of it, so duals remember noise. `RelativeProx` sends
2λ' - λ, which is w + λ' - w0, relative to the public version that the device started from; its duals are exact and
never see noise.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.algorithms.contract import DevicePart
from crowdml.core import Batch, Broadcast, CheckIn, Coins, Ops, Release, Tree, record, tree_record, trees
from crowdml.privacy.sanitisers import Sanitiser

Solve = Callable[[Tree, Tree, Batch], Tree]
"""`solve(centre, start, batch)`: the local model, as near to the centre as ρ asks for."""


@tree_record
class DualState:
    """Local model, what the crowd knows of it (`()` where nothing is remembered), and the price."""

    local: Tree
    sent: Tree
    dual: Tree


@record
class _Solving(DevicePart):
    """What both kinds are made of; `zeros()` are parameters, all zero."""

    solve: Solve
    sanitiser: Sanitiser
    zeros: Callable[[], Tree]
    ops: Ops


@record
class Prox(_Solving):
    """The paper's messages: by how much local model and dual have changed, as one sum."""

    def init(self) -> DualState:
        """Begin at zero."""
        return DualState(local=self.zeros(), sent=self.zeros(), dual=self.zeros())

    def step(self, broadcast: Broadcast, work: DualState, batch: Batch, coins: Coins) -> tuple[Release, DualState]:
        """Solve; algorithm 1, line 12."""
        local = self.solve(_minus(broadcast.parameters, work.dual), work.local, batch)
        release = Release(update=self.sanitiser.bound_message(local, coins), rows=batch.count(self.ops.xp))
        return release, DualState(local=local, sent=work.sent, dual=work.dual)

    def send(self, broadcast: Broadcast, work: DualState, noisy: CheckIn) -> tuple[CheckIn, DualState]:
        """Say what has changed, of the noisy model alone; lines 13 to 15. w̄ and λ̄ are only ever used as a sum."""
        sent = noisy.update
        apart = _minus(sent, broadcast.parameters)
        both = trees.map(lambda moved, price: moved + price, _minus(sent, work.sent), apart)
        dual = trees.map(lambda old, price: old + price, work.dual, apart)
        return CheckIn(update=both, weight=noisy.weight), DualState(local=work.local, sent=sent, dual=dual)


@record
class RelativeProx(_Solving):
    """One bounded vector with fresh noise; nothing of the noise is remembered."""

    def init(self) -> DualState:
        """Begin at zero."""
        return DualState(local=self.zeros(), sent=(), dual=self.zeros())

    def step(self, broadcast: Broadcast, work: DualState, batch: Batch, coins: Coins) -> tuple[Release, DualState]:
        """Solve, and bound 2λ' - λ."""
        centre = _minus(broadcast.parameters, work.dual)
        local = self.solve(centre, work.local, batch)
        dual = _minus(local, centre)
        message = trees.map(lambda new, old: 2 * new - old, dual, work.dual)
        release = Release(update=self.sanitiser.bound_message(message, coins), rows=batch.count(self.ops.xp))
        return release, DualState(local=local, sent=(), dual=dual)


def _minus(one: Tree, other: Tree) -> Tree:
    return trees.map(lambda a, b: a - b, one, other)
