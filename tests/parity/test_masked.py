"""A masked sum is the sum: machines, step-by-step simulation and plain addition agree, with the same coins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, Batch
from crowdml.models import flatten
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.task import parse
from crowdml.task.live_task import assemble
from tests.support.phases import stepped
from tests.support.rehearsal import Members, Rehearsal

TASK = """
crowdml = 1
name = "masked"
[data]
features = 4
labels = ["a", "b", "c"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "KIND"
GROUP
[privacy]
mode = "MODE"
mechanism = "gaussian"
unit = "device"
epsilon = 4.0
delta = 1e-5
clip = 1.0
[secure-aggregation]
enabled = true
law = "LAW"
[stop]
max-releases = 5
"""
KINDS = {
    "fedavg": "per-round = 6\nlocal-batch = 5",
    "fedsgd": "per-round = 6\nmax-rows = 10",
    "fedyogi": "per-round = 6\nlocal-batch = 5",
    "scaffold": "per-round = 6\nlocal-batch = 5\ndevices = 6",
    "dp-fedavg": "per-round = 6\nlocal-batch = 5\nfirst-clip = 0.2",
    "local-sgd": "server-batch = 6\nlocal-steps = 2\nlocal-batch = 5",
}


def live_task(kind: str, mode: str, law: str) -> Any:
    text = TASK.replace("KIND", kind).replace("GROUP", KINDS[kind]).replace("LAW", law).replace("MODE", mode)
    if kind == "dp-fedavg":
        text = text.replace("clip = 1.0\n", "")
    if mode == "none":
        text = text.replace("clip = 1.0\n", "").replace("epsilon = 4.0\ndelta = 1e-5\n", "")
    return assemble(parse(text), [transform.restore({}) for transform in parse(text).data.transform])


@pytest.mark.parametrize("law", ["discrete-gaussian", "skellam"])
@pytest.mark.parametrize("mode", ["sound", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_masked_sum_is_what_a_simulation_adds_up(kind: str, mode: str, law: str) -> None:
    live = live_task(kind, mode, law)
    form, phase, part, seed = live.masked, live.algorithm.last, live.server.last.server, trial_seed(1, 0)
    generator = np.random.default_rng(2)
    begun = phase.server.check_out(phase.server.init(HashCoins(seed, np.uint32(0), NUMPY)))
    server = part.init(HashCoins(seed, np.uint32(0), NUMPY))
    check_ins, vectors, noises = {}, {}, {}
    for slot in range(6):
        batch = Batch(
            rows=generator.random((10, 4)).astype(np.float32) / 4,
            targets=generator.integers(0, 3, 10).astype(np.int32),
            mask=np.ones(10, np.float32),
        )
        coins = HashCoins(seed, np.uint32(slot + 1), NUMPY)
        release, device = stepped(phase, begun, batch, coins)
        check_ins[slot], _ = phase.finish(begun, release, device, coins)
        vectors[slot], noises[slot] = form.vector(release, check_ins[slot])
    rehearsal = Rehearsal(form.terms, Members("masked"), range(6), {4: 3})
    rehearsal.greet()
    rehearsal.settle()
    rehearsal.exchange()
    for slot in (0, 1, 2, 3, 5):
        rehearsal.server.masked(
            slot, rehearsal.devices[slot].mask(rehearsal.server.mail(slot), vectors[slot], noises[slot])
        )
    rehearsal.server.close_masked()
    rehearsal.agree()
    result = rehearsal.finish()
    assert result.survivors == (0, 1, 2, 3, 5)
    plain = sum(vectors[slot] + (0 if noises[slot] is None else noises[slot]) for slot in result.survivors)
    assert result.total.tolist() == plain.tolist()
    summed, _ = part.absorb(server, (), form.check_in(result.total, 5), np.int32(0))
    for slot in result.survivors:
        flat = replace(check_ins[slot], update=flatten(check_ins[slot].update))
        server, _ = part.absorb(server, (), flat, np.int32(0))
    one, each = (part.commit(found)[0].parameters for found in (summed, server))
    assert np.allclose(one, each, rtol=1e-5, atol=1e-5)
