"""Layout: bytes that are safetensors, that survive the trip bit by bit, and that nothing else is taken for."""

from __future__ import annotations

import json
import string
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crowdml.core import BadInput, trees
from crowdml.core.errors import MalformedMessage
from crowdml.wire import Layout

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
LEAVES = st.one_of(
    hnp.arrays(np.float32, SHAPES, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    hnp.arrays(np.int32, SHAPES),
    hnp.arrays(np.int64, SHAPES),
)
KEYS = st.text(string.ascii_letters + '-_ "é', min_size=1, max_size=4)
MESSAGES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(st.dictionaries(KEYS, inner, max_size=3), st.lists(inner, max_size=3).map(tuple)),
        max_leaves=6,
    ),
    max_size=3,
)
EXAMPLE = {"content": ({"w": np.zeros((2, 3), np.float32)}, {"n": np.zeros(2, np.int32)}), "version": np.int64(0)}


def message(fill: float = 1.5) -> Any:
    return {
        "content": ({"w": np.full((2, 3), fill, np.float32)}, {"n": np.array([7, -8], np.int32)}),
        "version": np.int64(3),
    }


def same_bits(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())


@settings(deadline=None, max_examples=120)
@given(MESSAGES)
def test_any_message_survives_bit_by_bit_and_is_a_safetensors_file(tree: Any) -> None:
    layout = Layout(trees.map(np.zeros_like, tree))
    body = layout.encode(tree)
    back = layout.decode(body)
    assert len(body) == layout.size_bytes
    assert [path for path, _ in trees.paths(back)] == [path for path, _ in trees.paths(tree)]
    assert all(same_bits(one, other) for one, other in zip(trees.leaves(back), trees.leaves(tree), strict=True))
    parsed = safetensors.numpy.load(body)
    expected = dict(trees.paths(tree))
    assert parsed.keys() == expected.keys()
    assert all(same_bits(parsed[path], expected[path]) for path in expected)


def test_the_header_is_written_byte_by_byte_as_the_format_says() -> None:
    layout = Layout({"b": np.zeros((2,), np.int32), "a": {"x": np.float32(0)}})
    text = (
        b'{"a/x":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"b":{"dtype":"I32","shape":[2],"data_offsets":[4,12]}}'
    )
    padded = text + b" " * (-len(text) % 8)
    assert layout.header == len(padded).to_bytes(8, "little") + padded
    assert len(layout.header) % 8 == 0
    assert layout.encode({"b": np.array([1, -2], np.int32), "a": {"x": np.float32(1)}}) == layout.header + (
        b"\x00\x00\x80\x3f\x01\x00\x00\x00\xfe\xff\xff\xff"
    )


def test_the_numbers_begin_at_a_multiple_of_eight_bytes() -> None:
    for length in range(1, 9):
        header = Layout({"k" * length: np.zeros(2, np.float32)}).header
        assert len(header) % 8 == 0 and len(header) == 8 + int.from_bytes(header[:8], "little")


def test_the_header_does_not_depend_on_values() -> None:
    assert Layout(message(1.0)).header == Layout(message(2.0)).header == Layout(EXAMPLE).header


@pytest.mark.parametrize(
    "bits", [0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x00000000]
)
def test_signed_zeros_subnormals_and_extremes_survive(bits: int) -> None:
    value = np.array([bits], np.uint32).view(np.float32)
    layout = Layout({"x": np.zeros(1, np.float32)})
    assert layout.decode(layout.encode({"x": value}))["x"].view(np.uint32)[0] == bits


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**53 + 1])
def test_large_integers_survive(value: int) -> None:
    layout = Layout({"x": np.int64(0)})
    assert layout.decode(layout.encode({"x": np.int64(value)}))["x"].item() == value


def test_views_that_are_not_contiguous_are_written_in_order() -> None:
    layout = Layout({"x": np.zeros((3, 2), np.float32)})
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(layout.decode(layout.encode({"x": turned}))["x"], turned)


