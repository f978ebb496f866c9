"""Starting JAX the way the simulation wants it. The package imports this first."""

from __future__ import annotations

import os

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)

# Lets XLA compile a whole small loop into one kernel (without it results are the same, at up to 2.5 times the cost).
_FLAGS = {"--xla_backend_extra_options": "xla_cpu_small_while_loop_byte_threshold=1000000000"}


def _prepare() -> None:
    given = os.environ.get("XLA_FLAGS", "")
    added = [f"{name}={value}" for name, value in _FLAGS.items() if name not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *added]).strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # One XLA device with a single thread, and programs that run in the thread that calls them: lanes are spread over
    # cores by threads of our own (`cores.py`). XLA's pool splits each product over the cores, at 1.2 to 2 times the
    # CPU time.
    os.environ.setdefault("NPROC", "1")
    import jax  # only now: the variables above are read when it is imported or first used

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]


_prepare()
