"""Terms without meaning: a device refuses them when it joins, and at the latest before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.live import definition_of
from crowdml.core import BadInput
from crowdml.device import Device, Ledger
from crowdml.protocol import Sheet, sign_sheet

GAUSSIAN = "privacy={ epsilon = 6.0, mechanism = 'gaussian', max-uses = 3, delta = 1e-2, clip = 1.0, units = 99 }"


def table(count: int) -> Any:
    draws = np.random.default_rng(count)
    rows = draws.normal(size=(count, 3)).astype(np.float32)
    return rows, (rows[:, 0] > 0).astype(np.int32)


def test_the_number_of_units_is_signed_with_the_terms(make_server: Any) -> None:
    sheet = make_server(GAUSSIAN).signed.open()
    assert sheet.definition["privacy"]["units"] == 99


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        ({"epsilon": 1000.5, "owner-range": None}, "ε = 1000.5 promises nothing"),
        ({"owner-range": [1.0, 1e6]}, "ε = 1e.06 promises nothing"),
        ({"delta": 0.5}, "delta = 0.5 is above 0.0001"),
        ({"delta": 1e-3, "units": 1000}, "delta = 0.001 is no promise to 1000 samples"),
    ],
    ids=["ε", "owner's ε", "δ", "δ of so many"],
)
def test_a_signed_sheet_whose_terms_say_nothing_is_refused_at_the_join(
    make_server: Any, join: Any, terms: dict[str, Any], what: str, tmp_path: Path
) -> None:
    """An operator whose server does not check signs what it likes; the device works it out for itself."""
    server = make_server()
    made = definition_of(server.task)
    made["privacy"] |= terms
    sheet = Sheet(task=server.task.name, incarnation=1, definition=made, arrays=({},))
    server.signed = sign_sheet(sheet, server.key)
    with pytest.raises(BadInput, match=what):
        join(server)
    assert not server.devices and not (tmp_path / "home").exists()


def test_joining_with_rows_refuses_a_delta_that_says_nothing_to_them(
    make_server: Any, join: Any, tmp_path: Path
) -> None:
    server = make_server(GAUSSIAN)
    with pytest.raises(BadInput, match=r"no promise to 100 samples.*this device alone") as refused:
        join(server, rows=table(100))
    assert "ask the operator" in refused.value.hint and not server.devices and not (tmp_path / "home").exists()
    join(server, rows=table(99))
    assert len(server.devices) == 1


def test_a_device_with_too_many_rows_for_its_delta_sends_nothing(make_server: Any, join: Any) -> None:
    server = make_server(GAUSSIAN)
    place = join(server)
    with Device(place, connect=server.connect) as device:
        with pytest.raises(BadInput, match="no promise to 100 samples"):
            device.run(table(100))
        assert not server.sent and device.releases == 0


def test_a_stream_is_stopped_before_it_has_too_many_rows_for_its_delta(make_server: Any, join: Any) -> None:
    """Batches of four: 24 of them are 96 samples, and the next would be the hundredth."""
    server = make_server(GAUSSIAN)
    place = join(server)
    rows, labels = table(400)
    with Device(place, connect=server.connect) as device, pytest.raises(BadInput, match="no promise to 100 samples"):
        device.run(iter(list(zip(rows, labels.tolist(), strict=True))))
    assert len(server.sent) == 24
    with Ledger(place / "ledger.sqlite") as ledger:
        assert ledger.chain.tasks["walk"].releases == 24


def test_the_rows_of_one_device_say_nothing_against_a_promise_to_devices(make_server: Any, join: Any) -> None:
    server = make_server(GAUSSIAN.replace("max-uses = 3", "unit = 'device'"))
    place = join(server, rows=table(400))
    with Device(place, connect=server.connect) as device:
        assert device.run(table(400), releases=1).releases == 1
