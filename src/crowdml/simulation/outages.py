"""Outages: spans in which a device cannot reach the server and goes on gathering rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.sections import CrowdSettings
from crowdml.core import record

Ints = npt.NDArray[Any]
Times = npt.NDArray[np.float64]


@record
class Outages:
    """When each device is cut off.

    Attributes:
        begins: Begin of each outage, shape (devices, outages), ascending.
        ends: End of each.
    """

    begins: Times
    ends: Times

    def until(self, device: Ints, time: Times) -> Times:
        """Return when each device can next reach the server: now, or at the end of the outage it is in."""
        before = (self.begins[device] <= time[:, None]).sum(axis=1)
        last = np.where(before > 0, self.ends[device, np.maximum(before - 1, 0)], -np.inf)
        return np.maximum(time, last)

    def cut(self, rows: Ints, times: Ints, counts: Ints, batch: int, buffer: int) -> tuple[Ints, Ints, Ints, Times]:
        """Cut the rows of one pass, sorted by device, into batches.

        All devices move on together, one batch at a time: a device's next batch begins where its last one ended.
        """
        ends = np.cumsum(counts)
        at = ends - counts
        # One ascending key for (device, time), so that one search serves all devices.
        horizon = float(times.max(initial=0)) + 2
        keys = np.repeat(np.arange(len(counts)), counts) * horizon + times
        found: list[tuple[Ints, Ints, Ints, Times]] = []
        while True:
            device = np.flatnonzero(at + batch <= ends)
            if not len(device):
                break
            first = at[device]
            ready = self.until(device, times[first + batch - 1].astype(np.float64))
            after = np.searchsorted(keys, device * horizon + np.minimum(ready, horizon - 1), side="right")
            taken = np.minimum(after - first, buffer)
            found.append((device, _lines(rows, first, taken), taken.astype(np.int32), ready))
            at[device] = after  # what came after the buffer was full is lost
        width = max((lines.shape[1] for _, lines, _, _ in found), default=batch)
        if not found:
            return np.zeros(0, np.int64), np.zeros((0, width), np.int32), np.zeros(0, np.int32), np.zeros(0)
        return (
            np.concatenate([part[0] for part in found]),
            np.concatenate([np.pad(part[1], ((0, 0), (0, width - part[1].shape[1]))) for part in found]),
            np.concatenate([part[2] for part in found]),
            np.concatenate([part[3] for part in found]),
        )


def draw_outages(crowd: CrowdSettings, total: int, generator: np.random.Generator) -> Outages | None:
    """Draw outages for a run of `total` ticks: time between them and their length are exponential."""
    if not crowd.outages.lasting:
        return None
    mean = crowd.outages.every + crowd.outages.lasting
    count = int(np.ceil(total / mean + 6 * np.sqrt(total / mean) + 6))
    up = generator.exponential(crowd.outages.every, (crowd.devices, count))
    down = generator.exponential(crowd.outages.lasting, (crowd.devices, count))
    ends = np.cumsum(up + down, axis=1)
    return Outages(begins=ends - down, ends=ends)


def _lines(rows: Ints, first: Ints, taken: Ints) -> Ints:
    """Return each batch as a line, padded with row 0."""
    place = np.arange(int(taken.max()))
    real = place < taken[:, None]
    return np.where(real, rows[np.minimum(first[:, None] + place, len(rows) - 1)], 0).astype(np.int32)
