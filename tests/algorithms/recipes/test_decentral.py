"""decentral by hand: a device steps on its own model, and nothing leaves it."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import NUMPY, Ops, trees
from crowdml.simulation.engine.jax_ops import JAX
from tests.support.by_hand import WEIGHTS, Ones, algorithm, batch, gradient, told
from tests.support.phases import stepped

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)


@BOTH
def test_a_device_goes_on_from_its_own_model(ops: Ops) -> None:
    rate = 'rate = { kind = "inverse-sqrt", c = 2.0, counter = "device-contacts" }'
    phase = algorithm(ops, "decentral", f"batch = 4\n{rate}").last
    device, w = phase.begin(), WEIGHTS.astype(float)
    for count in (1, 2, 3):
        _, device = stepped(phase, told(), batch(ops), Ones(), device)
        w = w - 2.0 / np.sqrt(count) * gradient(w, slice(0, 4))
        np.testing.assert_allclose(phase.device.model(device.work)[0]["w"], w, rtol=1e-5)  # type: ignore[index]


def test_nothing_leaves_a_device_but_that_it_was_there() -> None:
    phase = algorithm(NUMPY, "decentral", "batch = 4").last
    check_in, _ = phase.contribute(told(), phase.begin(), batch(NUMPY), Ones())
    assert (check_in.update, check_in.counts) == ((), ())
    begun = phase.server.init(Ones())
    server, _ = phase.server.commit(phase.server.absorb(begun, (), check_in, np.int32(0))[0])
    for one, other in zip(
        *(trees.leaves(phase.server.report(state).parameters) for state in (begun, server)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
