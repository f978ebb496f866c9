"""fedsgd against steps written out by hand."""

from __future__ import annotations

import numpy as np

from crowdml.core import NUMPY
from tests.support.by_hand import Ones, algorithm, batch, gradient
from tests.support.phases import model_of, one_version

ZERO = np.zeros((2, 2))
EACH = [gradient(ZERO, slice(0, 1)), gradient(ZERO, slice(0, 3))]


def test_gradients_are_averaged_by_size() -> None:
    assert_averaged("", (1, 3))


def test_where_devices_may_lie_they_count_alike() -> None:
    """How many rows a device has is its word."""
    assert_averaged('[robust]\nrule = { kind = "mean" }\nnorm-bound = 100.0', (1, 1))


def assert_averaged(more: str, weights: tuple[int, int]) -> None:
    made = algorithm(NUMPY, "fedsgd", f'per-round = 2\nrate = {{ kind = "constant", c = 0.5 }}\n{more}')
    phase = made.last
    server = phase.server.init(Ones())
    told = phase.server.check_out(server)
    check_ins = [phase.contribute(told, phase.begin(), batch(NUMPY, real), Ones())[0] for real in (1, 3)]
    assert tuple(int(check_in.weight) for check_in in check_ins) == weights
    server = one_version(phase, server, check_ins, np.int32(0))
    expected = -0.5 * np.average(EACH, axis=0, weights=weights)
    np.testing.assert_allclose(model_of(made, server)[0]["w"], expected, rtol=1e-5)
