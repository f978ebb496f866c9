"""Fuzz the server and every parser: `python -m tests.fuzz.run [--bodies 1000000] [--parsers 100000] [--seed N]`.

A million mutated check-ins go through the whole server in this process; of each other parser's messages a hundred
thousand (of files fewer: each is written and opened). What relays carry has a fuzzer of its own:
`tests/support/frame_fuzz.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import tempfile
import time
from pathlib import Path

from tests.fuzz.bodies import Bodies
from tests.fuzz.parsers import fuzz, targets
from tests.support.application import Makes


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", type=int, default=1_000_000)
    parser.add_argument("--parsers", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    given = parser.parse_args()
    draw, began = random.Random(given.seed), time.process_time()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="crowdml-fuzz-") as folder:
        with contextlib.closing(Makes(Path(folder))) as make:
            app = make()
            app.create()
            bodies = Bodies(app)
            bodies.send(given.bodies, draw)
        print(f"check-ins: {bodies.met.total()} mutants, answers {dict(sorted(bodies.met.items()))}", flush=True)
        for name, target in targets(Path(folder)).items():
            met = fuzz(target, given.parsers, draw)
            print(f"{name}: {met.total()} mutants, {met['read']} read, {met['refused']} refused", flush=True)
    print(f"no other answer, no other error, nothing slow; {time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()
