"""Federated averaging: what a round costs here and with others, all in one run.

    make bench-peers CLAIM=fedavg                   # makes the environments, runs this and keeps the record
    python benchmarks/fedavg/bench.py FOLDER [--rounds 40] [--repeats 3] [--json FILE]
    python benchmarks/fedavg/bench.py --products    # a round over its matrix products alone; needs no environments

A net 784-200-10 learns MNIST: 100 devices with 576 rows each, 10 of them in a round, 18 batches of 32, plain SGD.
The figure is CPU time per round, the best of the repeats; compiling is apart. Accuracy is that of one run each, on the
10,000 test rows of MNIST, which nobody trains on. crowdml is measured as it is, and
with whole rows: as it is, it multiplies without the columns that are zero in most rows, and adds what they hold
number by number. The same could be done elsewhere; no peer does. The floor is what the matrix products of a round
cost alone, each by NumPy's library (OpenBLAS) on one thread, with all columns and with those that crowdml
multiplies. Flower's devices train as the plain PyTorch loop does, and the CPU time of all its processes counts;
what its simulation spends on a round in which devices do nothing but send their parameters back is shown apart. A
peer that is not installed is left out. The data set is found as `crowdml data list` says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from crowdml.simulation import simulate
from crowdml.simulation.engine.chunks import cut_chunks
from crowdml.simulation.engine.data_tables import make_tables
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.engine.program import compile_program
from crowdml.simulation.engine.run_records import Replicas
from crowdml.simulation.prepare import numbers, prepare
from crowdml.simulation.run import make_timelines
from crowdml.task import Task, parse

HERE = Path(__file__).parent
TASK = """
crowdml = 1
name = "fedavg"
[data]
dataset = "mnist"
features = 784
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{{ kind = "scale", by = 0.00392156862745098 }}]
validation = 2400
[model]
kind = "mlp"
layers = [200]
activation = "relu"
[algorithm]
kind = "fedavg"
per-round = 10
local-batch = 32
rate = {{ kind = "constant", c = 0.1 }}
[privacy]
mode = "none"
[stop]
max-versions = {rounds}
[crowd]
devices = 100
passes = {passes}
curve = 1
"""
PER_ROUND, STEPS, BATCH, INPUTS, HIDDEN, LABELS = 10, 18, 32, 784, 200, 10
TIMED = 10
"""Rounds that are timed at once; a peer's are timed all together, so it is run as long as all samples of ours."""

SAMPLES = 5
GOAL = 1.25
"""Most that a round may cost, as a multiple of its matrix products alone."""

FLOWER_ROUNDS = 12
PEERS = {
    "PyTorch, plain loop": ("torch", "torch_loop.py"),
    "pfl-research": ("pfl", "pfl_rounds.py"),
    "FedJAX": ("fedjax", "fedjax_rounds.py"),
}
"""Environment and script of everybody who does the same work in one process, and so is measured in turns with ours."""

COUNTED = {"Flower, training": ("train", 30), "Flower, idle devices": ("idle", FLOWER_ROUNDS)}
"""What Flower's devices do, and rounds at most: it is measured once, as starting it takes long."""


