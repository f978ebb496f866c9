from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core.errors import MalformedMessage
from crowdml.secure_aggregation.masked_vectors import pack, packed_size, unpack, word_type


@given(st.integers(1, 62), st.integers(1, 300), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_values_come_back(bits: int, size: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 1 << bits, size, dtype=np.uint64).astype(word_type(bits))
    body = pack(values, bits)
    assert len(body) == packed_size(size, bits)
    assert unpack(body, size, bits).tolist() == values.tolist()


def test_the_format_is_what_the_page_says() -> None:
    """33 values of 20 bits: two columns, so value r of column c is the (2r + c)th."""
    values = np.arange(33, dtype=np.uint32)
    words = np.frombuffer(pack(values, 20), "<u4").reshape(20, 2)
    for column in range(2):
        whole = sum(int(word) << 32 * at for at, word in enumerate(words[:, column]))
        column_values = [whole >> 20 * row & 0xFFFFF for row in range(32)]
        assert column_values == [2 * row + column if 2 * row + column < 33 else 0 for row in range(32)]


def test_bits_beyond_the_modulus_are_dropped() -> None:
    assert unpack(pack(np.array([9], np.uint32), 3), 1, 3).tolist() == [1]


def test_many_values_take_their_bits_and_little_more() -> None:
    assert packed_size(100_000, 26) == 100_000 * 26 // 8


@pytest.mark.parametrize("body", [b"", bytes(11), bytes(13)])
def test_another_length_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        unpack(body, 5, 3)


def test_bits_where_no_value_is_are_refused() -> None:
    body = bytearray(pack(np.zeros(5, np.uint32), 3))
    body[-1] = 0x80
    with pytest.raises(MalformedMessage, match="beyond the last"):
        unpack(bytes(body), 5, 3)


@pytest.mark.parametrize("bits", [0, 63])
def test_a_modulus_has_bits_that_a_word_holds(bits: int) -> None:
    with pytest.raises(ValueError, match="modulus"):
        word_type(bits)
