"""Starting JAX the way the simulation wants it. The package imports this first."""

from __future__ import annotations

import os

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)

# One XLA device per core, each with a single thread: trials are spread over devices, and XLA's own thread pool
# doubles the CPU time of small loops for nothing. The last flag lets XLA compile a whole small loop into one kernel
# (without it results are the same, at up to 2.5 times the cost).
_FLAGS = {
    "--xla_force_host_platform_device_count": str(CORES),
    "--xla_backend_extra_options": "xla_cpu_small_while_loop_byte_threshold=1000000000",
}


def _prepare() -> None:
    given = os.environ.get("XLA_FLAGS", "")
    added = [f"{name}={value}" for name, value in _FLAGS.items() if name not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *added]).strip()
    os.environ.setdefault("NPROC", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


_prepare()
