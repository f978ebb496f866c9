"""Whether a device sends must not follow from its rows: whatever they are, there is a message of bounded integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, Batch, DeviceState, trees
from crowdml.core.ops import ZeroCoins
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.task.live_task import masked_forms
from tests.audit.attacked_tasks import IN_STEPS, IN_SUMS, SOUND, attacked_task

STRANGE = (0.0, 1e-45, 1e3, 1e6, 1e10, 1e19, 3e38, np.inf, np.nan)
"""Equal features of that size leave nothing of a ridge in single precision, or overflow, or are no numbers."""
TASKS: list[dict[str, Any]] = [
    *({"recipe": recipe, "unit": unit} for recipe in SOUND for unit in ("sample", "device")),
    *({"recipe": recipe, "law": "discrete-gaussian"} for recipe in IN_SUMS),
    {"recipe": "admm-sums", "law": "skellam", "unit": "device"},
    *({"recipe": recipe, "steps": True} for recipe in IN_STEPS),
]


def batch_of(value: float, size: int) -> Batch:
    rows = np.full((size, 6), value, np.float32)
    rows[::3] *= np.float32(-1)
    return Batch(rows=rows, targets=(np.arange(size) % 2).astype(np.int32), mask=np.ones(size, np.float32))


@pytest.mark.parametrize("given", TASKS, ids=lambda given: " ".join(map(str, given.values())))
@np.errstate(all="ignore")
def test_whatever_the_rows_a_device_says_something(given: dict[str, Any]) -> None:
    task = attacked_task(**given)
    algorithm = task.build(NUMPY)
    forms, schedule = masked_forms(task, algorithm), algorithm.schedule
    size = 6 * schedule.multiple if schedule.whole else schedule.batch
    broadcast = algorithm.last.server.check_out(algorithm.last.server.init(ZeroCoins()))
    for number, phase in enumerate(algorithm.phases):
        for value in STRANGE:
            device, coins = phase.begin(), DeviceCoins()
            # Twice, as what is remembered of such rows must not silence a device later.
            for _ in range(2):
                release, work = phase.device.step(broadcast, device.work, batch_of(value, size), coins)
                check_in, device = phase.finish(broadcast, release, DeviceState(work=work, noise=device.noise), coins)
                if forms:
                    vector, _noise = forms[number].vector(release, check_in)
                    assert int(np.abs(vector).max()) <= forms[number].terms.largest
                elif phase.sanitiser.on_grid:
                    assert all(leaf.dtype == np.int32 for leaf in trees.leaves(check_in.update))
