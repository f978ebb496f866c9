"""The crowd of a task as the server keeps it in memory: who may speak, and how to find them by their tokens."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac

from crowdml.server.refusals import Refusal
from crowdml.server.store import StoredDevice


@dataclasses.dataclass(kw_only=True, slots=True)
class DeviceState:
    """One enrolled device as requests find it. What it has contributed is in the task's snapshot.

    Attributes:
        id: Name given at enrolment.
        task: Name of its task.
        slot: Its place in the task; never given again.
        token_hash: SHA-256 of its token.
        revoked: Whether it may not speak any more.
        refused: Check-ins since the server started that no honest device sends.
        public_key: Its Ed25519 key, pinned when it joined.
        invited: Last version that it was given in a round since the server started, or -1.
    """

    id: str
    task: str
    slot: int
    token_hash: bytes
    revoked: bool
    public_key: bytes = b""
    refused: int = 0
    invited: int = -1

    @staticmethod
    def of(stored: StoredDevice, task: str) -> DeviceState:
        """Take a device from the store."""
        return DeviceState(
            id=stored.id,
            task=task,
            slot=stored.slot,
            token_hash=stored.token_hash,
            revoked=stored.revoked,
            public_key=stored.public_key,
        )


def token_hash(token: bytes) -> bytes:
    """Return what is stored of a token."""
    return hashlib.sha256(token).digest()


class Tokens:
    """Finds the device that a token belongs to.

    A token is looked up by its hash, so how long that takes says nothing about the token; the full comparison takes
    the same time for all.
    """

    def __init__(self) -> None:
        self._devices: dict[bytes, DeviceState] = {}
        self._revoked: set[bytes] = set()

    def add(self, device: DeviceState) -> None:
        """Let a device speak."""
        self._devices[device.token_hash] = device

    def remove(self, device: DeviceState) -> None:
        """Forget a device's token."""
        self._devices.pop(device.token_hash, None)

    def revoke(self, hashed: bytes) -> None:
        """Remember a token that was taken away, so that its device can be told so."""
        self._revoked.add(hashed)

    def refusal(self, token: bytes) -> Refusal:
        """Say to somebody whose token opens nothing why that is."""
        hashed = token_hash(token)
        if hashed in self._revoked or hashed in self._devices:
            return Refusal(
                401,
                "revoked",
                "the operator has revoked this device: it may send nothing more",
                hint="what it sent stays counted in its ledger; with a new invite it can join again: crowdml device "
                "join LINK",
            )
        return Refusal(
            401,
            "not-authorised",
            "the token is not valid: no device of this server has it",
            hint="a device can join again with a new invite: crowdml device join LINK",
        )

    def find(self, token: bytes) -> DeviceState | None:
        """Return the device, or None for a token that nobody has or that was revoked."""
        hashed = token_hash(token)
        device = self._devices.get(hashed)
        if device is None or device.revoked or not hmac.compare_digest(hashed, device.token_hash):
            return None
        return device
