"""Record the final numbers of cases: python -m tests.golden.record [NAME-PART].

Do so only where numbers are meant to change, and say in the commit why they did.
"""

from __future__ import annotations

import json
import sys
import time

from tests.golden.cases import CASES, matching
from tests.golden.numbers import GOLDEN, read_golden, run_case


def main(part: str = "") -> None:
    """Run the cases with this in their name and keep their numbers, beside those of the others."""
    golden = read_golden()
    for name in matching(part):
        began = time.process_time()
        golden[name] = run_case(name)
        errors = golden[name]["measured"]["test_error"]
        print(f"{name:52} {time.process_time() - began:6.2f} s of CPU, test error {errors}", flush=True)
        lines = [f"{json.dumps(name)}: {json.dumps(golden[name])}" for name in CASES if name in golden]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2])
