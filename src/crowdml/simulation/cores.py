"""Cores: lanes are cut into one block per core, and each block runs in a thread of its own.

A compiled program runs in the thread that calls it, on that thread alone, and lets go of Python meanwhile. So as many
threads as cores keep all of them busy, and none waits for another before the end of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from crowdml.core.ops import Tree
from crowdml.simulation.jax_setup import CORES

Blocks = tuple[Any, ...]
"""One tree per core; leaves have the core's lanes as their first axis."""

_threads = ThreadPoolExecutor(CORES, thread_name_prefix="core")


def count_blocks(lanes: int) -> int:
    """Return how many cores are used: as many as divide the lanes evenly."""
    return max(count for count in range(1, CORES + 1) if lanes % count == 0)


def cut(tree: Tree, count: int) -> Blocks:
    """Cut a tree whose leaves have lanes as their first axis into blocks."""

    def block(number: int) -> Tree:
        return jax.tree.map(lambda leaf: leaf[_span(len(leaf), number, count)], tree)

    return tuple(block(number) for number in range(count))


def join(blocks: Blocks) -> Tree:
    """Put blocks together again, as NumPy arrays."""
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *blocks)


def on_all(function: Callable[..., Any], *arguments: Blocks) -> Blocks:
    """Call a compiled function with every core's block of each argument, all at once."""

    def call(*own: Any) -> Any:
        # XLA hands a call whose arguments are still being copied to its own only thread.
        given = jax.block_until_ready(jax.device_put(own))  # type: ignore[no-untyped-call]
        return jax.block_until_ready(function(*given))  # type: ignore[no-untyped-call]

    return tuple(_threads.map(call, *arguments))


def _span(lanes: int, number: int, count: int) -> slice:
    size = lanes // count
    return slice(number * size, (number + 1) * size)
