"""What the compiled loop works on, as records: the check-ins of a chunk, what replicas carry, what stays the same.

Nothing here knows JAX, so that a run can be prepared, cut and put together while another process starts it.
"""

from __future__ import annotations

import dataclasses

from crowdml.algorithms.recipe import Hyper
from crowdml.core import Array
from crowdml.core.ops import Tree
from crowdml.core.records import record, tree_record

MEASURED_DEVICES = 100
"""Where each device has a model of its own, the test error is the mean over this many of them, evenly spaced."""


@tree_record
class Carry:
    """What replicas carry from check-in to check-in. The first axis of everything is the replica.

    Attributes:
        server: The server's state.
        past: Broadcasts of past versions, a ring; `()` when every check-in is fresh.
        tables: What the server keeps per device, and device states; each may have no leaves.
        pending: Device number and its new entries of `tables`, written at the next step; `()` without tables.
        stopped: Version at which `error-below` was met, -1 before; `()` when there is no such rule.
    """

    server: Tree
    past: Tree
    tables: Tree
    pending: Tree
    stopped: Tree


@tree_record
class Events:
    """Check-ins of one chunk: arrays of shape (replicas, check-ins, …).

    Attributes:
        number: Number of the check-in, from 1: the address of its coins.
        device: Device number.
        rows: Training rows in the batch, shape (replicas, check-ins, width).
        counts: Rows of the batch that are real; `()` when all are.
        staleness: Versions passed since check-out.
        version: Version before this check-in.
        commits: Whether a commit follows; `()` when one follows every check-in, or every fixed number of them.
        lies: Whether the device lies; `()` when nobody does.
        chosen: Which ε the device's owner has chosen; `()` when all have the same.
    """

    number: Array
    device: Array
    rows: Array
    counts: Tree
    staleness: Array
    version: Array
    commits: Tree
    chosen: Tree
    lies: Tree = ()


@tree_record
class Replicas:
    """What stays the same over a run.

    Attributes:
        hyper: Hyper-parameters, each of shape (replicas,), and arrays handed in, with replicas as their first axis.
        seeds: Seeds, shape (replicas, 2).
        scales: Scales of noise for every ε that owners may choose, each of shape (replicas, choices); empty where all
            have the same.
        measured: Rows to measure each replica on, by the name of the measurement, with replicas as the first axis;
            empty where all have the same.
    """

    hyper: Hyper
    seeds: Array
    scales: Hyper = dataclasses.field(default_factory=dict)
    measured: Hyper = dataclasses.field(default_factory=dict)


@record
class Shape:
    """What a program is compiled for, beside the shapes of its arguments.

    Attributes:
        ring: Past versions that are kept; 0 when every check-in is fresh.
        even: Whether all replicas have the same number of check-ins.
        per_commit: Check-ins per commit, or 0 where their number varies.
        part: Devices of a round that this process works for, where several share the rounds of one replica; 0: all.
    """

    ring: int
    even: bool
    per_commit: int
    part: int = 0
