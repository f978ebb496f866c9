"""The commands of a device against a real server, as an owner types them."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]


def lines(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_join_run_status_ledger_withdraw(server: Any, crowdml: Run, rows: Path, tmp_path: Path) -> None:
    server.open()
    home = ("--home", str(tmp_path / "device"))
    joined = crowdml("device", "join", server.invite(), *home, "--yes")
    assert joined.returncode == 0, joined.stderr
    assert "promised ε = 20" in " ".join(joined.stdout.split()) and "in clear" in joined.stdout

    ran = crowdml("device", "run", "--rows", str(rows), *home, "--releases", "7", "--json")
    assert ran.returncode == 0, ran.stderr
    *check_ins, end = lines(ran.stdout)
    assert [check_in["status"] for check_in in check_ins] == ["applied"] * 7 and end["used"] == 7
    assert [check_in["number"] for check_in in check_ins] == [1, 2, 3, 4, 5, 6, 7]

    shown = crowdml("device", "run", "--rows", str(rows), *home, "--once")
    assert shown.returncode == 0 and "1 releases, 1 used" in shown.stdout and "ε =" in shown.stdout

    found = json.loads(crowdml("device", "status", *home, "--json").stdout)["tasks"][0]
    assert found["spending"]["releases"] == found["server_says"]["check_ins"] == 8
    assert found["spending"]["samples"] == {"used": 40, "used_up": 0, "most": 2}
    assert 0 < found["spending"]["spent"]["epsilon"] < found["spending"]["promised"]["epsilon"] == 20
    assert "8 check-ins of this device" in crowdml("device", "status", *home).stdout

    ledger = json.loads(crowdml("device", "ledger", *home, "--json", "--verify").stdout)
    assert ledger["compared"] == {server.task: {"receipts": 8, "charges": 8}} and len(ledger["releases"]) == 8
    table = crowdml("device", "ledger", *home).stdout
    assert ledger["head"] in table.replace("\n", "") and "chain verified" in table

    left = crowdml("device", "withdraw", *home, "--yes")
    assert left.returncode == 0 and f"withdrew from {server.task}" in left.stdout
    assert server.ask(f"/v1/tasks/{server.task}/devices")["devices"] == []
    assert crowdml("device", "run", "--rows", str(rows), *home).returncode == 2
    assert "(withdrawn)" in crowdml("device", "status", *home).stdout


def test_a_stream_on_standard_input_and_a_csv_file(server: Any, crowdml: Run, tmp_path: Path) -> None:
    server.open()
    home = ("--home", str(tmp_path / "device"))
    assert crowdml("device", "join", server.invite(), *home, "--yes", "--quiet").stdout == ""
    stream = "".join(json.dumps({"row": [0.1 * n, 1.0, 2.0], "label": "walking"}) + "\n" for n in range(25))
    ran = crowdml("device", "run", "--rows", "-", *home, "--json", stdin=stream)
    assert ran.returncode == 0, ran.stderr
    assert lines(ran.stdout)[-1]["releases"] == 2 and lines(ran.stdout)[-1]["reason"] == "the rows have ended"
    table = "x,y,z,kind\n" + "".join(f"{0.1 * n},1,2,{'walking' if n % 3 else 'standing'}\n" for n in range(12))
    (tmp_path / "rows.csv").write_text(table)
    options = ("--rows", str(tmp_path / "rows.csv"), *home)
    ran = crowdml("device", "run", *options, "--label-column", "kind", "--releases", "3", "--json")
    assert ran.returncode == 0 and lines(ran.stdout)[-1]["used"] == 3, ran.stderr


def test_an_owner_chooses_a_smaller_epsilon(server: Any, crowdml: Run, rows: Path, tmp_path: Path) -> None:
    """Ten times the noise, and the server takes it: it knows what owners may choose."""
    server.open(("max-uses = 40", "max-uses = 40\nowner-range = [2.0, 20.0]"))
    home = ("--home", str(tmp_path / "device"))
    refused = crowdml("device", "join", server.invite(), *home, "--yes", "--epsilon", "1")
    assert refused.returncode == 2 and "between 2 and 20" in refused.stderr and "--epsilon" in refused.stderr
    joined = crowdml("device", "join", server.invite(), *home, "--yes", "--epsilon", "2")
    assert joined.returncode == 0 and "promised ε = 2 " in " ".join(joined.stdout.split()), joined.stderr
    ran = crowdml("device", "run", "--rows", str(rows), *home, "--releases", "20", "--json")
    assert ran.returncode == 0 and lines(ran.stdout)[-1]["used"] == 20, ran.stderr
    found = json.loads(crowdml("device", "status", *home, "--json", "--offline").stdout)["tasks"][0]
    assert found["spending"]["promised"]["epsilon"] == 2 and found["server_says"] is None


def test_a_crowd_learns(server: Any, crowdml: Run, rows: Path, tmp_path: Path) -> None:
    """Without noise, two devices with the same easy rows: the error the server estimates falls to zero."""
    server.open(('mode = "sound"', 'mode = "none"'))
    for name in ("one", "two"):
        options = ("--home", str(tmp_path / name))
        invite = server.invite()
        refused = crowdml("device", "join", invite, *options, "--yes")
        assert refused.returncode == 2 and "--accept-no-guarantee" in refused.stderr
        joined = crowdml("device", "join", invite, *options, "--yes", "--accept-no-guarantee")
        assert joined.returncode == 0 and "No formal guarantee" in joined.stdout
        ran = crowdml("device", "run", "--rows", str(rows), *options, "--releases", "12")
        assert ran.returncode == 0 and "no formal guarantee" in ran.stdout
    task = server.ask(f"/v1/tasks/{server.task}")
    assert (task["version"], task["check_ins"]) == (24, 24) and task["estimated_error"] < 0.2


def test_rounds(server: Any, begin: Any, crowdml: Run, rows: Path, tmp_path: Path) -> None:
    """Two devices, both in every round: each waits for the other."""
    algorithm = 'kind = "fedavg"\nper-round = 2\nepochs = 2\nlocal-batch = 10\n'
    server.open(
        ('kind = "crowd-sgd"\nbatch = 10\nrate = { kind = "inverse-sqrt", c = 10.0 }\n', algorithm),
        ('mode = "sound"', 'mode = "none"'),
    )
    devices = []
    for name in ("one", "two"):
        home = ("--home", str(tmp_path / name))
        joined = crowdml("device", "join", server.invite(), *home, "--yes", "--quiet", "--accept-no-guarantee")
        assert joined.returncode == 0, joined.stderr
        devices.append(begin("device", "run", "--rows", str(rows), *home, "--releases", "5", "--json"))
    for device in devices:
        printed, errors = device.communicate(timeout=120)
        assert device.returncode == 0, errors
        assert lines(printed)[-1]["used"] == 5
    assert server.ask(f"/v1/tasks/{server.task}")["version"] == 5


def test_an_interrupted_device_loses_nothing(server: Any, begin: Any, crowdml: Run, tmp_path: Path, rows: Path) -> None:
    server.open()
    home = ("--home", str(tmp_path / "device"))
    assert crowdml("device", "join", server.invite(), *home, "--yes", "--quiet").returncode == 0
    device = begin("device", "run", "--rows", str(rows), *home, "--json")
    assert json.loads(device.stdout.readline())["number"] == 1
    device.send_signal(signal.SIGINT)
    _, errors = device.communicate(timeout=60)
    assert device.returncode == 130 and "interrupted: nothing is lost" in errors and "Traceback" not in errors
    charges = json.loads(crowdml("device", "ledger", *home, "--json", "--verify").stdout)
    ran = crowdml("device", "run", "--rows", str(rows), *home, "--once", "--json")
    *_, end = lines(ran.stdout)
    assert end["used"] == 1 + len(charges["unsettled"])
    after = json.loads(crowdml("device", "ledger", *home, "--json", "--verify").stdout)
    assert after["compared"][server.task] == {"receipts": len(after["releases"]), "charges": len(after["releases"])}


def test_a_server_that_restarts_is_waited_for(
    server: Any, begin: Any, crowdml: Run, tmp_path: Path, rows: Path
) -> None:
    server.open()
    home = ("--home", str(tmp_path / "device"))
    assert crowdml("device", "join", server.invite(), *home, "--yes", "--quiet").returncode == 0
    device = begin("device", "run", "--rows", str(rows), *home, "--releases", "30", "--json")
    assert json.loads(device.stdout.readline())["number"] == 1
    server.kill()
    server.start()
    printed, errors = device.communicate(timeout=120)
    assert device.returncode == 0, errors
    assert lines(printed)[-1]["releases"] == 30 and lines(printed)[-1]["refused"] == 0
    assert server.ask(f"/v1/tasks/{server.task}")["check_ins"] == 30


def test_a_revoked_device_and_a_stopped_task(server: Any, crowdml: Run, tmp_path: Path, rows: Path) -> None:
    server.open()
    homes = [("--home", str(tmp_path / name)) for name in ("one", "two")]
    for home in homes:
        assert crowdml("device", "join", server.invite(), *home, "--yes", "--quiet").returncode == 0
    name = json.loads(crowdml("device", "status", *homes[0], "--json").stdout)["tasks"][0]["device"]
    server.ask(f"/v1/tasks/{server.task}/devices/{name}", method="DELETE")
    refused = crowdml("device", "run", "--rows", str(rows), *homes[0])
    assert refused.returncode == 2 and "has revoked this device" in refused.stderr and "Traceback" not in refused.stderr
    assert crowdml("device", "join", server.invite(), *homes[0], "--yes", "--quiet").returncode == 0
    assert crowdml("device", "run", "--rows", str(rows), *homes[0], "--once").returncode == 0
    server.ask(f"/v1/tasks/{server.task}", {"state": "stopped"}, "PATCH")
    ended = crowdml("device", "run", "--rows", str(rows), *homes[1], "--json")
    assert ended.returncode == 0 and lines(ended.stdout)[-1]["releases"] == 0
    assert "stopped" in lines(ended.stdout)[-1]["reason"]


def test_a_ledger_that_was_set_back(server: Any, crowdml: Run, tmp_path: Path, rows: Path) -> None:
    server.open()
    place = tmp_path / "device"
    options = ("--rows", str(rows), "--home", str(place))
    assert crowdml("device", "join", server.invite(), "--home", str(place), "--yes", "--quiet").returncode == 0
    assert crowdml("device", "run", *options, "--releases", "2").returncode == 0
    with sqlite3.connect(place / "ledger.sqlite") as old, sqlite3.connect(tmp_path / "old") as copy:
        old.backup(copy)
    old.close()
    copy.close()
    head = (place / "ledger.sqlite-head").read_bytes()
    assert crowdml("device", "run", *options, "--releases", "2").returncode == 0
    for path in place.glob("ledger.sqlite*"):
        path.unlink()
    # Both files are those of before: only the server's mirror can tell.
    (tmp_path / "old").rename(place / "ledger.sqlite")
    (place / "ledger.sqlite-head").write_bytes(head)
    for command in (("run", *options), ("ledger", "--home", str(place), "--verify")):
        refused = crowdml("device", *command)
        assert refused.returncode == 2 and "set back" in refused.stderr


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "no device": (("run", "--rows", "x.npz", "--home", "nowhere"), "there is no device"),
    "no invite": (("join", "http://127.0.0.1:1/", "--yes"), "is not an invite"),
    "half an invite": (("join", "http://127.0.0.1:1/join/walk", "--yes"), "it lacks code, key, hash"),
    "not encrypted": (("join", "http://crowd.example/join/walk#code=a&key=b&hash=c"), "not encrypted"),
    "both": (("run", "--rows", "x.npz", "--once", "--releases", "3"), "exclude each other"),
    "name": (("status", "--name", "../x"), "not a name for a device"),
    "no rows": (("run",), "--rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_one_message(name: str, crowdml: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    arguments, message = BAD[name]
    ran = crowdml("device", *arguments)
    assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr and ran.stdout == ""


def test_nobody_is_there_to_be_asked(server: Any, crowdml: Run, tmp_path: Path) -> None:
    server.open()
    ran = crowdml("device", "join", server.invite(), "--home", str(tmp_path / "device"))
    assert ran.returncode == 2 and "--yes" in ran.stderr and not (tmp_path / "device").exists()


def test_wrong_rows_are_named(server: Any, crowdml: Run, tmp_path: Path) -> None:
    server.open()
    home = ("--home", str(tmp_path / "device"))
    assert crowdml("device", "join", server.invite(), *home, "--yes", "--quiet").returncode == 0
    (tmp_path / "rows.csv").write_text("a,b,c,label\n1,2,3,walking\n1,two,3,walking\n")
    np.savez(tmp_path / "few.npz", rows=np.ones((3, 3)), labels=np.zeros(3, int))
    for file, message in (
        ("rows.csv", "line 3, column b: 'two'"),
        ("few.npz", "3 rows, but a batch of this task has 10"),
    ):
        ran = crowdml("device", "run", "--rows", str(tmp_path / file), *home)
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr
    assert json.loads(crowdml("device", "ledger", *home, "--json").stdout)["releases"] == []
