"""Whole courses from seeds, in virtual time: python -m tests.system.run [--seed N] [--seeds 500] [--first 0] [--json]

A seed that fails is printed with what was wrong; the same command with that seed goes through the very same course.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.system.world import run_seed


def main(arguments: list[str] | None = None) -> int:
    """Run seeds; the exit code is 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="go through one course, and tell what it came to")
    parser.add_argument("--seeds", type=int, default=50, help="how many courses")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    reports = []
    # A process per core; a course is the same whichever of them goes through it.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for report in pool.map(run_seed, seeds):
            reports.append(report)
            if given.json:
                print(json.dumps(dataclasses.asdict(report)), flush=True)
            elif report.violations or given.seed is not None:
                print(f"seed {report.seed} ({report.kind}): {dataclasses.asdict(report)}", flush=True)
    wrong = [report.seed for report in reports if report.violations]
    virtual_s, seconds = sum(r.virtual_s for r in reports), sum(r.seconds for r in reports)
    print(
        f"{len(reports)} seeds, {sum(r.receipts for r in reports)} receipts of {sum(r.requests for r in reports)} "
        "requests, "
        f"{sum(r.strikes for r in reports)} strikes, {sum(r.lives for r in reports)} starts of the server, "
        f"{sum(r.reads for r in reports)} numbers read; {virtual_s:.0f} s in {seconds:.1f} s of processor: "
        f"{virtual_s / seconds:.0f} times real time; {len(wrong)} with violations {wrong[:20]}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
