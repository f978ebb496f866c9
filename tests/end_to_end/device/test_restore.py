"""Backup, more check-ins, restore: real servers, real files, devices that nobody attends to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crowdml.device import Ledger

Run = Callable[..., Any]
CHARGED = 3


def run(crowdml: Run, rows: Path, home: Path, *more: str) -> Any:
    return crowdml("device", "run", "--rows", str(rows), "--home", str(home), "--json", *more)


def require_charged(crowdml: Run, home: Path) -> int:
    """Every receipt of the server has its charge; return how many charges there are."""
    verified = crowdml("device", "ledger", "--home", str(home), "--verify", "--json")
    assert verified.returncode == 0, verified.stderr
    ((_, compared),) = json.loads(verified.stdout)["compared"].items()
    assert compared["receipts"] <= compared["charges"]
    return int(compared["charges"])


def test_devices_go_on_after_a_restore_where_their_owners_accepted_that(
    make_server: Any, crowdml: Run, rows: Path, tmp_path: Path
) -> None:
    server = make_server()
    server.open()
    willing, later, asked = (tmp_path / name for name in ("willing", "later", "asked"))
    for home, more in ((willing, ["--accept-restores"]), (later, []), (asked, [])):
        joined = crowdml("device", "join", server.invite(), "--home", str(home), "--yes", "--quiet", *more)
        assert joined.returncode == 0, joined.stderr
        assert run(crowdml, rows, home, "--releases", "2").returncode == 0
    shown = crowdml("device", "restores", "--home", str(later))
    assert "you are asked" in shown.stdout
    assert "accepted in advance" in crowdml("device", "restores", "--accept", "--home", str(later)).stdout

    copy = tmp_path / "backup.sqlite"
    assert crowdml("backup", str(copy), "--home", str(server.folder)).returncode == 0
    for home in (willing, later, asked):
        assert run(crowdml, rows, home, "--releases", str(CHARGED)).returncode == 0
    server.kill()
    restored = crowdml("restore", str(copy), "--home", str(server.folder), "--force")
    assert restored.returncode == 0, restored.stderr
    assert "incarnation 2" in restored.stderr and "accepted restores in advance" in restored.stderr
    server.start()
    notice = json.loads(server.ask(f"/v1/tasks/{server.task}")["signed_task"]["text"])
    assert (notice["incarnation"], notice["restored"]) == (2, {"after": 1, "version": 6})

    for home in (willing, later):
        ran = run(crowdml, rows, home, "--releases", "2")
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout.splitlines()[-1])["used"] == 2
        assert require_charged(crowdml, home) == 2 + CHARGED + 2, "what the restore lost stays charged"
        with Ledger(home / "ledger.sqlite") as ledger:
            assert [json.loads(raw)["kind"] for raw in ledger.entries()].count("renew") == 1
    refused = run(crowdml, rows, asked, "--releases", "2")
    assert refused.returncode == 2 and "the owner must confirm" in refused.stderr
    assert require_charged(crowdml, asked) == 2 + CHARGED, "nothing was charged"
    assert run(crowdml, rows, asked, "--releases", "1", "--accept-restored").returncode == 0

    # An old database put back by hand is no restore: nobody signed a notice of it.
    server.kill()
    for file in server.folder.glob("crowdml.sqlite*"):
        file.unlink()
    shutil.copy(copy, server.folder / "crowdml.sqlite")
    server.start()
    for home in (willing, asked):
        refused = run(crowdml, rows, home, "--releases", "1")
        assert refused.returncode == 2 and "not the one that the owner accepted" in refused.stderr
