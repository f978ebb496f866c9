"""Orders: who comes before whom, found by sorting whole numbers.

NumPy sorts plain numbers several times as fast as it finds the order of given ones. So a number to sort by and its
place go into one whole number, the place in the lower bits: these are all different, and sorted they hold the stable
order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]
Times = npt.NDArray[np.float64]

CROWDED = 40
"""Arrivals in one slice of time from which on a search is quicker than a look at one after the other."""

SPARSE = 4
"""Ticks for each time up to which counting through all of them is quicker than sorting."""


def order_by_device(device: Ints) -> Ints:
    """Return the stable order of device numbers."""
    # NumPy sorts 16 bits digit by digit, which takes as long for any numbers.
    order = device.astype(np.uint16).argsort(kind="stable")
    if device.max(initial=0) >> 16:
        order = order.take((device >> 16).astype(np.uint16).take(order).argsort(kind="stable"))
    return order


def order_in_time(times: Times) -> Ints:
    """Return the stable order of some times."""
    found = _order_of_ticks(times)
    if found is not None:
        return found
    places = len(times).bit_length()
    # As many of the leading bits as there is room for tell nearly all times apart; equal ones keep their order.
    room = 62 - places - math.frexp(times.max(initial=0.0))[1]
    order = _sorted_places((times * 2.0 ** min(room, 900)).astype(np.int64) << places, places)
    ordered = times.take(order)
    return np.argsort(times, kind="stable") if (ordered[1:] < ordered[:-1]).any() else order


def _order_of_ticks(times: Times) -> Ints | None:
    """Put whole numbers that are all different, and not too far apart, in their places; None where times are others."""
    last = times.max(initial=-1.0)
    if not 0 <= last < SPARSE * len(times) or times.min() < 0:
        return None
    ticks = times.astype(np.int32)
    if (ticks != times).any():
        return None
    at = np.full(int(last) + 1, -1, np.int32)
    at[ticks] = np.arange(len(ticks), dtype=np.int32)
    order = at[at >= 0]
    return order if len(order) == len(times) else None


def _sorted_places(keys: Ints, bits: int) -> Ints:
    """Return the stable order of whole numbers whose lower bits are free for their places. They are used up."""
    keys |= np.arange(len(keys), dtype=keys.dtype)
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


def arrived_before(arrival: Times, read: Times) -> Ints:
    """Count the arrivals before each reading; arrivals ascend.

    Time is cut into slices, two for each arrival. All arrivals of earlier slices came before; those of the same slice,
    mostly none, are looked at one after the other.
    """
    if not len(arrival):
        return np.zeros(len(read), np.int64)
    scale = 2 * len(arrival) / max(float(arrival[-1]), 1e-9)
    per_slice = np.bincount(np.maximum(arrival * scale, 0).astype(np.int64))
    if per_slice.max() > CROWDED:
        return _searched(arrival, read)
    slices = np.minimum(read * scale, len(per_slice)).astype(np.int64)
    found = (np.cumsum(per_slice) - per_slice).take(slices, mode="clip")
    later = np.flatnonzero(arrival.take(found) < read)
    while len(later):
        found[later] += 1
        later = later[found[later] < len(arrival)]
        later = later[arrival.take(found[later]) < read[later]]
    return found


def _searched(arrival: Times, read: Times) -> Ints:
    """Count by search. Readings are looked for in their order: that keeps to the cache."""
    order, found = order_in_time(read), np.empty(len(read), np.int64)
    found[order] = np.searchsorted(arrival, read[order], side="left")
    return found
