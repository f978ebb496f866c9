"""Byzantine devices by hand: what the server part sees of them, at once or when a version is made."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdml.algorithms import Phase
from crowdml.algorithms.attacks import Attack
from crowdml.core import NUMPY, CheckIn
from crowdml.core.ops import ZeroCoins
from crowdml.simulation.attacked import Attacked, AttackedState, attack_of, attacked, forge
from crowdml.task import Task, parse
from tests.support.phases import model_of

TASK = """
crowdml = 1
name = "lies"
[data]
features = 2
labels = ["a", "b"]
[model]
kind = "softmax"
[algorithm]
kind = "fedsgd"
per-round = 3
rate = { kind = "constant", c = 1.0 }
[privacy]
mode = "none"
[crowd]
devices = 3
attack = { kind = "KIND" }
"""
LIES = (False, True, False)


def task(kind: str) -> Task:
    return parse(TASK.replace("KIND", kind))


def built(of: Task) -> tuple[Phase, Attack]:
    attack = attack_of(of, NUMPY)
    assert attack is not None
    return attacked(of.build(NUMPY), attack, NUMPY).last, attack


def absorbed(phase: Phase, attack: Attack, coins: Any) -> AttackedState:
    """Fold in gradients of 1, 2 and 3, the second of a Byzantine device."""
    server: Any = phase.server.init(coins)
    for number, lies in enumerate(LIES, start=1):
        check_in = CheckIn(update=({"w": np.full((2, 2), number, np.float32)},), weight=np.int32(1))
        forged: Any = forge(attack, check_in, np.bool_(lies), coins)
        server, _ = phase.server.absorb(server, phase.server.row(), forged, np.int32(0))
    assert isinstance(server, AttackedState)
    return server


class Loud(ZeroCoins):
    """Coins whose Gaussian draws are all 4."""

    def gaussian(self, stage: str, shape: tuple[int, ...]) -> Any:
        assert stage == "attack"
        return np.full(shape, 4, np.float32)


def test_noise_takes_the_place_of_a_check_in_at_once() -> None:
    phase, attack = built(task("noise"))
    server = absorbed(phase, attack, Loud())
    np.testing.assert_array_equal(server.server.window.updates[:3, 0], [1, 20, 3])  # 5 times what was drawn
    assert server.byzantine.tolist() == list(LIES)


def test_who_waits_for_the_others_lies_when_the_version_is_made() -> None:
    of = task("sign")
    phase, attack = built(of)
    server = absorbed(phase, attack, ZeroCoins())
    np.testing.assert_array_equal(server.server.window.updates[:3, 0], [1, 2, 3])
    after, _ = phase.server.commit(server)
    lie = -of.crowd.attack.scale * 2  # the honest mean, turned round
    expected = np.full((2, 2), -(1 + lie + 3) / 3)
    np.testing.assert_allclose(phase.server.report(after).parameters[0]["w"], expected, rtol=1e-6)
    assert not after.byzantine.any(), "the next version begins with nobody"


def test_devices_are_told_what_they_are_told_without_an_attack() -> None:
    of = task("alie")
    plain = of.build(NUMPY)
    phase, _ = built(of)
    begun = phase.server.init(ZeroCoins())
    assert isinstance(phase.server, Attacked) and phase.server.takes == "individuals"
    np.testing.assert_array_equal(
        phase.server.check_out(begun).parameters[0]["w"], model_of(plain, plain.last.server.init(ZeroCoins()))[0]["w"]
    )


def test_where_all_are_honest_nothing_is_wrapped() -> None:
    of = task("none")
    algorithm = of.build(NUMPY)
    assert attack_of(of, NUMPY) is None and attacked(algorithm, None, NUMPY) is algorithm
