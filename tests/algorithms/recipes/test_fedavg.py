"""fedavg against steps written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.algorithms import Rounds
from crowdml.core import NUMPY, Ops
from crowdml.simulation.engine.jax_ops import JAX
from tests.support.by_hand import Ones, algorithm, batch, told, walk
from tests.support.phases import model_of, one_version, stepped

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
SETTINGS = 'local-batch = 1\nper-round = 2\nrate = { kind = "constant", c = 0.5 }'


@BOTH
def test_a_device_steps_over_real_rows_only_and_sends_weight_times_change(ops: Ops) -> None:
    made = algorithm(ops, "fedavg", SETTINGS, model="regularisation = 0.1")
    plain = algorithm(ops, "fedavg", SETTINGS).last
    begun = told(count=ops.xp.int32(1))
    release, device = stepped(plain, begun, batch(ops, 3), Ones())
    np.testing.assert_allclose(release.update[0]["w"], walk([0.5] * 3, 1), rtol=1e-5, atol=1e-7)
    check_in, _ = plain.finish(begun, release, device, Ones())
    assert int(check_in.weight) == 3
    np.testing.assert_allclose(check_in.update[0]["w"], 3 * walk([0.5] * 3, 1), rtol=1e-5, atol=1e-7)
    # The regulariser does not act on padding either.
    few, _ = stepped(made.last, begun, batch(ops, 0), Ones())
    np.testing.assert_array_equal(few.update[0]["w"], np.zeros((2, 2)))


def test_devices_count_as_they_have_rows_or_alike() -> None:
    for averaging, weights in (("size", (1, 3)), ("equal", (1, 1))):
        made = algorithm(NUMPY, "fedavg", f'{SETTINGS}\naveraging = "{averaging}"')
        part, changes, check_ins = made.last.server, [], []
        begun = part.init(Ones())
        for real in (1, 3):
            release, device = stepped(made.last, part.check_out(begun), batch(NUMPY, real), Ones())
            changes.append(release.update[0]["w"])
            check_ins.append(made.last.finish(part.check_out(begun), release, device, Ones())[0])
        assert tuple(int(check_in.weight) for check_in in check_ins) == weights
        server = one_version(made.last, begun, check_ins, np.int32(0))
        expected = np.average(changes, axis=0, weights=weights)
        np.testing.assert_allclose(model_of(made, server)[0]["w"], expected, rtol=1e-5)


def test_a_round_goes_through_all_rows_in_whole_steps() -> None:
    made = algorithm(NUMPY, "fedavg", "local-batch = 5\nper-round = 2\nepochs = 3")
    assert made.schedule == Rounds(cohort=2, epochs=3, multiple=5)
