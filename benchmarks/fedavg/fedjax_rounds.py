"""Federated averaging with FedJAX' own algorithm. Prints CPU milliseconds per round and test accuracy as JSON.

python fedjax_rounds.py DATA.npz ROUNDS

The net is a plain JAX function, on one thread, compiled by FedJAX; compiling is in the first rounds, which do not
count.
"""

import json
import os
import sys
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg

DEVICES, PER_ROUND, BATCH, RATE = 100, 10, 32, 0.1
WARM = 2


def scores(params, rows):
    """784-200-10."""
    hidden = jax.nn.relu(rows @ params["first"] + params["first_bias"])
    return hidden @ params["second"] + params["second_bias"]


def loss(params, batch, key):
    """Mean cross-entropy of a batch."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(scores(params, batch["x"])), batch["y"][:, None], axis=1)
    return -chosen.mean()


def start(generator: np.random.Generator) -> dict:
    """PyTorch's first numbers."""

    def some(inputs: int, *shape: int):
        return jnp.asarray(generator.uniform(-1, 1, shape) / np.sqrt(inputs), jnp.float32)

    return {
        "first": some(784, 784, 200),
        "first_bias": some(784, 200),
        "second": some(200, 200, 10),
        "second_bias": some(200, 10),
    }


def main(path: str, rounds: int) -> None:
    """Train, and time all rounds but the first two."""
    with np.load(path) as data:
        rows, labels = data["rows"], data["labels"].astype(np.int32)
        test_rows, test_targets = data["test_rows"], data["test_targets"]
    generator = np.random.default_rng(0)
    shards = generator.permutation(len(labels)).reshape(DEVICES, -1)
    devices = [fedjax.ClientDataset({"x": rows[shard], "y": labels[shard]}) for shard in shards]
    algorithm = fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.sgd(RATE),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1, seed=0),
    )
    state = algorithm.init(start(generator))
    for number in range(rounds):
        if number == WARM:
            jax.block_until_ready(state.params)
            began = time.process_time()
        chosen = generator.permutation(DEVICES)[:PER_ROUND]
        keys = jax.random.split(jax.random.PRNGKey(number), PER_ROUND)
        state, _ = algorithm.apply(
            state, [(str(each).encode(), devices[each], key) for each, key in zip(chosen, keys, strict=True)]
        )
    jax.block_until_ready(state.params)
    cpu = (time.process_time() - began) / (rounds - WARM)
    accuracy = float((scores(state.params, test_rows).argmax(1) == test_targets).mean())
    print(json.dumps({"ms": cpu * 1e3, "accuracy": accuracy}))


main(sys.argv[1], int(sys.argv[2]))
