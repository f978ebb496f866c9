"""The engine: trials as compiled code, and as a plain loop that gives the same numbers.

Here it is said how JAX is to be started. Most of a start is JAX's import, which happens where it is needed: as a rule
in a worker process, which is given these variables. The process of whoever calls `crowdml.simulate` keeps its own,
unless JAX runs in it (`CROWDML_WORKERS=0`, recipes registered by its own code, batch training).
"""

from __future__ import annotations

import functools
import os
import sys

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)

PLATFORMS = "JAX_PLATFORMS"
"""Where JAX computes: `cpu` unless somebody says otherwise."""

# Lets XLA compile a whole small loop into one kernel (without it results are the same, at up to 2.5 times the cost).
# Bytes are counted with all tables that a loop reads.
_FLAGS = {"--xla_backend_extra_options": "xla_cpu_small_while_loop_byte_threshold=1000000000000"}

_brought_along = "jax" in sys.modules
"""Whether JAX was there before us: then it computes where its owner wants."""


def jax_variables() -> dict[str, str]:
    """Return the variables that JAX is to be started with; what the user has set stays."""
    flags = os.environ.get("XLA_FLAGS", "")
    added = [f"{name}={value}" for name, value in _FLAGS.items() if name not in flags]
    return {
        "XLA_FLAGS": " ".join([flags, *added]).strip(),
        PLATFORMS: os.environ.get(PLATFORMS) or "cpu",
        # One XLA device with a single thread, and programs that run in the thread that calls them: replicas are spread
        # over cores by processes of our own. XLA's pool splits each product over the cores, at 1.2 to 2 times the CPU
        # time.
        "NPROC": os.environ.get("NPROC") or "1",
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    }


def on_accelerator() -> bool:
    """Tell whether the user wants something else than processors."""
    return (os.environ.get(PLATFORMS) or "cpu").partition(",")[0] != "cpu"


@functools.cache
def start_jax() -> None:
    """Prepare this process for JAX, after its import and before it first computes something; once."""
    import jax

    wanted = jax_variables()
    os.environ |= {name: wanted[name] for name in ("XLA_FLAGS", "NPROC")}  # read when the first device is asked for
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]
    if not _brought_along:
        jax.config.update("jax_platforms", wanted[PLATFORMS])  # type: ignore[no-untyped-call]


@functools.cache
def require_platform() -> None:
    """Refuse a platform that JAX cannot start on."""
    import jax

    from crowdml.core.errors import BadInput  # it brings NumPy along, and commands start workers before they need that

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # versions differ in how they say it
        why = " ".join(str(error).split()).partition(" (you may need")[0]
        raise BadInput(
            f"JAX finds nothing to compute on{': ' * bool(why)}{why}",
            where=f"{PLATFORMS}={os.environ.get(PLATFORMS, '')}",
            hint='leave it out to run on processors, or install JAX for your accelerator, such as "jax[cuda12]"',
        ) from None
