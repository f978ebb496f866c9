"""consensus-newton against its formula: squares first, then steps along the inverse of what they give."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput
from tests.support.by_hand import ROWS, Ones, algorithm, batch, gradient, task
from tests.support.phases import model_of, one_version

SETTINGS = "per-round = 2\ncurvature = 0.2\nfloor = 0.01\nrate = 0.5"
SOUND = 'mechanism = "gaussian"\nclip = 1.0\nepsilon = 8.0\ndelta = 1e-5\nmax-uses = 6'


def test_two_rounds_by_hand() -> None:
    made = algorithm(NUMPY, "consensus-newton", SETTINGS, model="regularisation = 0.1")
    server, w = made.last.server.init(Ones()), np.zeros((2, 2))
    matrix = 0.2 * sum(ROWS[:real].T @ ROWS[:real] for real in (4, 2)) / 6 + 0.01 * np.eye(2)
    for version in range(3):
        phase = made.at(version)
        told = phase.server.check_out(server)
        check_ins = [phase.contribute(told, phase.begin(), batch(NUMPY, real), Ones())[0] for real in (4, 2)]
        assert [int(check_in.weight) for check_in in check_ins] == [4, 2]
        server = one_version(phase, server, check_ins, np.int32(0))
        if version:
            mean = (4 * gradient(w, slice(0, 4)) + 2 * gradient(w, slice(0, 2))) / 6 + 0.1 * w
            w = w - 0.5 * np.linalg.solve(matrix, mean.T).T
        np.testing.assert_allclose(model_of(made, server)[0]["w"], w, rtol=1e-4, atol=1e-6)
    assert np.abs(w).max() > 0.1


def test_the_squares_are_a_phase_of_one_version_with_uses_of_its_own() -> None:
    made = task("consensus-newton", SETTINGS + "\nfirst-uses = 3", SOUND, score="logistic").build(NUMPY)
    assert [(phase.versions, phase.uses) for phase in made.phases] == [(1, 3), (None, 1)]
    assert made.at(0) is made.phases[0] and made.at(1) is made.at(9) is made.last
    plain = task("consensus-newton", SETTINGS + "\nfirst-uses = 3", score="logistic").build(NUMPY)
    assert plain.phases[0].uses == 1, "nothing is promised, so nothing is used up"


def test_a_model_of_several_layers_is_refused() -> None:
    with pytest.raises(BadInput, match="one dense layer"):
        task("consensus-newton", score="mlp")
