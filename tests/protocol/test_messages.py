"""Messages: a version beside the content, in layouts fixed for a task."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core.errors import MalformedMessage
from crowdml.protocol import PROTOCOL_VERSION, layouts, message

BROADCAST = ({"w": np.zeros((2, 2), np.float32)},)
CHECK_IN = {"gradient": BROADCAST, "samples": np.int32(0)}


def test_the_protocol_has_a_version() -> None:
    assert PROTOCOL_VERSION == 1


def test_both_directions() -> None:
    made = layouts(BROADCAST, CHECK_IN)
    out = made.check_out.decode(made.check_out.encode(message(5, ({"w": np.eye(2, dtype=np.float32)},))))
    assert out["version"].item() == 5 and out["version"].dtype == np.int64
    np.testing.assert_array_equal(out["content"][0]["w"], np.eye(2))
    back = made.check_in.decode(made.check_in.encode(message(2**40, CHECK_IN)))
    assert back["version"].item() == 2**40
    assert back["content"]["samples"].dtype == np.int32


def test_one_direction_is_not_taken_for_the_other() -> None:
    made = layouts(BROADCAST, {"gradient": BROADCAST})
    with pytest.raises(MalformedMessage):
        made.check_in.decode(made.check_out.encode(message(0, BROADCAST)))
