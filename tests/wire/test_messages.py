"""Messages: a version beside the content, in layouts fixed for a task."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import Broadcast, CheckIn
from crowdml.core.errors import MalformedMessage
from crowdml.wire import PROTOCOL_VERSION, layouts, message
from crowdml.wire.messages import check_in_key

PARAMETERS = ({"w": np.zeros((2, 2), np.float32)},)
BROADCAST = Broadcast(parameters=PARAMETERS)
CHECK_IN = CheckIn(update=PARAMETERS, weight=np.int32(0))


def test_the_protocol_has_a_version() -> None:
    assert PROTOCOL_VERSION == 2


def test_both_directions() -> None:
    made = layouts(BROADCAST, CHECK_IN)
    told = Broadcast(parameters=({"w": np.eye(2, dtype=np.float32)},))
    out = made.check_out.decode(made.check_out.encode(message(5, told)))
    assert out["version"].item() == 5 and out["version"].dtype == np.int64
    np.testing.assert_array_equal(out["content"].parameters[0]["w"], np.eye(2))
    back = made.check_in.decode(made.check_in.encode(message(2**40, CHECK_IN)))
    assert back["version"].item() == 2**40
    assert back["content"].weight.dtype == np.int32


def test_one_direction_is_not_taken_for_the_other() -> None:
    made = layouts(BROADCAST, CHECK_IN)
    with pytest.raises(MalformedMessage):
        made.check_in.decode(made.check_out.encode(message(0, BROADCAST)))


def test_keys_of_check_ins_begin_with_the_version_and_never_come_twice() -> None:
    keys = [check_in_key(255) for _ in range(100)]
    assert len(set(keys)) == 100 and all(key.startswith("00000000ff-") and len(key) <= 64 for key in keys)
    assert check_in_key(2**40 - 1).startswith("ffffffffff-")
