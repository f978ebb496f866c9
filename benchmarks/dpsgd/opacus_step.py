"""One training step with PyTorch: plain, or private by Opacus. Prints CPU milliseconds and peak memory as JSON.

python opacus_step.py plain|channels-last|hooks|ghost STEPS
"""

import json
import os
import resource
import sys
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"
import torch
from torch import nn

BATCH = 256


def net() -> nn.Module:
    """Two convolutions and three dense layers."""
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
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def prepare(kind: str):
    """Return a function that takes one step."""
    torch.manual_seed(0)
    model, loss = net(), nn.CrossEntropyLoss()
    rows, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    if kind == "channels-last":
        model, rows = model.to(memory_format=torch.channels_last), rows.to(memory_format=torch.channels_last)
    if kind in ("hooks", "ghost"):
        from opacus import PrivacyEngine

        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, labels), batch_size=BATCH)
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=optimiser,
            data_loader=loader,
            criterion=loss,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            grad_sample_mode=kind,
        )
        model, optimiser = made[0], made[1]
        loss = made[2] if kind == "ghost" else loss

    def step() -> None:
        optimiser.zero_grad()
        loss(model(rows), labels).backward()
        optimiser.step()

    return step


def main(kind: str, steps: int) -> None:
    """Take steps, two of them before the clock starts."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    step = prepare(kind)
    step()
    step()
    spent = []
    for _ in range(steps):
        began = time.process_time()
        step()
        spent.append(time.process_time() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ms": sorted(spent)[len(spent) // 2] * 1e3, "best_ms": min(spent) * 1e3, "MiB": memory}))


main(sys.argv[1], int(sys.argv[2]))
