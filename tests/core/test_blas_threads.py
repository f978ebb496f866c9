"""Linear algebra of servers and devices keeps to one thread: counted, and by the CPU time that others take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crowdml.cli.command_groups import BLAS_VARIABLES

pytestmark = [
    pytest.mark.skipif(os.cpu_count() == 1, reason="on one core there is one thread anyway"),
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted under /proc"),
]

COMMAND = """
import os, sys
from crowdml.cli.app import app
try:
    app(sys.argv[1:])
except BaseException:
    pass
assert "numpy" in sys.modules, "the command has not begun"
import numpy as np
for _ in range(3):
    np.ones(1_000_000).dot(np.ones(1_000_000))
print(len(os.listdir("/proc/self/task")))
"""

EMBEDDED = """
import asyncio, time
import numpy as np
from crowdml.server.setup.application import Lifespan
from crowdml.core.blas_threads import _call, _loaded

class Nothing:
    store = type("Store", (), {"tasks": staticmethod(lambda: [])})
    async def close(self): pass

def threads():
    found = [_call(library, name, "get") for library, name in _loaded()]
    assert found, "no OpenBLAS is loaded"
    return max(found)

def others():
    '''CPU time of other threads, as a share of this one's, while vectors are multiplied.'''
    vector = np.ones(1_000_000, np.float32)
    whole, own = time.process_time(), time.thread_time()
    for _ in range(200):
        vector.dot(vector)
    whole, own = time.process_time() - whole, time.thread_time() - own
    return (whole - own) / own

async def main():
    inside = []
    async def receive(): return {}
    async def send(message):
        if message["type"] == "lifespan.startup.complete":
            inside.extend((threads(), others()))
    before = threads()
    await Lifespan(Nothing(), lambda: None)({"type": "lifespan"}, receive, send)
    print(before, *inside, threads())

time.sleep(0.5)  # threads that were made turn for a while
asyncio.run(main())
"""


def run(code: str, *arguments: str) -> list[float]:
    environment = {name: value for name, value in os.environ.items() if name not in BLAS_VARIABLES}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    "arguments",
    [("serve", "--lan", "--insecure"), ("device", "status")],
    ids=["serve", "device"],
)
def test_a_command_has_one_thread(arguments: tuple[str, ...], tmp_path: Path) -> None:
    home = ("--home", str(tmp_path)) if arguments[0] == "device" else ()
    assert run(COMMAND, *arguments, *home) == [1]


def test_a_server_inside_another_program_uses_one_thread_and_gives_the_others_back() -> None:
    before, during, others, after = run(EMBEDDED)
    assert before > 1 and after == before, "nothing was there to limit"
    assert during == 1 and others < 0.2
