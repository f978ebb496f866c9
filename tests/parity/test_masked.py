"""A masked sum is the sum: machines, step-by-step simulation and plain addition agree, with the same coins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import parse
from crowdml.algorithms.live import assemble
from crowdml.core import NUMPY, Batch
from crowdml.models import flatten
from crowdml.protocol.sums.rehearsal import Members, Rehearsal
from crowdml.simulation.coins import HashCoins, trial_seed

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
[sums]
masked = true
law = "LAW"
[stop]
max-releases = 5
"""
KINDS = {
    "fedavg": "per-round = 6\nlocal-batch = 5",
    "fedsgd": "per-round = 6\nmax-rows = 10",
    "local-sgd": "server-batch = 6\nlocal-steps = 2\nlocal-batch = 5",
}


def live_task(kind: str, mode: str, law: str) -> Any:
    text = TASK.replace("KIND", kind).replace("GROUP", KINDS[kind]).replace("LAW", law).replace("MODE", mode)
    if mode == "none":
        text = text.replace("epsilon = 4.0\ndelta = 1e-5\nclip = 1.0\n", "")
    return assemble(parse(text), [own.restore({}) for own in parse(text).data.transform])


@pytest.mark.parametrize("law", ["discrete-gaussian", "skellam"])
@pytest.mark.parametrize("mode", ["sound", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_masked_sum_is_what_a_simulation_adds_up(kind: str, mode: str, law: str) -> None:
    live = live_task(kind, mode, law)
    form, algorithm, seed = live.masked, live.algorithm, trial_seed(1, 0)
    generator = np.random.default_rng(2)
    state = algorithm.init(HashCoins(seed, np.uint32(0), NUMPY))
    server = live.server.init(HashCoins(seed, np.uint32(0), NUMPY))
    check_ins, vectors, noises = {}, {}, {}
    for slot in range(6):
        batch = Batch(
            rows=generator.random((10, 4)).astype(np.float32) / 4,
            labels=generator.integers(0, 3, 10).astype(np.int32),
            mask=np.ones(10, np.float32),
        )
        coins = HashCoins(seed, np.uint32(slot + 1), NUMPY)
        release, _ = algorithm.device_step(algorithm.check_out(state), algorithm.device_init(), batch, coins)
        check_ins[slot] = algorithm.sanitise(release, coins)
        vectors[slot], noises[slot] = form.vector(release, check_ins[slot])
    own = Rehearsal(form.terms, Members("masked"), range(6), {4: 3})
    own.greet()
    own.settle()
    own.exchange()
    for slot in (0, 1, 2, 3, 5):
        own.server.masked(slot, own.devices[slot].mask(own.server.mail(slot), vectors[slot], noises[slot]))
    own.server.close_masked()
    own.agree()
    result = own.finish()
    assert result.survivors == (0, 1, 2, 3, 5)
    plain = sum(vectors[slot] + (0 if noises[slot] is None else noises[slot]) for slot in result.survivors)
    assert result.total.tolist() == plain.tolist()
    together, _ = live.server.absorb(server, (), form.check_in(result.total, 5), np.int32(0))
    for slot in result.survivors:
        flat = {
            name: flatten(part) if name in ("gradient", "change") else part for name, part in check_ins[slot].items()
        }
        server, _ = live.server.absorb(server, (), flat, np.int32(0))
    one, each = (live.server.commit(found)[0].parameters for found in (together, server))
    assert np.allclose(one, each, rtol=1e-5, atol=1e-5)
