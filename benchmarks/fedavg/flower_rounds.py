"""Flower: the overhead of a round of its simulation. Prints CPU milliseconds per round as JSON.

python flower_rounds.py DATA.npz ROUNDS

Ten of a hundred devices take part, messages are as large as the net's parameters, and devices send back what they got.
Nothing is learnt and no row is read: training would come on top. CPU time is that of all processes of the simulation.
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
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.app.message import Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

DEVICES, PER_ROUND, ROWS = 100, 10, 576
SHAPES = (200, 784), (200,), (10, 200), (10,)
WARM = 2

device, server = ClientApp(), ServerApp()
marks: list[float] = []


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


@device.train()
def train(message, context):
    """Send the parameters back."""
    metrics = MetricRecord({"num-examples": ROWS})
    return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)


@server.main()
def main(grid, context):
    """Hold the rounds."""
    FedAvg(fraction_train=PER_ROUND / DEVICES, fraction_evaluate=0.0, min_available_nodes=DEVICES).start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(shape, np.float32) for shape in SHAPES]),
        num_rounds=int(sys.argv[2]),
        evaluate_fn=lambda number, arrays: marks.append(cpu_seconds()),
    )


run_simulation(server, device, num_supernodes=DEVICES, backend_config={"client_resources": {"num_cpus": 1}})
timed = len(marks) - 1 - WARM
print(json.dumps({"ms": (marks[-1] - marks[WARM]) / timed * 1e3, "rounds": timed}))
