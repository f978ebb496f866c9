"""The mean of versions as the model, for an algorithm that knows nothing of it."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Batch, trees
from crowdml.core.ops import ZeroCoins
from crowdml.task import parse

TASK = """
crowdml = 1
name = "walk"
[data]
features = 3
labels = ["standing", "walking"]
[model]
kind = "softmax"
[algorithm]
kind = "fedsgd"
per-round = 1
rate = { kind = "momentum", c = 1.0, momentum = 0.5 }
[privacy]
mode = "none"
"""


def versions(*changes: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return what devices were given, and the model, after each of five rounds."""
    phase, coins, draws = parse(TASK, changes=changes).build(NUMPY).last, ZeroCoins(), np.random.default_rng(1)
    part = phase.server
    server, given, models = part.init(coins), [], []
    for _ in range(5):
        batch = Batch(
            rows=draws.standard_normal((4, 3)).astype(np.float32),
            targets=draws.integers(0, 2, 4).astype(np.int32),
            mask=np.ones(4, np.float32),
        )
        check_in, _ = phase.contribute(part.check_out(server), phase.begin(), batch, coins)
        server, _ = part.absorb(server, part.row(), check_in, np.int32(0))
        server, _ = part.commit(server)
        given.append(np.concatenate([leaf.ravel() for leaf in trees.leaves(part.check_out(server))]))
        models.append(np.concatenate([leaf.ravel() for leaf in trees.leaves(part.report(server).parameters)]))
    return given, models


def test_the_model_is_the_mean_from_one_version_on_and_devices_go_on_from_the_last() -> None:
    last, plain = versions()
    given, models = versions("algorithm.average-from=3")
    np.testing.assert_array_equal(given, last)
    np.testing.assert_array_equal(plain, last)
    for version in (1, 2):
        np.testing.assert_array_equal(models[version - 1], last[version - 1])
    for version in (3, 4, 5):
        np.testing.assert_allclose(models[version - 1], np.mean(last[2:version], axis=0), rtol=1e-5)


@pytest.mark.parametrize("begin", ["0", "-1", "2.5"])
def test_versions_are_counted_from_one(begin: str) -> None:
    with pytest.raises(BadInput, match="average-from"):
        parse(TASK, changes=[f"algorithm.average-from={begin}"])
