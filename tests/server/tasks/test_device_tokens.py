"""The crowd in memory: who a token belongs to."""

from __future__ import annotations

from crowdml.server.tasks.device_tokens import DeviceState, Tokens, token_hash


def device(token: bytes, slot: int = 0) -> DeviceState:
    return DeviceState(
        id=f"device-{slot}",
        task="walk",
        slot=slot,
        token_hash=token_hash(token),
        revoked=False,
    )


def test_a_token_finds_its_device_and_nobody_elses() -> None:
    tokens = Tokens()
    one, two = device(b"one"), device(b"two", 1)
    tokens.add(one)
    tokens.add(two)
    assert tokens.find(b"one") is one and tokens.find(b"two") is two
    for other in (b"", b"on", b"one ", b"One", token_hash(b"one"), b"\xff" * 1000):
        assert tokens.find(other) is None


def test_a_revoked_device_is_not_found_even_before_it_is_removed() -> None:
    tokens = Tokens()
    one = device(b"one")
    tokens.add(one)
    one.revoked = True
    assert tokens.find(b"one") is None
    tokens.remove(one)
    tokens.remove(one)
    assert tokens.find(b"one") is None


def test_a_token_is_kept_as_its_hash_only() -> None:
    tokens = Tokens()
    tokens.add(device(b"very-secret"))
    assert "very-secret" not in repr(vars(tokens)) and len(token_hash(b"very-secret")) == 32