def task(rounds: int) -> Task:
    """The task with so many rounds; ten of them go through the rows once."""
    return parse(TASK.format(rounds=rounds, passes=max(1, rounds // 10)))


def compiled(sparse: bool) -> Callable[[], dict[str, float]]:
    """Compile a few rounds, and return a function that runs them and tells what one cost, its timeline included."""
    fedavg = task(TIMED)
    _, dataset = prepare(fedavg)
    began = time.process_time()
    chunks = cut_chunks(make_timelines(fedavg, dataset, 1, 0), 1)
    events, counts = chunks.events(0)
    timeline = time.process_time() - began
    hyper = {name: np.array([value], np.float32) for name, value in numbers(fedavg).items()}
    replicas = Replicas(hyper=hyper, seeds=np.stack([trial_seed(0, 0)]))
    program = compile_program(fedavg, dataset, replicas, events, chunks.ring, chunks.even, chunks.per_commit, sparse)

    def run() -> dict[str, float]:
        carry = program.start(replicas)
        began = time.process_time()
        program.chunk(replicas, carry, events, counts)
        return {"ms": (time.process_time() - began + timeline) / TIMED * 1e3}

    return run


def multiplied() -> int:
    """Count the columns that crowdml multiplies."""
    fedavg = task(TIMED)
    tables = make_tables(fedavg, prepare(fedavg)[1], np.zeros(1, np.float32))
    return len(tables.rows["common"]) if "common" in tables.rows else INPUTS


def floor(columns: int) -> dict[str, float]:
    """Cost of a round's matrix products alone: two for the first layer, three for the second."""
    generator = np.random.default_rng(0)

    def some(*shape: int) -> Any:
        return generator.normal(size=shape).astype(np.float32)

    rows, first, slope = some(BATCH, columns), some(HIDDEN, columns), some(HIDDEN, BATCH)
    second, top = some(LABELS, HIDDEN), some(LABELS, BATCH)
    began = time.process_time()
    for _ in range(PER_ROUND * STEPS):
        _ = first @ rows.T, slope @ rows, second @ slope, second.T @ top, top @ slope.T
    return {"ms": (time.process_time() - began) * 1e3}


def over_products(repeats: int) -> None:
    """Print what a round costs as a multiple of its matrix products alone, the best of each in turns."""
    sparse, whole, columns = compiled(True), compiled(False), multiplied()
    best = {"sparse": np.inf, "whole": np.inf, "its products": np.inf, "all products": np.inf}
    for _ in range(repeats * SAMPLES):
        for name, run in (
            ("its products", lambda: floor(columns)),
            ("sparse", sparse),
            ("all products", lambda: floor(INPUTS)),
            ("whole", whole),
        ):
            best[name] = min(best[name], run()["ms"])
    print(f"{'CPU time of a round':24}{'columns':>9}{'round, ms':>11}{'products, ms':>14}{'ratio':>7}{'goal':>7}")
    for name, width, of in (("sparse", columns, "its products"), ("whole", INPUTS, "all products")):
        ratio = best[name] / best[of]
        print(f"{name + ' rows':24}{width:9}{best[name]:11.1f}{best[of]:14.1f}{ratio:7.2f}{GOAL:7.2f}")


def peer(folder: Path, name: str, script: str, data: Path, rounds: int, *more: str) -> dict[str, float]:
    """Run a peer in its own environment."""
    command = [str(folder / name / "bin" / "python"), str(HERE / script), str(data), str(rounds), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own scripts
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_rows(path: Path) -> None:
    """Hand everybody the rows that crowdml trains on, and those that it is measured on."""
    _, dataset = prepare(task(TIMED))
    np.savez(
        path,
        rows=dataset.train_rows,
        labels=dataset.train_targets,
        test_rows=dataset.test_rows,
        test_targets=dataset.test_targets,
    )


def main() -> None:
    """Measure everything and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="environments that `make bench-peers` has made")
    parser.add_argument("--products", action="store_true", help="compare with the matrix products alone")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.products:
        return over_products(given.repeats)
    if given.folder is None:
        parser.error("give the folder of the environments, or --products")
    found: dict[str, dict[str, float]] = {}
    installed = {name: entry for name, entry in PEERS.items() if (given.folder / entry[0] / "installed.json").is_file()}

    def note(name: str, figures: dict[str, float]) -> None:
        if name not in found or figures["ms"] < found[name]["ms"]:
            found[name] = figures

    with tempfile.TemporaryDirectory() as text:
        data = Path(text) / "rows.npz"
        write_rows(data)
        learnt, sparse, whole, columns = simulate(task(given.rounds)), compiled(True), compiled(False), multiplied()
        for _ in range(given.repeats):
            for _ in range(SAMPLES):
                note("all products", floor(INPUTS))
                note("its products", floor(columns))
                note("crowdml", sparse() | {"accuracy": 1 - learnt.test_error})
                note("crowdml, whole rows", whole() | {"accuracy": 1 - learnt.test_error})
            for name, (environment, script) in installed.items():
                note(name, peer(given.folder, environment, script, data, given.rounds))
        if (given.folder / "flower" / "installed.json").is_file():
            for name, (kind, most) in COUNTED.items():
                rounds = min(given.rounds, most)
                note(name, peer(given.folder, "flower", "flower_rounds.py", data, rounds, kind))
    show(found, columns)
    print(f"crowdml compiled in {learnt.compile_seconds:.1f} s, apart")
    if given.json:
        given.json.write_text(json.dumps(as_record(found, given.rounds), indent=2) + "\n")


def show(found: dict[str, dict[str, float]], columns: int) -> None:
    """Print everybody's round beside ours, and ours beside its matrix products."""
    least = found["crowdml"]["ms"]
    for name, figures in found.items():
        if not name.endswith("products"):
            learnt = f"   accuracy {figures['accuracy']:.3f}" if "accuracy" in figures else ""
            print(f"{name:22} {figures['ms']:8.1f} ms of CPU per round {figures['ms'] / least:6.2f} ×{learnt}")
    for name, of, width in (("its products", "crowdml", columns), ("all products", "crowdml, whole rows", INPUTS)):
        share = found[name]["ms"] / found[of]["ms"]
        print(f"{name} alone     {found[name]['ms']:8.1f} ms, with {width} columns: {share:.0%} of {of}")
    ratio = found["crowdml"]["ms"] / found["its products"]["ms"]
    print(f"crowdml over its products alone: {ratio:.2f} (goal: {GOAL})")


def as_record(found: dict[str, dict[str, float]], rounds: int) -> dict[str, Any]:
    """Return the figures in the form that all comparisons with peers have."""
    idle = "devices send back what they got: nothing is learnt, and training would come on top"
    rows = [
        {"name": name, "value": figures["ms"], "accuracy on the test rows": figures.get("accuracy")}
        | ({"beside": idle} if name == "Flower, idle devices" else {})
        for name, figures in found.items()
        if not name.endswith("products")
    ]
    return {
        "unit": "ms of CPU per round",
        "seed": 0,
        "ours": "crowdml, whole rows",
        "setting": f"MNIST, net 784-200-10, 10 of 100 devices in a round, 18 batches of 32 each; {rounds} rounds",
        "rows": rows,
        "notes": ["everybody learns from the same 57,600 rows of MNIST and is measured on its 10,000 test rows"],
    }


if __name__ == "__main__":
    sys.exit(main())
