"""In which order a dominator's rows go in: drawn once for each turn, so that a replay lets the same batches in."""

from __future__ import annotations

import hashlib

import numpy as np

from crowdml.slicing.stages import Indices


def row_order(secret: bytes, turn: int, rows: int) -> Indices:
    """Draw the order of a turn from the device's secret.

    >>> row_order(b"secret", 3, 5).tolist() == row_order(b"secret", 3, 5).tolist()
    True
    """
    seed = hashlib.blake2b(f"crowdml row order/{turn}".encode(), key=secret[:64], digest_size=32).digest()
    words = np.frombuffer(seed, "<u4")
    found: Indices = np.random.default_rng(words.tolist()).permutation(rows)
    return found
