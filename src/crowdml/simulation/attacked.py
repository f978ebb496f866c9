"""Byzantine devices of a simulated crowd: a record around their check-ins, and a wrapper around the server part.

The wrapper knows who lies, which no server does. It puts in what Byzantine devices send: at once, or when a version is
made and all honest check-ins are known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crowdml.algorithms.aggregation.update_matrix import UpdateMatrix
from crowdml.algorithms.attacks import Attack
from crowdml.algorithms.contract import Algorithm, Phase, ServerPart, SpeedHints
from crowdml.core import Array, Broadcast, CheckIn, Coins, Ops, Report, record, tree_record, trees
from crowdml.core.ops import Tree, joined
from crowdml.task import Task


@tree_record
class Forged:
    """A simulated check-in: what an honest device would send, whether the sender is Byzantine, what it sends then."""

    check_in: CheckIn
    byzantine: Array
    noise: Tree = ()


@tree_record
class AttackedState:
    """The server's state, and which lines of its window are Byzantine."""

    server: Tree
    byzantine: Array


def forge(attack: Attack, check_in: CheckIn, byzantine: Array, coins: Coins) -> Forged:
    """Say of a simulated check-in whether its sender is Byzantine, and what it sends instead."""
    noise = attack.noise(coins, (trees.size(check_in.update),)) if attack.noise else ()
    return Forged(check_in=check_in, byzantine=byzantine, noise=noise)


@record
class Attacked(ServerPart):
    """A server part whose window is an update matrix, some lines of which are lies."""

    inner: Any
    attack: Attack
    ops: Ops

    @property
    def takes(self) -> Any:  # type: ignore[override]
        """Individuals: attackers look at them."""
        return "individuals"

    @property
    def _window(self) -> UpdateMatrix:
        window: UpdateMatrix = self.inner.window
        return window

    def _nobody(self) -> Array:
        return self.ops.xp.zeros(self._window.cohort_size, dtype=bool)

    def init(self, coins: Coins) -> AttackedState:
        """Begin with an empty window in which nobody is Byzantine."""
        return AttackedState(server=self.inner.init(coins), byzantine=self._nobody())

    def row(self) -> Tree:
        """As what is wrapped."""
        return self.inner.row()

    def check_out(self, server: AttackedState) -> Broadcast:
        """As what is wrapped."""
        found: Broadcast = self.inner.check_out(server.server)
        return found

    def absorb(self, server: AttackedState, row: Tree, check_in: Any, staleness: Array) -> tuple[Tree, Tree]:
        """Fold in what was sent: an honest check-in, or noise instead of it."""
        xp, before = self.ops.xp, server.server.window.filled
        after, row = self.inner.absorb(server.server, row, check_in.check_in, staleness)
        here = xp.arange(self._window.cohort_size) == before
        if self.attack.noise:
            lies = (here & check_in.byzantine)[:, None]
            window = replace(after.window, updates=xp.where(lies, check_in.noise[None], after.window.updates))
            after = replace(after, window=window)
        byzantine = xp.where(here, check_in.byzantine, server.byzantine)
        return AttackedState(server=after, byzantine=byzantine), row

    def commit(self, server: AttackedState) -> tuple[Tree, Tree]:
        """Let attackers rewrite their lines, then make the version."""
        state = server.server
        if self.attack.rewrite:
            window, at = state.window, joined(state.parameters, self.ops)
            updates = self.attack.rewrite(
                window.updates,
                (window.weights > 0) & ~server.byzantine,
                server.byzantine,
                lambda tried: self._window.combine(tried, window.weights, at)[0],
            )
            state = replace(state, window=replace(window, updates=updates))
        after, measured = self.inner.commit(state)
        return AttackedState(server=after, byzantine=self._nobody()), measured

    def report(self, server: AttackedState) -> Report:
        """As what is wrapped."""
        found: Report = self.inner.report(server.server)
        return found


def attack_of(task: Task, ops: Ops) -> Attack | None:
    """Return what Byzantine devices of a task's crowd do; None where all are honest."""
    settings = task.crowd.attack
    found: Attack | None = settings.build(task.target, ops) if settings.byzantine(1) else None
    return found


def attacked(algorithm: Algorithm, attack: Attack | None, ops: Ops) -> Algorithm:
    """Wrap the server part of an algorithm, where some devices are Byzantine."""
    if attack is None:
        return algorithm

    def wrapped(phase: Phase) -> Phase:
        return replace(phase, server=Attacked(inner=phase.server, attack=attack, ops=ops))

    return Algorithm(
        phases=tuple(map(wrapped, algorithm.phases)),
        schedule=algorithm.schedule,
        hints=SpeedHints(in_parts=algorithm.hints.in_parts),
    )
