"""The server's algorithm over one vector is the algorithm over the model's own shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import parse
from crowdml.algorithms.live import StillCoins, assemble, example_check_in
from crowdml.core import NUMPY, Batch, trees
from crowdml.device import DeviceCoins
from crowdml.models import flatten
from crowdml.protocol import message

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


class Draws(StillCoins):
    """Coins that begin a model with different numbers everywhere."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.random.default_rng(len(stage)).uniform(0.1, 0.9, shape).astype(np.float32)


@pytest.mark.parametrize("form", list(FORMS))
def test_the_flat_server_does_what_the_tree_server_does(form: str) -> None:
    live = assemble(parse(TASK, changes=FORMS[form]), [])
    tree, flat = live.task.build(NUMPY), live.task.build(NUMPY, flat=True)
    servers = [tree.init(Draws()), flat.init(Draws())]
    row = [tree.row_init(), flat.row_init()]
    draws, steps = np.random.default_rng(3), 0
    size = max(tree.batch, tree.rounds.multiple if tree.rounds else 1)
    for number in range(7):
        rows = draws.standard_normal((size, 5)).astype(np.float32)
        batch = Batch(rows=rows, labels=draws.integers(0, 3, size).astype(np.int32), mask=np.ones(size, np.float32))
        release, _ = tree.device_step(tree.check_out(servers[0]), tree.device_init(), batch, DeviceCoins())
        body = live.messages.check_in.encode(message(0, tree.sanitise(release, DeviceCoins())))
        contents = [layout.check_in.decode(body)["content"] for layout in (live.messages, live.server_messages)]
        age = np.int32(number % 3)
        for at, algorithm in enumerate((tree, flat)):
            servers[at], row[at] = algorithm.absorb(servers[at], row[at], contents[at], age)
        together = 1 if tree.always_ready else 3 if form == "local-sgd" else 2
        if (number + 1) % together == 0:
            steps += 1
            servers = [algorithm.commit(own)[0] for algorithm, own in zip((tree, flat), servers, strict=True)]
        same(live, tree, flat, servers)
    assert steps >= 2 and not np.array_equal(flat.parameters(servers[1]), flat.parameters(flat.init(Draws())))


def same(live: Any, tree: Any, flat: Any, servers: list[Any]) -> None:
    vector = flat.parameters(servers[1])
    assert vector.dtype == np.float32 and vector.ndim == 1
    np.testing.assert_allclose(vector, flatten(tree.parameters(servers[0])), rtol=1e-6, atol=1e-7)
    outs = [message(1, algorithm.check_out(own)) for algorithm, own in zip((tree, flat), servers, strict=True)]
    bodies = [live.messages.check_out.encode(outs[0]), live.server_messages.check_out.encode(outs[1])]
    header = len(live.messages.check_out.header)
    assert bodies[0][:header] == bodies[1][:header] and len(bodies[0]) == len(bodies[1])
    read = [flatten(live.messages.check_out.decode(body)["content"]) for body in bodies]
    np.testing.assert_allclose(read[0], read[1], rtol=1e-6, atol=1e-7)
    if tree.totals:
        totals = [trees.leaves(algorithm.totals(own)) for algorithm, own in zip((tree, flat), servers, strict=True)]
        assert all(np.array_equal(a, b) for a, b in zip(*totals, strict=True))


@pytest.mark.parametrize("form", list(FORMS))
def test_the_flat_message_is_the_same_bytes(form: str) -> None:
    live = assemble(parse(TASK, changes=FORMS[form]), [])
    algorithm = live.algorithm
    content = example_check_in(algorithm, algorithm.check_out(algorithm.init(StillCoins())), 5)
    body = live.messages.check_in.encode(message(7, content))
    flat = live.server_messages.check_in.decode(body)
    assert live.server_messages.check_in.encode(flat) == body and flat["version"] == 7
    state = live.state.encode(live.server.init(StillCoins()))
    assert live.state.encode(live.state.decode(state)) == state
