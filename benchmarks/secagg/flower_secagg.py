"""Flower's SecAgg+ functions on the same sum: 50 devices, 100,000 values, 5 lost. Prints one line of JSON.

The functions are the peer's own; the order in which they are called is that of its mod and its workflow.
"""

from __future__ import annotations

import importlib
import json
import statistics
import time
from typing import Any

import numpy as np
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    factor_extract,
    get_parameters_shape,
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

mod = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")

DEVICES, LOST, SIZE, THRESHOLD = 50, 5, 100_000, 33
CLIP, TARGET, MODULUS = 8.0, 1 << 16, 1 << 32


def main() -> None:
    """Measure and print."""
    generator = np.random.default_rng(1)
    ids = list(range(1, DEVICES + 1))
    lost = set(generator.choice(ids, LOST, replace=False).tolist())
    alive = [member for member in ids if member not in lost]
    vector = generator.uniform(-1, 1, SIZE)
    cpu = dict.fromkeys(ids, 0.0)
    states: dict[int, Any] = {}

    def timed(member: int, function: Any, *arguments: Any) -> Any:
        began = time.process_time()
        found = function(*arguments)
        cpu[member] += time.process_time() - began
        return found

    setup = {
        Key.SAMPLE_NUMBER: DEVICES,
        Key.SHARE_NUMBER: DEVICES,
        Key.THRESHOLD: THRESHOLD,
        Key.CLIPPING_RANGE: CLIP,
        Key.TARGET_RANGE: TARGET,
        Key.MOD_RANGE: MODULUS,
        Key.MAX_WEIGHT: 1.0,
    }
    keys = {}
    for member in ids:
        states[member] = mod.SecAggPlusState()
        states[member].nid = member
        sent = timed(member, mod._setup, states[member], setup)
        keys[str(member)] = [sent[Key.PUBLIC_KEY_1], sent[Key.PUBLIC_KEY_2]]
    mail: dict[int, list[tuple[int, bytes]]] = {member: [] for member in ids}
    for member in ids:
        sent = timed(member, mod._share_keys, states[member], keys)
        for other, sealed in zip(sent[Key.DESTINATION_LIST], sent[Key.CIPHERTEXT_LIST], strict=True):
            mail[other].append((member, sealed))
    parameters = ndarrays_to_parameters([vector])
    bodies = {}
    for member in alive:
        got = {
            Key.SOURCE_LIST: [at for at, _ in mail[member]],
            Key.CIPHERTEXT_LIST: [sealed for _, sealed in mail[member]],
        }
        sent = timed(member, mod._collect_masked_vectors, states[member], got, 1, parameters)
        bodies[member] = sent[Key.MASKED_PARAMETERS]
    asked = {Key.ACTIVE_NODE_ID_LIST: alive, Key.DEAD_NODE_ID_LIST: sorted(lost)}
    reveals = {member: timed(member, mod._unmask, states[member], asked) for member in alive}

    began = time.process_time()
    mean = server(keys, ids, set(alive), bodies, reveals)
    server_s = time.process_time() - began
    assert np.abs(mean - vector).max() < 1e-2
    print(
        json.dumps(
            {
                "devices": DEVICES,
                "lost": LOST,
                "neighbours": DEVICES - 1,
                "device_ms": 1e3 * statistics.median(cpu[member] for member in alive),
                "server_s": server_s,
                "upload": sum(map(len, bodies[alive[0]])) / (2 * SIZE),
            }
        )
    )


def server(keys: Any, ids: list[int], alive: set[int], bodies: Any, reveals: Any) -> Any:
    """Do what the workflow does between the masked vectors and the mean."""
    total = None
    for member in sorted(alive):
        vectors = [bytes_to_ndarray(raw) for raw in bodies[member]]
        total = vectors if total is None else parameters_addition(total, vectors)
    total = parameters_mod(total, MODULUS)
    collected: dict[int, list[bytes]] = {member: [] for member in ids}
    for sent in reveals.values():
        for owner, share in zip(sent[Key.NODE_ID_LIST], sent[Key.SHARE_LIST], strict=True):
            collected[owner].append(share)
    for member, shares in collected.items():
        secret = combine_shares(shares)
        if member in alive:
            mask = pseudo_rand_gen(secret, MODULUS, get_parameters_shape(total))
            total = parameters_subtraction(total, mask)
            continue
        for other in (other for other in ids if other in alive):
            agreed = generate_shared_key(bytes_to_private_key(secret), bytes_to_public_key(keys[str(other)][0]))
            mask = pseudo_rand_gen(agreed, MODULUS, get_parameters_shape(total))
            total = (parameters_addition if member > other else parameters_subtraction)(total, mask)
    ratio, values = factor_extract(parameters_mod(total, MODULUS))
    mean = dequantize(values, CLIP, TARGET)[0]
    return (mean - (len(alive) - 1) * CLIP) * (TARGET / ratio)


if __name__ == "__main__":
    main()
