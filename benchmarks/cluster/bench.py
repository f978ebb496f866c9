"""What a second worker of a Ray cluster gives: the same trials on a cluster of one worker and of two.

    python benchmarks/cluster/bench.py [--trials 8] [--passes 40] [--turns 3] [--json FILE]

Each cluster is started for its measurement and stopped after it; the time is that of the run alone, from the call to
the result, with workers that have to be started: what a user waits for. Both are measured in turns, and the results
must be the same bits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

STARTS = 3
"""How often a cluster is started that does not come up on a busy machine; nothing is measured before it is there."""
TASK = Path(__file__).parents[2] / "examples" / "digits.toml"
RUN = """
import hashlib, json, sys, time
import numpy as np, ray
import crowdml
from pathlib import Path
from crowdml.task.task_file import load

task, workers, trials, passes = sys.argv[1], *map(int, sys.argv[2:])
ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
task = load(Path(task), [f"crowd.passes={passes}"])
began = time.perf_counter()
result = crowdml.simulate(task, trials=trials, on="ray", engine="compiled")
took = time.perf_counter() - began
bits = hashlib.sha256(np.ascontiguousarray(result.measured["test_error"]).tobytes())
for parameters in result.parameters:
    for name in sorted(parameters):
        bits.update(np.ascontiguousarray(parameters[name]).tobytes())
print(json.dumps({"seconds": took, "bits": bits.hexdigest()}))
ray.shutdown()
"""


def measure(workers: int, trials: int, passes: int) -> tuple[float, str]:
    """Run on a cluster of so many workers; return seconds and the hash of the result."""
    command = [sys.executable, "-c", RUN, str(TASK), str(workers), str(trials), str(passes)]
    for left in reversed(range(STARTS)):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if not ran.returncode:
            break
        # Ray gives a node half a minute to start, whatever else the machine does.
        if not left or "timed out during startup" not in ran.stderr:
            raise RuntimeError(ran.stderr[-3000:])
    found = json.loads(ran.stdout.splitlines()[-1])
    return found["seconds"], found["bits"]


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--passes", type=int, default=40)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seconds: dict[int, list[float]] = {1: [], 2: []}
    bits = set[str]()
    for _ in range(given.turns):
        for workers, took in seconds.items():
            found, result = measure(workers, given.trials, given.passes)
            took.append(found)
            bits.add(result)
            print(f"{workers} worker{'s' * (workers > 1)}: {found:.1f} s", flush=True)
    assert len(bits) == 1, "the results differ"
    speedup = statistics.median(one / two for one, two in zip(seconds[1], seconds[2], strict=True))
    load, turns = os.getloadavg()[0], given.turns
    print(f"two workers are {speedup:.2f} times as fast as one (median of {turns} turns, load {load:.1f}); same bits")
    if given.json:
        told = {"seconds": seconds, "speedup": speedup, "trials": given.trials, "passes": given.passes, "load": load}
        given.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
