"""The engine: trials as compiled code, and as a plain loop that gives the same numbers.

Whatever imports a module of this package runs this first: it says how JAX is to be started, and does not start it. Most
of a start is JAX's import, which then happens where it is needed: as a rule in a worker process.
"""

from __future__ import annotations

import os
import sys

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)

# Lets XLA compile a whole small loop into one kernel (without it results are the same, at up to 2.5 times the cost).
# Bytes are counted with all tables that a loop reads.
_FLAGS = {"--xla_backend_extra_options": "xla_cpu_small_while_loop_byte_threshold=1000000000000"}


def _prepare() -> None:
    given = os.environ.get("XLA_FLAGS", "")
    added = [f"{name}={value}" for name, value in _FLAGS.items() if name not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *added]).strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # One XLA device with a single thread, and programs that run in the thread that calls them: replicas are spread
    # over cores by processes of our own. XLA's pool splits each product over the cores, at 1.2 to 2 times the CPU time.
    os.environ.setdefault("NPROC", "1")
    os.environ["JAX_CPU_ENABLE_ASYNC_DISPATCH"] = "false"
    if "jax" in sys.modules:  # then it has read its variables already
        import jax

        jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]


_prepare()
