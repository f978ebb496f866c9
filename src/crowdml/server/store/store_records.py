"""What the store keeps, as records, and how it fails.

CrowdError
├── StoreConflict   somebody else has written; nothing of this transaction is stored
└── StoreFailed     whether it is stored is not known; the process must end
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from crowdml.core import CrowdError, record

Refused = Literal["unknown", "used", "key-taken"]
"""Why a device cannot join: there is no such invite, another device used it, or its key has joined already."""


@record
class NewTask:
    """A task about to be stored.

    Attributes:
        name: Name of the task on its server.
        state: `draft`, `open`, `paused` or `stopped`.
        file: The task file's text.
        signed_text: The task as devices read it, in the bytes that were signed.
        signature: The operator's signature over it.
        key: The operator's public key.
        server_state: The algorithm's state, encoded.
        incarnation: 1 at first; one more after every restore of a backup.
        reason: Why it is in this state.
        public: Labelled public rows as the model sees them, safetensors; None where the task needs none.
    """

    name: str
    state: str
    file: str
    signed_text: bytes
    signature: bytes
    key: bytes
    server_state: bytes
    incarnation: int = 1
    reason: str | None = None
    public: bytes | None = None


@record
class StoredTask(NewTask):
    """A stored task.

    Attributes:
        id: Number of the task in this database.
        version: Commits made so far.
        check_ins: Check-ins counted so far.
        received: Check-ins in the window since the last commit.
        slots: Slots given to devices so far; none is given twice.
    """

    id: int
    version: int
    check_ins: int
    received: int
    slots: int


@record
class NewDevice:
    """A device about to join.

    Attributes:
        id: Its random name.
        token_hash: SHA-256 of its bearer token.
        public_key: Its Ed25519 key.
        joined: Time of joining, in seconds since 1970.
    """

    id: str
    token_hash: bytes
    public_key: bytes
    joined: float


@record
class StoredDevice(NewDevice):
    """A device of a task.

    Attributes:
        task: Number of its task.
        slot: Its place in the task's arrays.
        revoked: Whether the operator has shut it out.
        check_ins: How many of its check-ins have a receipt.
        last_version: Version its last check-in started from, or -1.
    """

    task: int
    slot: int
    revoked: bool
    check_ins: int
    last_version: int


@record
class Joined:
    """The answer to an invite that was accepted.

    Attributes:
        device: The device, with its slot.
        again: Whether the same key had used the invite before; its earlier token is dead.
    """

    device: StoredDevice
    again: bool


@dataclasses.dataclass(slots=True, kw_only=True)
class Receipt:
    """Proof that a check-in is stored. Quick to make, so not frozen; nobody changes it.

    Attributes:
        slot: Slot of the device.
        key: The check-in's idempotency key.
        body: SHA-256 of its bytes.
        number: How many check-ins of this device have a receipt, with this one.
        version: The version after it was folded in.
        started: The version it started from.
        status: `applied` or `queued`.
        device: Name of the device; None after it has withdrawn. Not read by `apply`.
    """

    slot: int
    key: str
    body: bytes
    number: int
    version: int
    started: int
    status: str
    device: str | None = None


@record
class Point:
    """A point of the learning curve.

    Attributes:
        version: Commits so far.
        check_ins: Check-ins so far.
        rows: Rows that devices said they learnt from.
        estimated_error: The private estimate since the beginning, where there is one.
        time: Seconds since 1970.
        counted: Rows over which errors were counted so far; None where none are.
        errors: Errors among them, with the devices' noise.
    """

    version: int
    check_ins: int
    rows: int
    estimated_error: float | None
    time: float
    counted: int | None = None
    errors: int | None = None


@record
class NewDay:
    """A day that begins, with what is known of the one before it.

    Attributes:
        day: Number of the day since 1970, UTC.
        version: Version before its first check-in.
        staleness: How stale all check-ins before it were, as text of JSON.
        over: Day before it on which devices took part: its number, its check-ins, devices that took part; None: none.
    """

    day: int
    version: int
    staleness: str
    over: tuple[int, int, int] | None = None


@record
class StoredDay:
    """A day on which devices took part.

    Attributes:
        day: Number of the day since 1970, UTC.
        first: Place of its first receipt in the log.
        version: Version before that.
        staleness: How stale all check-ins before it were, as text of JSON.
        check_ins: Check-ins of the day; None for the last one, whose receipts tell.
        devices: Devices that took part; None for the last one.
    """

    day: int
    first: int
    version: int
    staleness: str
    check_ins: int | None
    devices: int | None


@record
class StoredError:
    """An error on the operator's public rows.

    Attributes:
        version: Version whose model was looked at.
        error: Its error, from 0 to 1.
        time: Seconds since 1970.
    """

    version: int
    error: float
    time: float


@record
class Applied:
    """A batch of check-ins that was folded in, to be stored as a whole.

    Attributes:
        task: Number of the task.
        expected_version: Version before the batch.
        expected_check_ins: Check-ins before the batch.
        version: Version after it.
        check_ins: Check-ins after it.
        received: Check-ins in the window after it.
        server_state: The algorithm's state after it, encoded.
        rows: For slots whose row of the device state changed: the new row.
        receipts: One for every check-in of the batch; none of their keys is stored yet.
        state: The task's new state, if the batch changed it.
        reason: Why; only with `state`.
        point: A point to add to the curve.
        day: The day that begins with this batch, if one does.
    """

    task: int
    expected_version: int
    expected_check_ins: int
    version: int
    check_ins: int
    received: int
    server_state: bytes
    rows: Mapping[int, bytes]
    receipts: Sequence[Receipt]
    state: str | None = None
    reason: str | None = None
    point: Point | None = None
    day: NewDay | None = None


@record
class Identity:
    """Who the server is.

    Attributes:
        signing_key: Secret of the operator's Ed25519 key, which signs tasks.
        operator_token_hash: SHA-256 of the operator's bearer token.
    """

    signing_key: bytes
    operator_token_hash: bytes


class StoreConflict(CrowdError):
    """The stored state is not the one that the writer started from. Nothing was stored."""


class StoreFailed(CrowdError):
    """The database or its disk failed. What was being written may be stored or not: end the process and start anew."""
