"""CPU of one pass of 120 devices that train SliceNet's MLP in pieces, against the same samples without slicing.

    CROWDML_DATA=… python benchmarks/slicing/bench.py [devices in a group …]

Both sides train group after group on the same rows in the same order, with the same steps; only the gradient comes from
pieces on one side and from the whole net on the other. They take turns, one group each, so that whatever else the
machine does falls on both. Dealing, sharing between groups and measuring are not counted. BLAS has one thread. Pieces
are n - 1 as in `crowdml reproduce slicenet/table1`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from pathlib import Path

import numpy as np

import crowdml
from crowdml.simulation.prepare import prepare
from crowdml.simulation.slices.sliced import deal, first_parameters, gradient_of, rules_of
from crowdml.slicing.training import Group, make_groups, train_pass
from crowdml.task import load
from crowdml.task.live_task import sliced_net_of

TASK = Path(crowdml.__file__).parent / "studies" / "tasks" / "slicenet-mlp.toml"
GOAL = 1.2


def main() -> None:
    """Measure and print."""
    print(f"{'devices in a group':>20}{'whole, CPU s':>16}{'pieces, CPU s':>16}{'ratio':>8}  (goal {GOAL})")
    for size in map(int, sys.argv[1:] or (5, 10, 15, 20)):
        whole, sliced = measure(size)
        print(f"{size:>20}{whole:>16.2f}{sliced:>16.2f}{sliced / whole:>8.3f}")


def measure(size: int) -> tuple[float, float]:
    """Train one pass of all groups, each with the whole net and in pieces; return CPU seconds of both."""
    task = load(TASK, [f"algorithm.pieces={size - 1}"])
    alone = load(TASK, ["algorithm.pieces=0"])
    _, dataset = prepare(task)
    generator = np.random.default_rng(0)
    net = sliced_net_of(task)
    gradients = {"whole": gradient_of(alone, net), "pieces": gradient_of(task, net)}
    rows, first, rules = deal(task, dataset, generator), first_parameters(net.model, 0, 0), rules_of(task)
    spent = dict.fromkeys(gradients, 0.0)
    for number, devices in enumerate(make_groups(120, size - 1, 0, generator)):
        for name, gradient in gradients.items():
            group = Group(devices, first)
            began = time.process_time()
            train_pass(group, rows, rules, rules.rate, gradient, np.random.default_rng(number))
            spent[name] += time.process_time() - began
    return spent["whole"], spent["pieces"]


if __name__ == "__main__":
    main()
