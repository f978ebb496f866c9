"""How long a user waits: whole commands by the clock, from typing to result, first and second start apart.

    python benchmarks/start/bench.py [--repeats 3] [--cifar]

The first start begins with an empty cache of compiled programs, the second finds what the first has left. `--cifar`
adds the net of 545,000 parameters for CIFAR-10 (the dataset must be there), with the memory of all its processes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.whole_command import measure

ROOT = Path(__file__).parents[2]
DIGITS = str(ROOT / "examples" / "digits.toml")
CIFAR = str(Path(__file__).parent / "cifar.toml")

COMMANDS = {
    "digits example, 10 trials": (DIGITS,),
    "digits example, 1 trial": (DIGITS, "--trials", "1"),
    "tiny: 120 check-ins, 1 trial": (DIGITS, "--trials", "1", "--set", "crowd.passes=2"),
    "tiny: 120 check-ins, 10 trials": (DIGITS, "--set", "crowd.passes=2"),
}
GOALS = {"digits example, 10 trials": 3.0, "tiny: 120 check-ins, 1 trial": 1.5}


def run(arguments: tuple[str, ...], programs: str) -> tuple[float, float, float]:
    """Return seconds by the clock, CPU seconds of all processes, and the largest memory of all together in MiB."""
    # As a user has it: Python keeps what it has read of its modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "crowdml", "simulate", *arguments]
    return measure(command, look_s=0.1, environment=environment | {"CROWDML_PROGRAMS": programs})


def main() -> None:
    """Print a line for every command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cifar", action="store_true")
    given = parser.parse_args()
    commands = COMMANDS | ({"CIFAR-10, net of 545k, 8 contacts": (CIFAR, "--trials", "1")} if given.cifar else {})
    print(f"{'command':40}{'first, s':>10}{'second, s':>11}{'CPU, s':>8}{'memory, MiB':>13}{'goal, s':>9}")
    for name, arguments in commands.items():
        with tempfile.TemporaryDirectory() as programs:
            first, _, memory = run(arguments, programs)
            again = [run(arguments, programs) for _ in range(given.repeats)]
        clock, cpu, _ = min(again)
        goal = f"{GOALS[name]:.1f}" if name in GOALS else ""
        print(f"{name:40}{first:10.1f}{clock:11.2f}{cpu:8.1f}{memory:13.0f}{goal:>9}", flush=True)


if __name__ == "__main__":
    main()
