"""central-sgd by hand: the server steps on rows as they are, or as the device has perturbed them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crowdml.core import NUMPY
from crowdml.core.ops import ZeroCoins
from crowdml.privacy.sanitisers.paper import PerturbedInputs
from crowdml.task import parse
from tests.support.by_hand import LABELS, ROWS, Ones, algorithm, batch, gradient, told
from tests.support.phases import model_of, one_version

SETTINGS = 'batch = 4\nrate = { kind = "inverse-sqrt", c = 2.0 }'
PAPER = """
crowdml = 1
name = "rows"
[data]
features = 2
labels = ["a", "b"]
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "central-sgd"
[privacy]
mode = "paper"
epsilon = 4.0
"""


def test_a_batch_is_a_step() -> None:
    made = algorithm(NUMPY, "central-sgd", SETTINGS)
    phase, w = made.last, np.zeros((2, 2))
    server = phase.server.init(Ones())
    for count in (1, 2, 3):
        check_in, _ = phase.contribute(phase.server.check_out(server), phase.begin(), batch(NUMPY), Ones())
        assert check_in.counts == ()
        server = one_version(phase, server, [check_in], np.int32(0))
        w = w - 2.0 / np.sqrt(count) * gradient(w, slice(0, 4))
        np.testing.assert_allclose(model_of(made, server)[0]["w"], w, rtol=1e-5)


def test_in_paper_mode_rows_and_labels_are_perturbed_and_nothing_else() -> None:
    phase = parse(PAPER).build(NUMPY).last
    assert isinstance(phase.sanitiser, PerturbedInputs)
    rows, targets = phase.sanitiser.rows(ROWS, LABELS, Ones())
    assert np.abs(rows - ROWS).min() > 0.1 and (targets != LABELS).all(), "every draw is 1: all labels are changed"
    plain = algorithm(NUMPY, "central-sgd", SETTINGS).last
    sent, same = (chosen.contribute(told(), chosen.begin(), batch(NUMPY), ZeroCoins())[0] for chosen in (phase, plain))
    np.testing.assert_array_equal(sent.update[0]["w"], same.update[0]["w"])
    other, _ = phase.contribute(told(), phase.begin(), replace(batch(NUMPY), rows=rows), ZeroCoins())
    assert not np.array_equal(other.update[0]["w"], sent.update[0]["w"])
