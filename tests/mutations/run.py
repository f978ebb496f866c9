"""Mutations: plant every bug of the list, and see that each is caught; nothing may survive.

    python -m tests.mutations.run [--only "half the noise"]

First everything must pass as it is: the audits find nothing, the named tests are green. Then each bug is planted, and
every audit of its list must come out as broken, or one of its tests must fail.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from crowdml.audit.promises import audit_promise
from tests.mutations.planted_bugs import BUGS, PlantedBug
from tests.mutations.planting import PLANTED

CONFIDENCE = 1 - 1e-6
"""Of each audit: a false alarm is not to be expected."""
TRIALS = 8_000


def is_green(tests: tuple[str, ...], planted: str) -> bool:
    """Run named tests in a process of their own, with a bug planted in it, or none."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "tests.mutations.planting"]
    ended = subprocess.run([*command, *tests], env=os.environ | {PLANTED: planted}, capture_output=True, text=True)
    if ended.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"{', '.join(tests)}: no test ran ({ended.returncode})\n{ended.stdout}{ended.stderr}")
    return ended.returncode == pytest.ExitCode.OK


def verdicts(bug: PlantedBug, planted: bool) -> dict[str, bool]:
    """Say of every audit and of the tests whether nothing was found, with the bug planted or without it."""
    with ExitStack() as stack:
        if planted:
            bug.plant(stack)
        found = {
            name: audit_promise(make(), trials=TRIALS, confidence=CONFIDENCE, control=False).holds
            for name, make in bug.audited.items()
        }
    return found | ({"named tests": is_green(bug.tests, bug.name if planted else "")} if bug.tests else {})


def main(arguments: list[str] | None = None) -> int:
    """Try all bugs; the exit code is the number of survivors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="plant this bug alone")
    only = parser.parse_args(arguments).only
    bugs = [bug for bug in BUGS if only in (None, bug.name)]
    if not bugs:
        print(f"no bug is called {only!r}; there are: {', '.join(bug.name for bug in BUGS)}", file=sys.stderr)
        return 2
    begin, survivors = time.process_time(), 0
    for bug in bugs:
        broken = [name for name, holds in verdicts(bug, planted=False).items() if not holds]
        if broken:
            print(f"{bug.name}: without the bug {', '.join(broken)} should hold, and does not", file=sys.stderr)
            return 2
        left = [name for name, holds in verdicts(bug, planted=True).items() if holds]
        survivors += bool(left)
        by = ", ".join([*(f"audit of {name}" for name in bug.audited), *(["named tests"] if bug.tests else [])])
        print(f"{'SURVIVES ' + ', '.join(left) if left else 'caught':10} {bug.name:34} {by}", flush=True)
    print(f"{len(bugs)} planted bugs, {survivors} survivors, {time.process_time() - begin:.0f} s of CPU")
    return survivors


if __name__ == "__main__":
    sys.exit(main())
