"""Federated averaging in Flower's simulation. Prints CPU milliseconds per round, and accuracy, as JSON.

python flower_rounds.py DATA.npz ROUNDS train|idle

Ten of a hundred devices take part. With `train` each trains as the plain PyTorch loop does; with `idle` it sends back
what it got: no row is read, and training would come on top. CPU time is that of all processes of the simulation.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # or rounds hardly go on beside other work
os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.app.message import Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

DEVICES, PER_ROUND, ROWS, BATCH, RATE = 100, 10, 576, 32, 0.1
WARM = 3

device, server = ClientApp(), ServerApp()
marks: list[float] = []
last: list[ArrayRecord] = []
DATA, ROUNDS, KIND = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def cpu_seconds() -> float:
    """CPU time of this process and of all that descend from it, in whatever way they were started."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(path.parent.name)
        parents[number], ticks[number] = int(fields[1]), sum(map(int, fields[11:15]))
    found, family = 0, {os.getpid()}
    while len(family) > found:
        found = len(family)
        family |= {number for number, parent in parents.items() if parent in family}
    return sum(ticks.get(number, 0) for number in family) / os.sysconf("SC_CLK_TCK")


def load(path: str) -> tuple[torch.Tensor, ...]:
    """Read rows and labels, once in a process. Functions travel as copies: what is kept must be found by name."""
    kept = vars(torch)
    if "_crowdml_rows" not in kept:
        kept["_crowdml_rows"] = read(path)
    return kept["_crowdml_rows"]


def read(path: str) -> tuple[torch.Tensor, ...]:
    """Read rows, labels and shards."""
    torch.set_num_threads(1)
    with np.load(path) as data:
        names = ("rows", "labels", "test_rows", "test_targets")
        rows, labels, test_rows, test_targets = (torch.from_numpy(data[name]) for name in names)
    shards = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).reshape(DEVICES, -1)
    return rows, labels.long(), test_rows, test_targets, shards


def net(arrays: list[np.ndarray]) -> torch.nn.Module:
    """Return 784-200-10 with these parameters."""
    model = torch.nn.Sequential(torch.nn.Linear(784, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
    with torch.no_grad():
        for leaf, value in zip(model.parameters(), arrays, strict=True):
            leaf.copy_(torch.from_numpy(value))
    return model


def trained(model: torch.nn.Module, path: str, number: int) -> list[np.ndarray]:
    """Go through a device's rows once."""
    rows, labels, _, _, shards = load(path)
    optimiser, loss = torch.optim.SGD(model.parameters(), lr=RATE), torch.nn.CrossEntropyLoss()
    order = shards[number][torch.randperm(ROWS)]
    for batch in order.split(BATCH):
        optimiser.zero_grad()
        loss(model(rows[batch]), labels[batch]).backward()
        optimiser.step()
    return [leaf.detach().numpy() for leaf in model.parameters()]


@device.train()
def train(message, context):
    """Train, or send the parameters back."""
    arrays = message.content["arrays"]
    if KIND == "train":
        number = int(context.node_config["partition-id"])
        arrays = ArrayRecord(trained(net(arrays.to_numpy_ndarrays()), DATA, number))
    metrics = MetricRecord({"num-examples": ROWS})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def measure(number: int, arrays: ArrayRecord) -> None:
    """Note the time after a round, and what was learnt so far."""
    marks.append(cpu_seconds())
    last.append(arrays)


@server.main()
def main(grid, context):
    """Hold the rounds."""
    torch.manual_seed(0)
    first = torch.nn.Sequential(torch.nn.Linear(784, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
    FedAvg(fraction_train=PER_ROUND / DEVICES, fraction_evaluate=0.0, min_available_nodes=DEVICES).start(
        grid=grid,
        initial_arrays=ArrayRecord([leaf.detach().numpy() for leaf in first.parameters()]),
        num_rounds=ROUNDS,
        evaluate_fn=measure,
    )


run_simulation(server, device, num_supernodes=DEVICES, backend_config={"client_resources": {"num_cpus": 1}})
timed = len(marks) - 1 - WARM
found = {"ms": (marks[-1] - marks[WARM]) / timed * 1e3, "rounds": timed}
if KIND == "train":
    _, _, test_rows, test_targets, _ = load(DATA)
    with torch.no_grad():
        right = net(last[-1].to_numpy_ndarrays())(test_rows).argmax(1) == test_targets
    found["accuracy"] = right.float().mean().item()
print(json.dumps(found))
