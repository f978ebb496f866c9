"""What a second worker of a Ray cluster gives: the same trials on a cluster of one worker and of two.

    python benchmarks/cluster/bench.py [--trials 8] [--passes 2000] [--turns 3] [--json FILE]

Each cluster is started for its measurement and stopped after it. Two times are told: from the call to the result, with
workers that have to be started, which is what a user waits for; and that of training alone. Both clusters are measured
in turns, and the results must be the same bits. The task is a small net: what takes seconds needs no cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

STARTS = 3
"""How often a cluster is started that does not come up on a busy machine; nothing is measured before it is there."""
TASK = Path(__file__).parents[2] / "examples" / "digits.toml"
NET = ('model={ kind = "mlp", layers = [200] }', "algorithm.rate.c=1.0")
RUN = """
import hashlib, json, sys, time
import numpy as np, ray
import crowdml
from pathlib import Path
from crowdml.task.task_file import load

task, workers, trials, passes = sys.argv[1], *map(int, sys.argv[2:5])
ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
task = load(Path(task), [f"crowd.passes={passes}", *sys.argv[5:]])
began = time.perf_counter()
result = crowdml.simulate(task, trials=trials, on="ray", engine="compiled")
took = time.perf_counter() - began
bits = hashlib.sha256(np.ascontiguousarray(result.measured["test_error"]).tobytes())
for parameters in result.parameters:
    for name in sorted(parameters):
        bits.update(np.ascontiguousarray(parameters[name]).tobytes())
print(json.dumps({"seconds": took, "training": result.run_seconds, "bits": bits.hexdigest()}))
ray.shutdown()
"""


def measure(workers: int, trials: int, passes: int) -> dict[str, Any]:
    """Run on a cluster of so many workers; return the seconds of all and of training, and the hash of the result."""
    command = [sys.executable, "-c", RUN, str(TASK), str(workers), str(trials), str(passes), *NET]
    for left in reversed(range(STARTS)):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if not ran.returncode:
            break
        # Ray gives a node half a minute to start, whatever else the machine does.
        if not left or "timed out during startup" not in ran.stderr:
            raise RuntimeError(ran.stderr[-3000:])
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def times_as_fast(seconds: dict[int, list[float]]) -> float:
    """Return how many times as fast two workers are as one: the median of all turns."""
    return statistics.median(one / two for one, two in zip(seconds[1], seconds[2], strict=True))


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--passes", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seconds: dict[int, list[float]] = {1: [], 2: []}
    training: dict[int, list[float]] = {1: [], 2: []}
    bits = set[str]()
    for _ in range(given.turns):
        for workers in (1, 2):
            found = measure(workers, given.trials, given.passes)
            seconds[workers].append(found["seconds"])
            training[workers].append(found["training"])
            bits.add(found["bits"])
            told = f"{found['seconds']:.1f} s, of which training {found['training']:.1f} s"
            print(f"{workers} worker{'s' * (workers > 1)}: {told}", flush=True)
    assert len(bits) == 1, "the results differ"
    told = {
        "speedup": times_as_fast(seconds),
        "speedup_of_training": times_as_fast(training),
        "seconds": seconds,
        "training_seconds": training,
        "trials": given.trials,
        "passes": given.passes,
        "load": os.getloadavg()[0],
    }
    print(
        f"two workers are {told['speedup']:.2f} times as fast as one, in training alone "
        f"{told['speedup_of_training']:.2f} times (median of {given.turns} turns, load {told['load']:.1f}); same bits"
    )
    if given.json:
        given.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
