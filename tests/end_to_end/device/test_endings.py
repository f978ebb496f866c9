"""Why a device waits or ends, and why an operator is refused: each its own sentence, with an exit code that fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
ROUNDS = (
    'kind = "crowd-sgd"\nbatch = 10\nrate = { kind = "inverse-sqrt", c = 10.0 }\n',
    'kind = "fedavg"\nper-round = 1\nepochs = 1\nlocal-batch = 10\n',
)
NONE = ('mode = "sound"', 'mode = "none"')


@pytest.fixture
def join(server: Any, crowdml: Run, tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Join the present task; return the option that names the device."""

    def run(name: str = "device", *options: str) -> tuple[str, str]:
        home = ("--home", str(tmp_path / name))
        joined = crowdml("device", "join", server.invite(), *home, "--yes", "--accept-no-guarantee", *options)
        assert joined.returncode == 0, joined.stderr
        return home

    return run


def operator(server: Any) -> tuple[str, str]:
    return ("--home", str(server.folder))


def test_a_revoked_device_reads_that_it_was_revoked(server: Any, crowdml: Run, join: Any, rows: Path) -> None:
    server.open()
    home = join()
    name = json.loads(crowdml("device", "status", *home, "--json").stdout)["tasks"][0]["device"]
    assert crowdml("task", "revoke", server.task, name, *operator(server)).returncode == 0
    ran = crowdml("device", "run", "--rows", str(rows), *home)
    assert ran.returncode == 2 and "the operator has revoked this device" in ran.stderr
    assert "ledger" in ran.stderr and "crowdml device join LINK" in ran.stderr
    status = crowdml("device", "status", *home)
    assert status.returncode == 0 and "the operator has revoked this device" in status.stdout


def test_the_normal_end_of_a_task_is_success(server: Any, crowdml: Run, join: Any, rows: Path) -> None:
    server.open()
    home = join()
    stopped = crowdml("task", "stop", server.task, *operator(server))
    assert stopped.returncode == 0 and "nobody can join" in stopped.stderr and "crowdml task export" in stopped.stderr
    ran = crowdml("device", "run", "--rows", str(rows), *home)
    assert ran.returncode == 0 and "the task has ended: the operator stopped it" in ran.stdout
    assert "the server refused" not in ran.stdout
    status = crowdml("device", "status", *home).stdout
    assert "ended (nothing more is sent)" in status


def test_the_last_release_is_success(server: Any, crowdml: Run, join: Any, rows: Path) -> None:
    server.open(("max-releases = 400", "max-releases = 2"))
    home = join()
    ran = crowdml("device", "run", "--rows", str(rows), *home)
    assert ran.returncode == 0 and "all 2 releases of this device are made" in ran.stdout


def test_a_stopped_task_cannot_be_joined_and_nothing_is_written(server: Any, crowdml: Run, tmp_path: Path) -> None:
    server.open()
    link = server.invite()
    server.ask(f"/v1/tasks/{server.task}", {"state": "stopped"}, "PATCH")
    joined = crowdml("device", "join", link, "--home", str(tmp_path / "device"))
    assert joined.returncode == 2 and "has ended (the operator stopped it)" in joined.stderr
    assert "nobody can join" in joined.stderr and "promised" not in joined.stdout, "before anybody is asked"
    assert not (tmp_path / "device").exists()
    invited = crowdml("invite", server.task, *operator(server))
    assert invited.returncode == 2 and "nobody can join" in invited.stderr and invited.stdout == ""


def test_an_invite_to_a_paused_task_comes_with_a_note(server: Any, crowdml: Run, tmp_path: Path) -> None:
    server.open()
    paused = crowdml("task", "pause", server.task, *operator(server))
    assert paused.returncode == 0 and "paused: devices wait" in paused.stderr
    invited = crowdml("invite", server.task, *operator(server))
    assert invited.returncode == 0 and "crowdml task resume" in invited.stderr
    joined = crowdml("device", "join", invited.stdout.strip(), "--home", str(tmp_path / "device"), "--yes")
    assert joined.returncode == 0 and "The task is paused by its operator" in joined.stdout
    status = crowdml("device", "status", "--home", str(tmp_path / "device")).stdout
    assert "paused by its operator (this device waits)" in status


