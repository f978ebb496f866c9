"""Keys of members: who they are, what two of them agree on, and the streams of random words that keys become.

Every member has a lasting X25519 key, which its Ed25519 key has signed, and a fresh one for each attempt at a sum.
The fresh keys agree on masks; lasting and fresh keys together agree on the keys under which shares travel. So a share
that can be decrypted proves that its sender has the signed key *and* saw the same fresh keys: that is what vouches for
fresh keys, without a signature for each. Recovery makes a lost member's fresh key known, never a lasting one.

Every key is bound by HKDF to the signed task, version, attempt and the whole roster (the context), to the two members,
and to its use: masks, or mail in one of the two directions, or agreement on sharers. Streams are AES-256 in counter
mode; no key is ever used for two of them.

A member pins the others' cards at first sight: a slot that shows another card later is refused.
"""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crowdml.core import record
from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.core.keys import SigningKey, verify
from crowdml.secure_aggregation.commitments import numbers

PUBLIC_BYTES = 32
MOST_PEERS = 100_000
"""Members remembered at most; beyond that all are met anew."""
_FIELD = 2**255 - 19
_PURPOSE = b"crowdml sums key 1\0"
_NONCE = bytes(16)


class AgreementKey:
    """An X25519 key pair.

    >>> one, other = AgreementKey(bytes(range(32))), AgreementKey(bytes(range(1, 33)))
    >>> one.agree(other.public) == other.agree(one.public)
    True
    """

    def __init__(self, secret: bytes) -> None:
        """Take 32 random bytes."""
        self.secret = secret
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """Return what only the holders of the two keys know; a key of low order is refused."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise MalformedMessage("an X25519 key of low order, or none at all") from None


def require_canonical(public: bytes) -> None:
    """Refuse a key that is not written in the one canonical way: two that differ could be the same point."""
    if len(public) != PUBLIC_BYTES or int.from_bytes(public, "little") >= _FIELD:
        raise MalformedMessage("an X25519 key that is not written in the canonical way")


@record
class Card:
    """What introduces a member: it lasts for the whole task.

    Attributes:
        identity: The member's Ed25519 key, pinned when it joined.
        lasting: Its lasting X25519 key.
        signature: By the one, of the other.
    """

    identity: bytes
    lasting: bytes
    signature: bytes

    def require(self, task: str) -> None:
        """Raise `NotAuthorised` unless the signature is the identity's."""
        require_canonical(self.lasting)
        verify(self.identity, self.signature, _PURPOSE + task.encode() + b"\0" + self.lasting)


def lasting_key(identity: SigningKey, task: str) -> AgreementKey:
    """Derive the lasting key of a task from the identity, so that there is nothing more to store."""
    return AgreementKey(derive(identity.secret, b"lasting key\0" + task.encode()))


def make_card(identity: SigningKey, task: str) -> Card:
    """Sign the lasting key."""
    public = lasting_key(identity, task).public
    return Card(
        identity=identity.public,
        lasting=public,
        signature=identity.sign(_PURPOSE + task.encode() + b"\0" + public),
    )


def derive(secret: bytes, info: bytes, length: int = 32) -> bytes:
    """Derive a key: HKDF with SHA-256."""
    return HKDF(hashes.SHA256(), length, b"crowdml sums 1", info).derive(secret)


@record
class PairKeys:
    """What two members derive from their keys for one attempt.

    Attributes:
        mask: Key of the mask that one adds and the other subtracts.
        upward: Key of mail from the member with the smaller number.
        downward: Key of mail from the one with the larger number.
        agreement: Key under which they tell each other who has shared.
    """

    mask: bytes
    upward: bytes
    downward: bytes
    agreement: bytes


def mask_key(fresh: bytes, context: bytes, low: int, high: int, vector: int = 0) -> bytes:
    """Derive the key of the mask that two members share, from what their fresh keys agreed on."""
    return derive(fresh, b"mask\0" + context + numbers(low, high, vector))


def pair_keys(lasting: bytes, fresh: bytes, context: bytes, low: int, high: int) -> PairKeys:
    """Derive all keys of a pair."""
    keys = derive(lasting + fresh, b"mail\0" + context + numbers(low, high), 96)
    return PairKeys(
        mask=mask_key(fresh, context, low, high), upward=keys[:32], downward=keys[32:64], agreement=keys[64:]
    )


@record
class Peer:
    """Another member.

    Attributes:
        card: What it showed.
        agreed: What the two lasting keys agree on.
        vouching: Key under which the two tell each other what the server showed them, in every sum of the task.
    """

    card: Card
    agreed: bytes
    vouching: bytes


class Peers:
    """Cards that were checked once. A slot that shows another card later is refused.

    Args:
        identity: This member's signing key.
        task: Name of the task.

    Attributes:
        card: What introduces this member to others.
    """

    def __init__(self, identity: SigningKey, task: str) -> None:
        self.card = make_card(identity, task)
        self._lasting, self._task = lasting_key(identity, task), task
        self._known: dict[int, Peer] = {}

    def meet(self, slot: int, card: Card) -> Peer:
        """Return what is known of a member; at first sight its card's signature is checked."""
        known = self._known.get(slot)
        if known is not None:
            if known.card != card:
                raise NotAuthorised(f"member {slot} shows another key than before")
            return known
        card.require(self._task)
        agreed = self._lasting.agree(card.lasting)
        if len(self._known) >= MOST_PEERS:
            self._known.clear()
        self._known[slot] = Peer(card=card, agreed=agreed, vouching=derive(agreed, b"vouching\0" + self._task.encode()))
        return self._known[slot]


def stream(key: bytes, size: int) -> bytes:
    """Return pseudo-random bytes: AES-256-CTR under a key that is used for nothing else."""
    return bytes(Stream(size).of(key))


class Stream:
    """Pseudo-random bytes of one length for many keys, all written to the same place.

    Args:
        size: How many bytes.
    """

    def __init__(self, size: int) -> None:
        self._zeros, self._room, self._size = bytes(size), bytearray(size + 15), size

    def of(self, key: bytes) -> memoryview:
        """Return the bytes of a key; they are overwritten by the next."""
        encryptor = Cipher(algorithms.AES(key), modes.CTR(_NONCE)).encryptor()
        encryptor.update_into(self._zeros, self._room)
        return memoryview(self._room)[: self._size]
