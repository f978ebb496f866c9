"""Keys: a signature is one key's over one message, and nothing else passes."""

from __future__ import annotations

import pytest

from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.core.keys import SigningKey, fingerprint, verify

# RFC 8032, section 7.1, test 2
SECRET = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d2"
    "91612bb0c00"
)


def test_keys_are_ed25519() -> None:
    key = SigningKey(SECRET)
    assert key.public == PUBLIC and key.secret == SECRET and key.sign(b"\x72") == SIGNATURE
    verify(PUBLIC, SIGNATURE, b"\x72")


def test_another_message_key_or_signature_does_not_pass() -> None:
    other = SigningKey.make()
    cases = [
        (PUBLIC, SIGNATURE, b"\x73"),
        (other.public, SIGNATURE, b"\x72"),
        (PUBLIC, other.sign(b"\x72"), b"\x72"),
        (PUBLIC, bytes(64), b"\x72"),
        (bytes(32), SIGNATURE, b"\x72"),
        (b"\xff" * 32, SIGNATURE, b"\x72"),
    ]
    for public, signature, message in cases:
        with pytest.raises(NotAuthorised):
            verify(public, signature, message)


def test_a_signature_cannot_be_changed_into_another_valid_one() -> None:
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(SIGNATURE[32:], "little") + order
    with pytest.raises(NotAuthorised):
        verify(PUBLIC, SIGNATURE[:32] + s.to_bytes(32, "little"), b"\x72")


@pytest.mark.parametrize(("public", "signature"), [(0, 64), (31, 64), (33, 64), (32, 0), (32, 63), (32, 65)])
def test_what_has_another_length_is_malformed(public: int, signature: int) -> None:
    with pytest.raises(MalformedMessage):
        verify(bytes(public), bytes(signature), b"")


def test_keys_are_made_anew_each_time() -> None:
    assert len({SigningKey.make().secret for _ in range(5)}) == 5


def test_a_fingerprint_names_a_key() -> None:
    assert fingerprint(PUBLIC) == fingerprint(PUBLIC) != fingerprint(bytes(32))
    assert fingerprint(PUBLIC).isalnum() and fingerprint(PUBLIC).islower()
