"""Passes of a crowd that is always there: every device's rows in the order in which it gets them, cut into batches.

A pass is a random order of all rows. What a device gathers in it are its rows by their place in that order, so nothing
has to be sorted but the places of one device's rows: short lines, side by side. Passes over few rows are worked out
many at a time, as if each had devices and rows of its own.
"""

from __future__ import annotations

import numpy as np

from crowdml.core import record
from crowdml.simulation.timeline.orders import Ints, Times, order_by_device

Batches = tuple[Ints, Ints, Ints, Times]
"""Device, rows, how many, and when they were ready to go."""

AT_ONCE = 1 << 16
"""Rows of passes that are worked out together: as many as stay in a core's cache."""

MOST_ROOM = 2
"""Room that lines of equal length may take, as a multiple of the rows; devices beyond that are too unequal."""


@record
class Passes:
    """Cuts pass after pass.

    Attributes:
        lines: Rows of every device, shape (devices, most rows of one); the number of rows stands where there is none.
        kept: Places in such lines that whole batches take; None: all of them.
        device: Device of each batch of a pass.
        rows: How many rows there are.
        batch: Rows in a batch.
    """

    lines: Ints
    kept: Ints | None
    device: Ints
    rows: int
    batch: int

    def cut(self, passes: int, generator: np.random.Generator) -> Batches:
        """Draw the order of each pass, and return the batches of all, pass by pass and device by device."""
        at_once = max(1, min(passes, AT_ONCE // self.rows))
        room = at_once * self.rows
        lines = self.lines[None]
        if at_once > 1:
            lines = np.where(lines < self.rows, lines + self.rows * np.arange(at_once)[:, None, None], room)
        place = np.empty(room + 1, np.int32)
        place[room] = room  # behind all others
        rows = np.empty((passes * len(self.device), self.batch), np.int32)
        filled = np.empty(len(rows))
        for first in range(0, passes, at_once):
            some = min(at_once, passes - first)
            orders = [generator.permutation(self.rows) for _ in range(some)]
            drawn = np.concatenate(orders, dtype=np.int32, casting="same_kind")
            for number, order in enumerate(orders):
                begin = number * self.rows
                place[begin : begin + self.rows][order] = np.arange(begin, begin + self.rows, dtype=np.int32)
            gathered = place.take(lines[:some])
            if gathered.shape[-1] > 1:
                gathered.sort(axis=-1)
            gathered = gathered.reshape(some, -1)
            if self.kept is not None:
                gathered = gathered.take(self.kept, axis=1)
            gathered = gathered.reshape(-1, self.batch)
            these = slice(first * len(self.device), (first + some) * len(self.device))
            drawn.take(gathered, out=rows[these], mode="clip")  # none is outside, and this is quicker to write
            filled[these] = gathered[:, -1]
            filled[these] += first * self.rows
        device = np.tile(self.device, passes) if passes > 1 else self.device
        return device, rows, np.broadcast_to(np.int32(self.batch), len(device)), filled


def passes_of(owner: Ints, sizes: Ints, batch: int) -> Passes | None:
    """Lay out the rows of a crowd whose row r belongs to device `owner[r]`; None where devices are too unequal.

    Args:
        owner: Device of every row.
        sizes: How many rows each device has.
        batch: Rows in a batch; what is left over at the end of a pass is forgotten.
    """
    width = int(sizes.max())
    if width * len(sizes) > MOST_ROOM * len(owner):
        return None
    order, per_device = order_by_device(owner), sizes // batch
    device = np.repeat(np.arange(len(sizes), dtype=np.int32), per_device)
    if sizes.min() == width:
        lines = order.reshape(len(sizes), width)
    else:
        lines = np.full((len(sizes), width), len(owner))
        lines[np.arange(width) < sizes[:, None]] = order
    kept = None
    if len(device) * batch < lines.size:
        kept = np.flatnonzero(np.arange(width) < (per_device * batch)[:, None])
    return Passes(lines=lines, kept=kept, device=device, rows=len(owner), batch=batch)
