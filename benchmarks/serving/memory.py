"""What a server holds in memory: for each device, for each size of a model, and while check-ins wait.

    python benchmarks/serving/memory.py [--devices 200 100000] [--check-ins 256]

Each line is a server of its own, started on a database with so many devices. `begun` is its memory when all devices are
known and the pages are loaded, before anybody speaks; `busy` is the most it has had after the check-ins, of 64 devices
that speak at once. What a device costs is the difference of two crowds over the same model.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from bench import Form, load

from tests.support.sessions import peak_memory, resident_memory

PARAMETERS = (500, 100_000, 1_000_000)
CONNECTIONS = 64
MIB = 1 << 20


def measure(parameters: int, devices: int, check_ins: int) -> tuple[int, int]:
    """Return the memory of a server in bytes, before anybody has spoken and at its most."""
    with tempfile.TemporaryDirectory() as folder:
        form = Form("durable", Path(folder), parameters // 10, devices)
        try:
            begun = resident_memory(form.process.pid)
            asyncio.run(load(form, CONNECTIONS, check_ins))
            return begun, peak_memory(form.process.pid)
        finally:
            form.process.terminate()
            form.process.wait()


def main() -> None:
    """Measure, and print a table and the difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs=2, default=(200, 100_000), metavar=("FEW", "MANY"))
    parser.add_argument("--check-ins", type=int, default=256)
    given = parser.parse_args()
    few, many = given.devices
    print("parameters   devices   begun MiB   busy MiB")
    begun: dict[int, int] = {}
    for parameters, devices in ((PARAMETERS[0], few), (PARAMETERS[0], many), *((each, few) for each in PARAMETERS[1:])):
        before, most = measure(parameters, devices, given.check_ins)
        begun.setdefault(devices, before)
        print(f"{parameters:10}   {devices:7}   {before / MIB:9.0f}   {most / MIB:8.0f}", flush=True)
    print(f"bytes per device: {(begun[many] - begun[few]) / (many - few):.0f}")


if __name__ == "__main__":
    main()
