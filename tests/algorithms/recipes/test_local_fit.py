"""local-fit: every device finds the minimum over its rows, and nothing leaves it."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput
from tests.support.by_hand import WEIGHTS, Ones, algorithm, batch, gradient, task, told
from tests.support.phases import stepped


def test_the_slope_is_zero_at_what_a_device_has_found() -> None:
    phase = algorithm(NUMPY, "local-fit", "beta = 0.3\nnewton-steps = 60", model="regularisation = 0.1").last
    _, device = stepped(phase, told(), batch(NUMPY), Ones())
    w = phase.device.model(device.work)[0]["w"]  # type: ignore[index]
    slope = 4 * gradient(w, slice(0, 4)) + (0.3 + 4 * 0.1) * w
    assert np.abs(slope).max() < 1e-3 < np.abs(w - WEIGHTS).max()


def test_nothing_leaves_a_device() -> None:
    phase = algorithm(NUMPY, "local-fit").last
    check_in, _ = phase.contribute(told(), phase.begin(), batch(NUMPY), Ones())
    assert (check_in.update, check_in.counts) == ((), ())


def test_what_is_not_convex_is_refused() -> None:
    with pytest.raises(BadInput, match="convex"):
        task("local-fit", score="mlp")
