"""Canaries: many of them in one training, each there or not by a coin (Steinke, Nasr and Jagielski 2023).

Every canary is a sample (or a device) that is one of two neighbours, by a fair coin of its own. The task is trained
once, by the real device and server parts. Whoever sees all check-ins scores each canary by its log-likelihood ratio,
and guesses the coins of which it is surest. If the promise holds, right guesses are no more frequent than biased coins:

    P(v or more of r right) ≤ f(v) + 2mδ · max over i of (f(v - i) - f(v))/i,  f(v) = P(Binomial(r, e^ε/(1 + e^ε)) ≥ v)

(theorem 5.2, for m canaries). So the least ε that makes what was seen likely enough is a lower bound, from one run. It
is weaker than an attack on one canary in many runs, and it needs no worst-case broadcast: the server is honest here.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from crowdml.audit.attack import Finding
from crowdml.audit.bounds import Guesses
from crowdml.audit.neighbours import Bench, Pair
from crowdml.core import DeviceState, Release, trees
from crowdml.core.ops import Tree, ZeroCoins
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy.cost import Figure
from crowdml.privacy.promise import narrowed

Floats = npt.NDArray[np.float64]
ONE_RUN = "canaries in one run"
MOST_CANARIES, MOST_CHECK_INS = 500, 2000
GUESSED = 1 / 3
"""Share of the canaries that is guessed: the surest. Fixed beforehand."""


def one_run(bench: Bench, pair: Pair, releases: int, proven: Figure, error: float) -> Finding:
    """Train once with as many canaries as devices, and guess.

    Args:
        bench: The task.
        pair: The neighbours that a canary is one of; what is broadcast is the honest server's.
        releases: Releases that each canary enters.
        proven: What is claimed of them.
        error: The share of the bound.
    """
    canaries = max(20, min(MOST_CANARIES, MOST_CHECK_INS // releases))
    coins = np.asarray(DeviceCoins().uniform("canaries", (canaries,)) < 0.5)
    scores = _trained(bench, pair, coins, releases)
    surest = np.argsort(-np.abs(scores), kind="stable")[: max(1, int(GUESSED * canaries))]
    right = int(np.count_nonzero((scores[surest] > 0) == coins[surest]))
    return Finding(
        what=f"one training, {canaries} canaries",
        method=ONE_RUN,
        trials=canaries,
        guesses=Guesses(hits=right, alarms=len(surest) - right, trials=len(surest)),
        proven=proven,
        bound=one_run_bound(right, len(surest), canaries, proven.delta, error),
    )


def one_run_bound(right: int, guessed: int, canaries: int, delta: float, error: float) -> float:
    """Return the least ε at which so many right guesses are as likely as the error.

    >>> round(one_run_bound(100, 100, 100, 0.0, 0.05), 2)
    3.49
    >>> one_run_bound(50, 100, 100, 0.0, 0.05)
    0.0
    """

    def unlikely(epsilon: float) -> bool:
        return _tail(right, guessed, canaries, epsilon, delta) <= error

    return narrowed(unlikely)[0] if unlikely(0.0) else 0.0


def _tail(right: int, guessed: int, canaries: int, epsilon: float, delta: float) -> float:
    """Bound the probability of so many right guesses or more."""
    from scipy.stats import binom

    chance = 1 / (1 + math.exp(-epsilon))
    here = float(binom.sf(right - 1, guessed, chance))
    if not delta:
        return here
    steps = np.arange(1, canaries + 1)
    more = float(((binom.sf(right - 1 - steps, guessed, chance) - here) / steps).max())
    return here + 2 * canaries * delta * more


def _trained(bench: Bench, pair: Pair, coins: npt.NDArray[np.bool_], releases: int) -> Floats:
    """Train once, every canary in a device of its own; return the sum of each one's log-likelihood ratios.

    All devices check out a version before the first of them checks in.
    """
    algorithm, batches = bench.algorithm, bench.batches(pair)
    server: Tree = algorithm.last.server.init(ZeroCoins())
    states: list[DeviceState] = [bench.seen[-1].phase.begin() for _ in coins]
    rows, scores = [algorithm.last.server.row() for _ in coins], np.zeros(len(coins))
    # Whoever sees all check-ins knows what a rate remembers: it is made of them.
    alone, remembers = algorithm.schedule.alone, any(np.ndim(leaf) for leaf in trees.leaves(states[0].work))
    for version in range(releases):
        seen, plain = bench.seen_at(version), list[Release]()
        phase = seen.phase
        broadcast = phase.server.check_out(server)
        for at, first in enumerate(coins.tolist()):
            before = states[at]
            with np.errstate(all="ignore"):
                if remembers or not plain:
                    plain = [phase.device.step(broadcast, before.work, each, ZeroCoins())[0] for each in batches]
                sent, states[at] = phase.contribute(broadcast, before, batches[0 if first else 1], DeviceCoins())
            scores[at] += seen.score(sent, plain[0], plain[1])
            server, rows[at] = phase.server.absorb(server, rows[at], sent, np.int32(at if alone else 0))
            if alone or at == len(coins) - 1:
                server, _ = phase.server.commit(server)
    return scores
