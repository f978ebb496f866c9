"""The same net with PyTorch, channels last, on one thread. Prints CPU milliseconds and peak memory as JSON.

python torch_step.py ROWS STEPS
"""

import json
import os
import resource
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch
from torch import nn

BATCH, PREDICTED = 32, 1000


def net() -> nn.Module:
    """Two convolutions and two dense layers, 545,098 parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4096, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def main(rows: int, steps: int) -> None:
    """Take steps, a few of them before the clock starts; then predict."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss = net().to(memory_format=torch.channels_last), nn.CrossEntropyLoss()
    # Indexed in this order of axes, a batch comes out with its channels last in memory, without another copy.
    table, labels = torch.rand(rows, 32, 32, 3), torch.randint(0, 10, (rows,))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        chosen = torch.randint(0, rows, (BATCH,))
        optimiser.zero_grad()
        loss(model(table[chosen].permute(0, 3, 1, 2)), labels[chosen]).backward()
        optimiser.step()

    def predict() -> None:
        with torch.no_grad():
            for begin in range(0, PREDICTED, BATCH):
                model(table[begin : begin + BATCH].permute(0, 3, 1, 2)).argmax(1)

    def best(function, times: int) -> float:
        spent = []
        for _ in range(times + 5):
            began = time.process_time()
            function()
            spent.append(time.process_time() - began)
        return min(spent[5:]) * 1e3

    found = {"ms": best(step, steps), "predict_ms": best(predict, 5) * BATCH / PREDICTED}
    print(json.dumps(found | {"MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


main(int(sys.argv[1]), int(sys.argv[2]))
