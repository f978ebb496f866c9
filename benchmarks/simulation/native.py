"""CPU time per check-in: the engine against a loop written in C by hand and a NumPy loop, in one run.

    python benchmarks/simulation/native.py [--only NAME-PART] [--trials 10] [--json FILE]

The C loop (`native_loop.c`) is compiled with `cc`; without a compiler its columns stay empty, and the reason is said.
It takes the timeline as given, as the engine's loop does. What the timeline costs is printed beside it, and all figures
of ours are given without and with it. CPU time counts all threads; compiling is apart. Each figure is the best of some.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import bench
import numpy as np
import numpy_loop

from crowdml.data import Dataset
from crowdml.simulation.run import make_timelines
from crowdml.simulation.timeline import Timeline
from crowdml.task import parse

SOURCE = Path(__file__).with_name("native_loop.c")
FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
REPEATS = 5
SLOW = "crowd.delays={ request = 333.0, check-out = 333.0, check-in = 333.0 }"
BATCH = "algorithm.batch=20"
SETTINGS = {
    "b=1": [],
    "b=1 private": [bench.PRIVATE],
    "b=1 stale": [SLOW],
    "b=1 private, stale": [bench.PRIVATE, SLOW],
    "b=20": [BATCH],
    "b=20 private": [BATCH, bench.PRIVATE],
    "b=20 stale": [BATCH, SLOW],
    "b=20 private, stale": [BATCH, bench.PRIVATE, SLOW],
}


def compile_native(folder: str) -> Any:
    """Return the C loop as a function, or a sentence that says why there is none."""
    compiler = shutil.which("cc")
    if compiler is None:
        return "no C loop: there is no cc on this machine"
    library = Path(folder) / "native_loop.so"
    command = [compiler, *FLAGS, "-o", str(library), str(SOURCE), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own source
    if done.returncode:
        return f"no C loop: cc could not compile it: {done.stderr.strip().splitlines()[0]}"
    return ctypes.CDLL(str(library)).run


def run_native(native: Any, dataset: Dataset, timeline: Timeline, noise: float) -> tuple[float, Any]:
    """Return CPU seconds per check-in of the C loop, and its parameters."""
    given = [
        np.ascontiguousarray(dataset.train_rows, np.float32),
        *(np.ascontiguousarray(a, np.int32) for a in (dataset.train_targets, timeline.rows, timeline.staleness)),
    ]
    out = np.zeros((10, dataset.features), np.float32)
    count, batch = timeline.rows.shape
    numbers = (ctypes.c_float(noise), ctypes.c_float(30.0), ctypes.c_float(1e3), ctypes.c_uint32(1))
    began = bench.cpu_seconds()
    native(
        *(array.ctypes.data_as(ctypes.c_void_p) for array in given),
        ctypes.c_long(count),
        ctypes.c_int(batch),
        *numbers,
        ctypes.c_int(int(timeline.staleness.max()) + 1),
        out.ctypes.data_as(ctypes.c_void_p),
    )
    return (bench.cpu_seconds() - began) / count, out


def require_alike(native: Any, dataset: Dataset, timeline: Timeline) -> None:
    """Check the C loop without noise against the NumPy loop: a wrong loop is no yardstick."""
    count = 2000
    few = type(timeline)(
        **{name: value[:count] if name in ("rows", "staleness") else value for name, value in vars(timeline).items()}
    )
    plain = numpy_loop.run(dataset.train_rows, dataset.train_targets, few.rows, few.staleness, 0.0, 30.0, 1e3, 0)
    apart = float(np.abs(run_native(native, dataset, few, 0.0)[1] - plain).max() / np.abs(plain).max())
    if not apart < 1e-3:
        raise SystemExit(f"the C loop is wrong: its parameters are off by {apart:.1e}")


def measure(name: str, dataset: Dataset, trials: int, native: Any) -> dict[str, Any]:
    """Measure one setting, in µs per check-in."""
    task = parse(bench.TASK, changes=SETTINGS[name])
    noise = 4 / 10.0 / task.algorithm.batch if task.privacy.mode == "paper" else 0.0
    drawing = np.inf
    for _ in range(REPEATS):
        began = bench.cpu_seconds()
        timelines = make_timelines(task, dataset, trials, 0)
        drawing = min(drawing, (bench.cpu_seconds() - began) / sum(map(len, timelines)))
    found: dict[str, Any] = {"setting": name, "trials": trials, "timeline_us": drawing * 1e6}
    found["numpy_us"] = min(bench.loop(task, dataset, timelines[0]) for _ in range(2)) * 1e6
    ours, found["compile_s"] = bench.engine(task, dataset, timelines, REPEATS)
    alone, _ = bench.engine(task, dataset, timelines[:1], REPEATS)
    found |= {"ours_us": ours * 1e6, "one_trial_us": alone * 1e6}
    if callable(native):
        require_alike(native, dataset, timelines[0])
        found["c_us"] = min(run_native(native, dataset, timelines[0], noise)[0] for _ in range(REPEATS)) * 1e6
    return found


def main() -> None:
    """Measure all settings and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--trials", type=int, default=bench.TRIALS)
    options = parser.parse_args()
    dataset, table = bench.data(), []
    with tempfile.TemporaryDirectory() as folder:
        native = compile_native(folder)
        if not callable(native):
            print(native)
        print(f"µs per check-in; ours: {options.trials} trials, and one; + t: with the timeline")
        heads = ("NumPy", "ours", "one", "timeline", "ours + t", "C", "ours/C", "one/C", "(ours+t)/C", "NumPy/(ours+t)")
        print(f"{'setting':20}" + "".join(f"{head:>{max(9, len(head) + 2)}}" for head in heads))
        for name in SETTINGS:
            if options.only not in name:
                continue
            row = measure(name, dataset, options.trials, native)
            row["with_timeline_us"] = whole = row["ours_us"] + row["timeline_us"]
            c = row.get("c_us", np.nan)
            shown = (row["numpy_us"], row["ours_us"], row["one_trial_us"], row["timeline_us"], whole, c)
            ratios = (row["ours_us"] / c, row["one_trial_us"] / c, whole / c, row["numpy_us"] / whole)
            cells = zip(heads, (*shown, *ratios), strict=True)
            print(f"{name:20}" + "".join(f"{value:{max(9, len(head) + 2)}.2f}" for head, value in cells), flush=True)
            table.append(row)
    if options.json:
        options.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
