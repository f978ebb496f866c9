"""Starting worker processes. Nothing heavy is imported here: a command starts a worker before it reads its task.

Importing JAX is most of what a short run takes. A worker does it while this process reads the task and the rows.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import threading
from typing import NamedTuple

from crowdml.simulation.engine import jax_variables

VARIABLE = "CROWDML_WORKERS"
"""How many worker processes may run; 0: this process runs everything itself."""


class Started(NamedTuple):
    """A process, and our end of the socket to it."""

    process: subprocess.Popen[bytes]
    end: socket.socket


_early: list[Started] = []
_lock = threading.Lock()


def start_early() -> None:
    """Start one worker for whoever will need it, unless there are to be none."""
    if os.environ.get(VARIABLE, "").strip() != "0" and possible():
        _early.append(start())


def possible() -> bool:
    """Tell whether a worker could do anything: it needs a Python to run, and JAX."""
    return bool(sys.executable) and importlib.util.find_spec("jax") is not None


def take() -> Started:
    """Return a worker that was started early, or start one."""
    with _lock:
        return _early.pop() if _early else start()


def start() -> Started:
    """Start a worker; its imports take a while, and whoever asks first waits for them."""
    ours, theirs = socket.socketpair()
    # It finds modules where this process does, and in no other folder it happens to be started in.
    path = os.pathsep.join(module_folders())
    with theirs:
        process = subprocess.Popen(  # noqa: S603  our own module
            [sys.executable, "-P", "-m", "crowdml.simulation.workers.process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,  # a keyboard interrupts whoever started it, and that ends it
            env=os.environ | jax_variables() | {"PYTHONPATH": path},
        )
    return Started(process, ours)


# A forked child has no workers: those are its parent's.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_early.clear)


def module_folders() -> list[str]:
    """Return where this process looks for modules, as other processes would have to name it."""
    found = []
    for entry in sys.path:
        if entry == "":
            with contextlib.suppress(OSError):  # the working folder may be gone
                found.append(os.getcwd())
        elif isinstance(entry, str):  # Python looks at nothing else
            found.append(entry)
    return found


@atexit.register
def end_early() -> None:
    """End workers that were started and never needed."""
    while _early:
        process, end = _early.pop()
        end.close()
        process.kill()
        process.wait()
