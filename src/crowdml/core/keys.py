"""Keys that sign: the operator's, which signs tasks, and each device's, pinned when it joins."""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from crowdml.core.errors import MalformedMessage, NotAuthorised

KEY_BYTES = 32
SIGNATURE_BYTES = 64


class SigningKey:
    """An Ed25519 key pair.

    >>> key = SigningKey.make()
    >>> verify(key.public, key.sign(b"message"), b"message")
    """

    def __init__(self, secret: bytes) -> None:
        """Take a stored secret of 32 bytes."""
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    @staticmethod
    def make() -> SigningKey:
        """Make a new key from the operating system's entropy."""
        return SigningKey(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def secret(self) -> bytes:
        """The 32 bytes to keep in a safe place."""
        return self._key.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self._key.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> None:
    """Raise `NotAuthorised` unless the signature over the message is the key's."""
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        raise MalformedMessage("an Ed25519 key has 32 bytes, a signature 64")
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        raise NotAuthorised("the signature is not the key's") from None


def fingerprint(public: bytes) -> str:
    """Name a public key: 160 bits of its SHA-256 in base32, short enough to compare by eye.

    >>> len(fingerprint(bytes(32)))
    32
    """
    return base64.b32encode(hashlib.sha256(b"crowdml key\0" + public).digest()[:20]).decode("ascii").lower()