def test_a_device_waits_while_the_task_is_paused_and_says_so(server: Any, begin: Any, join: Any, rows: Path) -> None:
    server.open()
    home = join()
    server.ask(f"/v1/tasks/{server.task}", {"state": "paused"}, "PATCH")
    device = begin("device", "run", "--rows", str(rows), *home, "--once", "--json")
    why = json.loads(device.stdout.readline())["why"]
    assert "the operator has paused the task" in why and "round" not in why
    server.ask(f"/v1/tasks/{server.task}", {"state": "stopped"}, "PATCH")
    printed, errors = device.communicate(timeout=60)
    assert device.returncode == 0 and "the task has ended" in json.loads(printed.splitlines()[-1])["reason"], errors


def test_a_device_that_is_not_in_the_round_says_so(server: Any, begin: Any, join: Any, rows: Path) -> None:
    server.open(ROUNDS, NONE)
    devices = [begin("device", "run", "--rows", str(rows), *join(name), "--json") for name in ("one", "two")]
    told = ""
    for device in devices:
        for line in device.stdout:
            said = json.loads(line)
            if said["event"] == "waiting":
                told = said["why"]
                break
        if "not in the present round" in told:
            break
    assert "this device is not in the present round" in told and "paused" not in told
    server.ask(f"/v1/tasks/{server.task}", {"state": "stopped"}, "PATCH")
    for device in devices:
        device.communicate(timeout=60)
        assert device.returncode == 0


def test_the_status_of_a_masked_task_says_what_its_promise_rests_on(server: Any, crowdml: Run, join: Any) -> None:
    masked = (
        'kind = "crowd-sgd"\nbatch = 10\nrate = { kind = "inverse-sqrt", c = 10.0 }\n',
        'kind = "fedsgd"\nper-round = 10\nmax-rows = 10\nrate = { kind = "constant", c = 1.0 }\n',
    )
    server.open(masked, ("statistics-epsilon = 1.0\n", ""), ("[stop]", "[secure-aggregation]\nenabled = true\n[stop]"))
    home = join()
    status = crowdml("device", "status", *home, "--offline").stdout
    assert "rests on     secure aggregation, and 6 honest devices in every sum" in status, status
    shown = " ".join(crowdml("task", "show", server.task, *operator(server)).stdout.split())
    assert "It rests on secure aggregation and on other devices" in shown and "has to be trusted" not in shown


def test_the_status_of_local_noise_rests_on_the_device(server: Any, crowdml: Run, join: Any) -> None:
    server.open()
    status = crowdml("device", "status", *join(), "--offline").stdout
    assert "rests on     this device's own noise and ledger" in status


def test_the_operator_reads_the_recent_error_with_its_band(server: Any, crowdml: Run, join: Any, rows: Path) -> None:
    server.open()
    home = join()
    assert crowdml("device", "run", "--rows", str(rows), *home, "--releases", "30").returncode == 0
    shown = " ".join(crowdml("task", "show", server.task, *operator(server)).stdout.split())
    assert "last 20 check-ins, 200 rows, version 10 to 30" in shown and "95 % band" in shown
    assert "over all check-ins since the beginning" in shown


def test_a_missing_operator_token_is_said_where_one_is_needed(
    server: Any, crowdml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CROWDML_OPERATOR_TOKEN", raising=False)
    server.open()
    elsewhere = ("--home", str(tmp_path), "--server", server.address)
    assert crowdml("task", "show", server.task, *elsewhere).returncode == 0, "everybody may read that"
    refused = crowdml("task", "stop", server.task, *elsewhere)
    assert refused.returncode == 2 and "there is no operator's token here" in refused.stderr
    assert "CROWDML_OPERATOR_TOKEN" in refused.stderr and str(tmp_path / "operator.token") in refused.stderr
    monkeypatch.setenv("CROWDML_OPERATOR_TOKEN", "another")
    wrong = crowdml("task", "stop", server.task, *elsewhere)
    assert wrong.returncode == 2 and "not the one of this server" in wrong.stderr
    bare = crowdml("task", "list", "--server", "crowd.example")
    assert bare.returncode == 2 and "is not the address of a server" in bare.stderr
