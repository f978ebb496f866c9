"""Attacks by hand, over both namespaces."""

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.attacks import ATTACKS, Adaptive, Alie, InnerProduct, LabelFlip, NoAttack, Noise, Sign
from crowdml.core import NUMPY, Ops
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX
from tests.support.targets import some_labels

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
UPDATES = np.array([[1.0, 2.0], [3.0, 6.0], [100.0, 100.0], [0.0, 0.0]], np.float32)
HONEST, LYING = np.array([True, True, False, False]), np.array([False, False, True, False])


def rewritten(settings: Any, ops: Ops, outcome: Any = None) -> Any:
    rewrite = settings.build(some_labels(10), ops).rewrite
    plain = outcome or (lambda updates: updates[:3].mean(axis=0))
    return np.asarray(rewrite(ops.xp.asarray(UPDATES), ops.xp.asarray(HONEST), ops.xp.asarray(LYING), plain))


@BOTH
def test_informed_attacks_move_byzantine_devices_only(ops: Ops) -> None:
    for settings, lie in (
        (Sign(scale=3.0), [-6.0, -12.0]),
        (InnerProduct(scale=0.5), [-1.0, -2.0]),
        (Alie(z=1.5), [2.0 - 1.5, 4.0 - 3.0]),
    ):
        found = rewritten(settings, ops)
        np.testing.assert_allclose(found[2], lie, rtol=1e-6)
        np.testing.assert_array_equal(found[[0, 1, 3]], UPDATES[[0, 1, 3]])


@BOTH
def test_the_adaptive_attack_finds_what_hurts_the_rule_most(ops: Ops) -> None:
    np.testing.assert_allclose(rewritten(Adaptive(), ops)[2], [-16.0, -32.0], err_msg="the mean has no defence")

    def bounded(updates: Any) -> Any:
        """Drops whatever is longer than 5."""
        kept = (ops.xp.sum(updates**2, axis=1) < 25.0).astype(ops.xp.float32)
        return ops.xp.sum(updates * kept[:, None], axis=0) / 3

    lie = rewritten(Adaptive(), ops, bounded)[2]
    np.testing.assert_allclose(lie, [-2.0, -4.0], err_msg="the largest that is not dropped")


@BOTH
def test_noise_has_the_deviation_that_was_asked_for(ops: Ops) -> None:
    noise = Noise(deviation=5.0).build(some_labels(10), ops).noise
    assert noise is not None
    drawn = np.asarray(noise(HashCoins(trial_seed(0, 0), 1, ops), (4000,)))
    # Six standard errors of a standard deviation from 4000 draws: false alarm below 1e-8.
    assert abs(drawn.std() - 5.0) < 6 * 5.0 / np.sqrt(8000)


def test_labels_are_flipped() -> None:
    flip = LabelFlip().build(some_labels(10), NUMPY).targets
    assert flip is not None and flip(np.array([0, 3, 9])).tolist() == [9, 6, 0]


def test_a_share_is_at_least_one_device() -> None:
    assert NoAttack().byzantine(50) == 0
    assert (
        Sign(share=0.02).byzantine(50) == 1
        and Sign(share=0.001).byzantine(50) == 1
        and Sign(share=0.4).byzantine(50) == 20
    )
    assert set(ATTACKS) == {"none", "label-flip", "sign", "noise", "alie", "inner-product", "adaptive"}
