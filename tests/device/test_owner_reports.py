"""Reports: what an owner can look up, also while the device runs, and what they say when something is wrong."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from crowdml.core.errors import TermsViolated
from crowdml.device import Device
from crowdml.device.device_home import Home
from crowdml.device.owner_reports import ledger_report, report


def test_a_report_can_be_had_while_the_device_runs(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=3)
        found = report(Home(place), ask=True, connect=server.connect)
        task = found["tasks"][0]
        assert task["server_says"] == {"state": "open", "check_ins": 3, "same_task": True}
        assert task["spending"]["samples"] == {"used": 8, "used_up": 0, "most": 2}
        assert task["spending"]["promised"] == {"epsilon": 6.0, "delta": 0.0}
        assert task["spending"]["uses_left"] == 1
        # Pure ε = 2 in each of two uses so far, of three: randomised response, whose second use decides nothing.
        p = 1 / (1 + math.exp(-2.0))
        assert task["spending"]["odds"]["spent"] == math.ceil(100 * p)
        assert task["spending"]["odds"]["promised"] == math.ceil(100 * (p**3 + 3 * p**2 * (1 - p)))
        assert ledger_report(Home(place), compare=False)["tasks"]["walk"]["odds"] == task["spending"]["odds"]
        device.run(rows)
    again = report(Home(place), ask=False)["tasks"][0]
    assert again["spending"]["samples"]["used_up"] == 8 and again["server_says"] is None
    json.dumps(again, allow_nan=False)


def test_no_guarantee_has_no_figures(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server("privacy={ mode = 'none' }")
    place = join(server)
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=2)
    spending = report(Home(place), ask=False)["tasks"][0]["spending"]
    assert spending["guarantee"] == "no formal guarantee" and spending["releases"] == 2
    assert spending["promised"] is spending["spent"] is spending["uses_left"] is spending["odds"] is None
    json.dumps(ledger_report(Home(place), compare=False), allow_nan=False)


def test_a_server_that_does_not_answer_is_said_so(make_server: Any, join: Any) -> None:
    server = make_server()
    home = Home(join(server))

    def cut(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    server.handle = cut
    assert "refused" in report(home, ask=True, connect=server.connect)["tasks"][0]["server_says"]["error"]
    assert "refused" in ledger_report(home, compare=True, connect=server.connect)["compared"]["walk"]["error"]


def test_receipts_are_looked_up_in_the_ledger(make_server: Any, join: Any, rows: Any, tmp_path: Path) -> None:
    server = make_server()
    place = join(server)
    shutil.copytree(place, tmp_path / "old")
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=2)
    found = ledger_report(Home(place), compare=True, connect=server.connect)
    assert found["compared"] == {"walk": {"receipts": 2, "charges": 2}} and found["entries"] == 3
    assert [release["most"] for release in found["releases"]] == [1, 1] and len(found["head"]) == 64
    with pytest.raises(TermsViolated, match="set back"):
        ledger_report(Home(tmp_path / "old"), compare=True, connect=server.connect)
