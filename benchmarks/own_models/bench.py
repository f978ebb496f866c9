"""CPU time per round of models of the user's own: a flax MLP against ours, a PyTorch MLP against a plain PyTorch loop.

    python benchmarks/own_models/bench.py [--json FILE]

All in one run, CPU time of all threads; compiling is not counted. Random rows of the length of a small picture, an MLP
with one hidden layer. Ours runs without `sparse_inputs`, which a model of the user's own has not. The PyTorch part
needs PyTorch (`make test-torch` makes an environment that has it), and is left out where there is none.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import crowdml
from crowdml.core import Labels
from crowdml.data import Dataset
from crowdml.simulation.engine.chunks import cut_chunks
from crowdml.simulation.engine.data_tables import make_tables
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.engine.plain_lane import PlainLane
from crowdml.simulation.engine.program import compile_program
from crowdml.simulation.engine.run_records import Replicas, Shape
from crowdml.simulation.run import make_timelines
from crowdml.task import Task, parse
from crowdml.task.task_checks import with_model

FEATURES, HIDDEN, DEVICES, ROWS, PER_ROUND, BATCH = 784, 128, 50, 120, 10, 20
TASK = f"""
crowdml = 1
name = "benchmark"
[data]
dataset = "digits"
features = {FEATURES}
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
[model]
kind = "mlp"
layers = [{HIDDEN}]
activation = "relu"
[algorithm]
kind = "fedavg"
per-round = {PER_ROUND}
local-batch = {BATCH}
rate = {{ kind = "constant", c = 0.05 }}
[privacy]
mode = "none"
[crowd]
devices = {DEVICES}
passes = 4
curve = 1
"""
CLIPPED = (
    f"algorithm={{ kind = 'fedsgd', per-round = {PER_ROUND}, rate = {{ kind = 'constant', c = 0.5 }} }}",
    "privacy={ mode = 'paper', mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-6 }",
)
GOALS = {"flax, fedavg": 1.3, "flax, each row clipped": 4.0, "PyTorch, fedavg": 1.3}


def cpu_seconds() -> float:
    """Return the CPU time of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def data() -> Dataset:
    """Make random rows."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(DEVICES * ROWS, FEATURES)).astype(np.float32)
    labels = generator.integers(0, 10, len(rows)).astype(np.int32)
    return Dataset(
        name="random",
        train_rows=rows,
        train_targets=labels,
        test_rows=rows[:100],
        test_targets=labels[:100],
        target=Labels(names=tuple("0123456789")),
    )


def prepared(task: Task, dataset: Dataset) -> tuple[Any, Any, Replicas, int]:
    """Return timeline, chunks, replicas and the number of rounds."""
    timelines = make_timelines(task, dataset, 1, 0)
    chunks = cut_chunks(timelines, 1)
    hyper = {name: np.full(1, value, np.float32) for name, value in task.hyper(task.calibrated).items()}
    replicas = Replicas(hyper=hyper, seeds=np.stack([trial_seed(0, 0)]))
    return timelines[0], chunks, replicas, int(timelines[0].commits.sum())


def compiled(task: Task, dataset: Dataset) -> Callable[[], float]:
    """Compile a task; return a function that runs it and says how many CPU seconds a round took."""
    _, chunks, replicas, rounds = prepared(task, dataset)
    first = chunks.events(0)[0]
    program = compile_program(
        task, dataset, replicas, first, chunks.ring, chunks.even, per_commit=chunks.per_commit, sparse=False
    )
    parts = [chunks.events(number) for number in range(len(chunks))]

    def run() -> float:
        carries = program.start(replicas)
        began = cpu_seconds()
        for events, counts in parts:
            carries = program.chunk(replicas, carries, events, counts)
        return (cpu_seconds() - began) / rounds

    return run


def in_numpy(task: Task, dataset: Dataset) -> Callable[[], float]:
    """The same in NumPy's loop."""
    _, chunks, replicas, rounds = prepared(task, dataset)
    shape = Shape(ring=chunks.ring, even=chunks.even, per_commit=chunks.per_commit)
    tables = make_tables(task, dataset, np.zeros(1, np.float32), sparse=False)
    parts = [chunks.events(number) for number in range(len(chunks))]

    def run() -> float:
        lane = PlainLane(task, tables, replicas, shape)
        began = cpu_seconds()
        for events, counts in parts:
            lane.run(events, counts, 0)
        return (cpu_seconds() - began) / rounds

    return run


def torch_loop(task: Task, dataset: Dataset, module: Any) -> Callable[[], float]:
    """Rounds of fedavg as one would write them in PyTorch, on the same rows."""
    import torch

    timeline, _, _, rounds = prepared(task, dataset)
    rows, labels = torch.from_numpy(dataset.train_rows), torch.from_numpy(dataset.train_targets).long()
    contacts = [
        torch.from_numpy(np.asarray(chosen[:count]))
        for chosen, count in zip(timeline.rows, timeline.counts, strict=True)
    ]

    def run() -> float:
        common = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        began = cpu_seconds()
        total: dict[str, Any] = {name: torch.zeros_like(tensor) for name, tensor in common.items()}
        weight = 0
        for at, chosen in enumerate(contacts):
            module.load_state_dict(common)
            optimiser = torch.optim.SGD(module.parameters(), lr=0.05)
            for some in chosen.split(BATCH):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(module(rows[some]), labels[some]).backward()
                optimiser.step()
            for name, tensor in module.state_dict().items():
                total[name] += tensor * len(chosen)
            weight += len(chosen)
            if timeline.commits[at]:
                common = {name: tensor / weight for name, tensor in total.items()}
                total, weight = {name: torch.zeros_like(tensor) for name, tensor in common.items()}, 0
        return (cpu_seconds() - began) / rounds

    return run


def flax_model() -> Any:
    """Return the MLP in flax."""
    from flax import linen

    class MLP(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.relu(linen.Dense(HIDDEN)(x))
            return linen.Dense(10)(x)

    return crowdml.FlaxModel(module=MLP())


def against(one: Callable[[], float], other: Callable[[], float], repeats: int = 5) -> tuple[float, float]:
    """Run both in turn; return the least of each."""
    found = [(one(), other()) for _ in range(repeats)]
    return min(first for first, _ in found), min(second for _, second in found)


def main() -> None:
    """Measure, and print a line for each comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    dataset, results = data(), {}
    comparisons: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {}
    for name, changes in (("flax, fedavg", ()), ("flax, each row clipped", CLIPPED)):
        ours = parse(TASK, changes=changes)
        comparisons[name] = (compiled(with_model(ours, flax_model()), dataset), compiled(ours, dataset))
    try:
        import torch
    except ModuleNotFoundError:
        print("PyTorch is not installed: its part is left out")
    else:
        torch.set_num_threads(1)
        nn = torch.nn
        module = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
        task = with_model(parse(TASK), crowdml.TorchModel(module=module))
        comparisons["PyTorch, fedavg"] = (in_numpy(task, dataset), torch_loop(task, dataset, module))
    for name, pair in comparisons.items():
        theirs, other = against(*pair)
        results[name] = {"ms": theirs * 1e3, "other_ms": other * 1e3, "ratio": theirs / other, "goal": GOALS[name]}
        print(
            f"{name:24} {theirs * 1e3:8.2f} ms of CPU per round, compared {other * 1e3:8.2f} ms: "
            f"{theirs / other:.2f} times (goal: at most {GOALS[name]:g})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
