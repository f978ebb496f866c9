"""Compare with the recorded numbers: python -m tests.golden.compare [NAME-PART].

BITS says that parameters and counts are those of the record to the last bit; otherwise the largest relative difference
is printed. The bits are those of the processor that recorded them: another one shows small differences.
"""

from __future__ import annotations

import sys
import time

from tests.golden.cases import matching
from tests.golden.numbers import compare, read_golden, run_case


def main(part: str = "") -> int:
    """Print a line for every case with this in its name; return 1 where one is outside the tolerance."""
    golden, failed, same, spent = read_golden(), 0, 0, time.process_time()
    names = list(matching(part))
    for name in names:
        began = time.process_time()
        try:
            found = compare(golden[name], run_case(name))
        except Exception as error:
            failed += 1
            print(f"{name:52} FAILED {type(error).__name__}: {error}", flush=True)
            continue
        said = "BITS" if found.bits else f"{found.largest:.1e}"
        print(f"{name:52} {said:8} {time.process_time() - began:6.2f} s of CPU", *found.wrong, sep="\n    ", flush=True)
        failed += bool(found.wrong)
        same += found.bits
    print(f"{len(names)} cases: {same} with the same bits, {failed} wrong; {time.process_time() - spent:.0f} s of CPU")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
