"""Federated averaging as the obvious PyTorch loop. Prints CPU milliseconds per round and test accuracy as JSON.

python torch_loop.py DATA.npz ROUNDS
"""

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch

DEVICES, PER_ROUND, BATCH, RATE = 100, 10, 32, 0.1


def main(path: str, rounds: int) -> None:
    """Train, and time all rounds but the first two."""
    with np.load(path) as data:
        rows, labels = torch.from_numpy(data["rows"]), torch.from_numpy(data["labels"].astype(np.int64))
        test_rows, test_targets = torch.from_numpy(data["test_rows"]), torch.from_numpy(data["test_targets"])
    generator = torch.Generator().manual_seed(0)
    shards = torch.randperm(len(labels), generator=generator).reshape(DEVICES, -1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
    loss = torch.nn.CrossEntropyLoss()

    def one_round() -> None:
        start = [leaf.detach().clone() for leaf in model.parameters()]
        total = [torch.zeros_like(leaf) for leaf in start]
        for device in torch.randperm(DEVICES, generator=generator)[:PER_ROUND]:
            with torch.no_grad():
                for leaf, first in zip(model.parameters(), start, strict=True):
                    leaf.copy_(first)
            optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
            shard = shards[device]
            order = shard[torch.randperm(len(shard), generator=generator)]
            for batch in order.split(BATCH):
                optimiser.zero_grad()
                loss(model(rows[batch]), labels[batch]).backward()
                optimiser.step()
            with torch.no_grad():
                for leaf, sum_ in zip(model.parameters(), total, strict=True):
                    sum_ += leaf
        with torch.no_grad():
            for leaf, sum_ in zip(model.parameters(), total, strict=True):
                leaf.copy_(sum_ / PER_ROUND)

    one_round()
    one_round()
    began = time.process_time()
    for _ in range(rounds - 2):
        one_round()
    cpu = (time.process_time() - began) / (rounds - 2)
    with torch.no_grad():
        accuracy = (model(test_rows).argmax(1) == test_targets).float().mean().item()
    print(json.dumps({"ms": cpu * 1e3, "accuracy": accuracy}))


main(sys.argv[1], int(sys.argv[2]))