def test_what_was_decoded_cannot_be_changed() -> None:
    layout = Layout(EXAMPLE)
    back = layout.decode(layout.encode(message()))
    with pytest.raises(ValueError, match="read-only"):
        back["content"][0]["w"][0, 0] = 1.0


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 9, 50, -1, -4, -8])
def test_a_short_body_is_refused(cut: int) -> None:
    layout = Layout(EXAMPLE)
    body = layout.encode(message())
    with pytest.raises(MalformedMessage, match=rf"{layout.size_bytes} were expected"):
        layout.decode(body[:cut])


@pytest.mark.parametrize("extra", [b"\x00", b" " * 8, b"x" * 1000])
def test_a_long_body_is_refused(extra: bytes) -> None:
    layout = Layout(EXAMPLE)
    with pytest.raises(MalformedMessage, match="bytes"):
        layout.decode(layout.encode(message()) + extra)


def test_every_change_of_one_byte_of_the_header_is_refused() -> None:
    layout = Layout(EXAMPLE)
    body = layout.encode(message())
    for at in range(len(layout.header)):
        for change in (0x01, 0x20, 0x80, 0xFF):
            bad = bytearray(body)
            bad[at] ^= change
            with pytest.raises(MalformedMessage, match="header"):
                layout.decode(bytes(bad))


def test_another_tasks_header_of_the_same_length_is_refused() -> None:
    ours, theirs = Layout({"a": np.zeros(2, np.float32)}), Layout({"b": np.zeros(2, np.float32)})
    body = theirs.encode({"b": np.zeros(2, np.float32)})
    assert len(body) == ours.size_bytes
    with pytest.raises(MalformedMessage, match="header"):
        ours.decode(body)


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 5])
def test_numbers_that_are_not_finite_are_refused_by_name(value: float, at: int) -> None:
    layout = Layout(EXAMPLE)
    bad = message()
    bad["content"][0]["w"].reshape(-1)[at] = value
    body = layout.header + b"".join(np.asarray(leaf).tobytes() for leaf in trees.leaves(bad))
    with pytest.raises(MalformedMessage, match=r"^content/0/w holds a number that is not finite$"):
        layout.decode(body)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400))
def test_strangers_bytes_are_malformed_and_nothing_worse(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Layout(EXAMPLE).decode(body)


def wrong_messages() -> dict[str, Any]:
    wide, flat, other_int, renamed, missing, extra = (message() for _ in range(6))
    wide["content"][0]["w"] = np.zeros((2, 3))
    flat["content"][0]["w"] = np.zeros(6, np.float32)
    other_int["version"] = np.int32(3)
    renamed["versions"] = renamed.pop("version")
    del missing["version"]
    extra["z"] = np.int64(0)
    swapped = message()
    swapped["content"][0]["w"] = np.zeros((2, 3), np.dtype(">f4"))
    return {
        "float64": wide, "shape": flat, "int32": other_int, "name": renamed, "missing": missing, "extra": extra,
        "big-endian": swapped,
    }  # fmt: skip


@pytest.mark.parametrize("name", list(wrong_messages()))
def test_a_message_of_another_shape_is_a_programmers_mistake(name: str) -> None:
    with pytest.raises(ValueError):
        Layout(EXAMPLE).encode(wrong_messages()[name])


@pytest.mark.parametrize("dtype", ["float64", "float16", "uint8", "int16", "bool", "complex64", "U3"])
def test_the_wire_carries_few_dtypes(dtype: str) -> None:
    with pytest.raises(BadInput, match="the wire carries float32, int32, int64"):
        Layout({"x": np.zeros(2, dtype)})


def test_two_leaves_of_one_path_are_refused() -> None:
    """They would share one entry of the header, and one would be read in the place of the other."""
    with pytest.raises((BadInput, ValueError)):
        Layout({"a": {"b": np.zeros(1, np.float32)}, "a/b": np.zeros(1, np.float32)})


def test_the_name_that_safetensors_keeps_for_itself_is_refused() -> None:
    with pytest.raises((BadInput, ValueError)):
        Layout({"__metadata__": np.zeros(1, np.float32)})


def test_offsets_in_the_header_follow_each_other_without_holes() -> None:
    header = json.loads(Layout(EXAMPLE).header[8:])
    at = 0
    for entry in header.values():
        assert entry["data_offsets"][0] == at
        at = entry["data_offsets"][1]
    assert Layout(EXAMPLE).size_bytes == len(Layout(EXAMPLE).header) + at
