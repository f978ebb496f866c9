"""Delays: how long each leg of a contact takes, by law."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.sections import DelaySettings


def leg(delays: DelaySettings, name: str, count: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draw one leg (`request`, `check_out` or `check_in`) for a number of contacts, in ticks."""
    value = getattr(delays, name)
    if value == 0 or delays.law == "fixed":
        return np.full(count, float(value))
    if delays.law == "uniform":
        return generator.uniform(0.0, value, count)
    return generator.exponential(value, count)
