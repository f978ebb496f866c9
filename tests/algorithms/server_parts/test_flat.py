"""The server's algorithm over one vector is the algorithm over the model's own shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import ServerPart
from crowdml.core import NUMPY, Batch, trees
from crowdml.core.ops import ZeroCoins
from crowdml.device import DeviceCoins
from crowdml.models import flatten
from crowdml.task import parse
from crowdml.task.live_task import LiveTask, assemble, example_check_in, first_broadcast
from crowdml.wire import message

TASK = """
crowdml = 1
name = "walk"
[data]
features = 5
labels = ["a", "b", "c"]
[model]
kind = "softmax"
regularisation = 0.01
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
"""
SOUND = [
    "privacy={ mode = 'sound', epsilon = 100.0, max-uses = 3, clip = 1.0 }",
    "stop.max-releases=50",
    "crowd.passes=3",
]
MLP = ["model={ kind = 'mlp', layers = [4], regularisation = 0.01 }"]
FORMS: dict[str, list[str]] = {
    "crowd-sgd": [],
    "crowd-sgd, sound": SOUND,
    "crowd-sgd, adagrad": ["algorithm={ kind = 'crowd-sgd', rate = { kind = 'adagrad', c = 0.5 } }"],
    "crowd-sgd, rmsprop": ["algorithm={ kind = 'crowd-sgd', rate = { kind = 'rmsprop', c = 0.5 } }"],
    "crowd-sgd, small ball": ["algorithm={ kind = 'crowd-sgd', radius = 0.1 }"],
    "crowd-sgd, weighted": ["algorithm={ kind = 'crowd-sgd', stale = 'weight' }"],
    "local-sgd": ["algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 3, server-batch = 3 }"],
    "local-sgd, gradients": [
        "algorithm={ kind = 'local-sgd', local-steps = 0, server-batch = 2, "
        "rate = { kind = 'inverse', c = 1.0, counter = 'check-ins' } }"
    ],
    "fedavg": ["algorithm={ kind = 'fedavg', per-round = 2, local-batch = 3 }"],
    "fedsgd": ["algorithm={ kind = 'fedsgd', per-round = 2 }"],
    "mlp": MLP,
}


class Draws(ZeroCoins):
    """Coins that begin a model with different numbers everywhere."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.random.default_rng(len(stage)).uniform(0.1, 0.9, shape).astype(np.float32)


@pytest.mark.parametrize("form", list(FORMS))
def test_the_flat_server_does_what_the_tree_server_does(form: str) -> None:
    live = assemble(parse(TASK, changes=FORMS[form]), [])
    algorithm, phase = live.algorithm, live.algorithm.last
    parts = [live.task.build(NUMPY, flat=flat).last.server for flat in (False, True)]
    servers, rows = [part.init(Draws()) for part in parts], [part.row() for part in parts]
    draws, steps, size = np.random.default_rng(3), 0, algorithm.schedule.batch
    for number in range(7):
        features = draws.standard_normal((size, 5)).astype(np.float32)
        targets = draws.integers(0, 3, size).astype(np.int32)
        batch = Batch(rows=features, targets=targets, mask=np.ones(size, np.float32))
        check_in, _ = phase.contribute(parts[0].check_out(servers[0]), phase.begin(), batch, DeviceCoins())
        body = live.messages.check_in.encode(message(0, check_in))
        contents = [layout.check_in.decode(body)["content"] for layout in (live.messages, live.server_messages)]
        age = np.int32(number % 3)
        for at, part in enumerate(parts):
            servers[at], rows[at] = part.absorb(servers[at], rows[at], contents[at], age)
        if (number + 1) % algorithm.schedule.cohort == 0:
            steps += 1
            servers = [part.commit(server)[0] for part, server in zip(parts, servers, strict=True)]
        same(live, parts, servers)
    begun = parts[1].report(parts[1].init(Draws())).parameters
    assert steps >= 2 and not np.array_equal(parts[1].report(servers[1]).parameters, begun)


def same(live: LiveTask, parts: list[ServerPart], servers: list[Any]) -> None:
    reports = [part.report(server) for part, server in zip(parts, servers, strict=True)]
    vector = reports[1].parameters
    assert vector.dtype == np.float32 and vector.ndim == 1
    np.testing.assert_allclose(vector, flatten(reports[0].parameters), rtol=1e-6, atol=1e-7)
    outs = [message(1, part.check_out(server)) for part, server in zip(parts, servers, strict=True)]
    bodies = [live.messages.check_out.encode(outs[0]), live.server_messages.check_out.encode(outs[1])]
    header = len(live.messages.check_out.header)
    assert bodies[0][:header] == bodies[1][:header] and len(bodies[0]) == len(bodies[1])
    read = [flatten(live.messages.check_out.decode(body)["content"]) for body in bodies]
    np.testing.assert_allclose(read[0], read[1], rtol=1e-6, atol=1e-7)
    assert all(np.array_equal(a, b) for a, b in zip(*(trees.leaves(report.counts) for report in reports), strict=True))


@pytest.mark.parametrize("form", list(FORMS))
def test_the_flat_message_is_the_same_bytes(form: str) -> None:
    live = assemble(parse(TASK, changes=FORMS[form]), [])
    algorithm = live.algorithm
    content = example_check_in(algorithm, algorithm.last, first_broadcast(algorithm), 5)
    body = live.messages.check_in.encode(message(7, content))
    flat = live.server_messages.check_in.decode(body)
    assert live.server_messages.check_in.encode(flat) == body and flat["version"] == 7
    state = live.state.encode(live.server.last.server.init(ZeroCoins()))
    assert live.state.encode(live.state.decode(state)) == state
