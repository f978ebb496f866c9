"""Frozen records, and those that devices and server tell each other: models, privacy and wire meet here.

    server ── Broadcast ─► device: Release (bounded, stays) ─► CheckIn ── wire ─► server ─► Report

An absent part is `()`, which has no leaves: it costs nothing in compiled code and no byte on the wire.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from crowdml.core.trees import Absent, Array, Float, Integer, Num, Tree

Class = TypeVar("Class", bound=type)

_tree_records: list[type] = []
_listeners: list[Callable[[type], object]] = []


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: Class) -> Class:
    """Make a class a frozen, keyword-only dataclass."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)  # type: ignore[return-value]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def tree_record(cls: Class) -> Class:
    """Make a class a `record` whose fields are arrays or trees of arrays."""
    made = record(cls)
    _tree_records.append(made)
    for listener in _listeners:
        listener(made)
    return made


def on_tree_record(listener: Callable[[type], object]) -> None:
    """Call a function with every tree record: those there are now, and those that are defined later.

    The simulation driver registers records with JAX this way; nobody else needs to know. A plug-in that defines its
    state after a simulation was imported is registered as well.
    """
    _listeners.append(listener)
    for known in tuple(_tree_records):
        listener(known)


@tree_record
class Batch:
    """Rows a device works on in one step. Masked rows count for nothing, so the shape can stay fixed.

    Local steps take a batch in parts, one below the other: then there is one axis more, the first.

    Attributes:
        rows: Features.
        targets: What each row is to be mapped to: a class number, or a number between -1 and 1.
        mask: 1.0 for a real row, 0.0 for padding.
    """

    rows: Num[Array, "*parts size features"]
    targets: Num[Array, "*parts size"]
    mask: Float[Array, "*parts size"]

    def count(self, xp: Any) -> Integer[Array, ""]:
        """Count the rows that are no padding, int32; `xp` is the namespace of the arrays."""
        return xp.sum(self.mask).astype(xp.int32)


@tree_record
class Broadcast:
    """What leaves the server; public.

    Attributes:
        parameters: The model.
        count: The server's counter at the next step, from 1; `()` where no device asks for it.
        more: Whatever else an algorithm tells everybody, such as a control variate.
    """

    parameters: Tree
    count: Integer[Array, ""] | Absent = ()
    more: Tree = ()


@tree_record
class Tally:
    """Counts of a release, of a device, or of the crowd. `rows` and `counted` travel in clear.

    Attributes:
        rows: Rows looked at.
        counted: Rows over which errors were counted.
        errors: Of those, how many the model got wrong.
        spread: How the targets are spread: one number for each label, or for each bin of a number.
    """

    rows: Integer[Array, ""]
    counted: Integer[Array, ""]
    errors: Num[Array, ""]
    spread: Num[Array, " bins"]


@tree_record
class Release:
    """What a device is about to send: bounded, without noise. It never leaves the device.

    Attributes:
        update: The contribution.
        rows: Rows behind it, int32.
        counts: A `Tally`, or `()`.
        count: The rate's counter at this release, from 1, or `()`.
    """

    update: Tree
    rows: Integer[Array, ""]
    counts: Tally | Absent = ()
    count: Integer[Array, ""] | Absent = ()


@tree_record
class CheckIn:
    """What leaves a device.

    Attributes:
        update: The contribution with noise; times its weight where several make a version.
        weight: How much it counts, int32: the rows behind it, or 1. Where check-ins stand below each other, a column.
        counts: A `Tally` with noise, or `()`.
    """

    update: Tree
    weight: Integer[Array, ""] | Integer[Array, "check_ins 1"]
    counts: Tally | Absent = ()


@tree_record
class Report:
    """What may be shown of a server's state.

    Attributes:
        parameters: The model as it stands.
        counts: A `Tally` of everything counted so far; `()` where counts are not sent.
        averaging: How the last version was averaged; `()` where there is nothing to tell.
    """

    parameters: Tree
    counts: Tally | Absent = ()
    averaging: Tree = ()


@tree_record
class DeviceState:
    """What a device remembers: of its work, and of its noise.

    Work advances with every check-in that the server has used, noise with every release that was charged.
    """

    work: Tree
    noise: Tree
