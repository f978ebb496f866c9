"""A device's folder: private, whole after a crash, and used by one process at a time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.device.device_home import Home, Member, default_home
from crowdml.privacy.ledger.ledger_chain import Cap


def member(**changes: Any) -> Member:
    content = {"account": "walk", "server": "http://x", "task": "walk", "operator": "op", "task_hash": "ab"}
    return Member.model_validate(content | {"incarnation": 1, "secret": "", "state": "joined"} | changes, by_name=True)


def test_only_the_owner_can_read_it(tmp_path: Path, make_server: Any, join: Any, rows: Any) -> None:
    from crowdml.device import Device

    server = make_server()
    place = join(server)
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=1)
        open_modes = {path.name: path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_file()}
    assert {"ledger.sqlite", "memory.sqlite", "member.json", "ledger.sqlite-wal"} <= set(open_modes)
    assert set(open_modes.values()) == {0o600}
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "d", make=True)
    home.store(member(device="old"))
    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch:

            def cut(*_: object) -> None:
                raise OSError("no power")

            patch.setattr(os, name, cut)
            with pytest.raises(OSError, match="no power"):
                home.store(member(device="new"))
        assert home.member().device == "old"
    assert [path.name for path in (home.path / "tasks" / "walk").iterdir()] == ["member.json"]
    home.store(member(device="new"))
    assert home.member().device == "new"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    home = Home(tmp_path / "d", make=True)
    with home.lock(), pytest.raises(BadInput, match="another process"), Home(tmp_path / "d").lock():
        pass
    with home.lock():
        pass


def test_which_task_is_meant(tmp_path: Path) -> None:
    home = Home(tmp_path / "d", make=True)
    with pytest.raises(BadInput, match="not joined any"):
        home.member()
    home.store(member())
    assert home.member().account == "walk"
    home.store(member(account="run", task="run"))
    with pytest.raises(BadInput, match="several tasks"):
        home.member()
    assert home.member("run").task == "run"
    with pytest.raises(BadInput, match="not joined swim"):
        home.member("swim")
    home.store(member(account="run", task="run", state="withdrawn"))
    assert home.member().account == "walk"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path / "d", make=True)
    home.store(member())
    (home.path / "tasks" / "walk" / "member.json").write_text('{"account": 3}')
    with pytest.raises(BadInput, match=r"member\.json is damaged"):
        home.member()


def test_a_member_of_protocol_1_is_refused_in_a_sentence(tmp_path: Path) -> None:
    home = Home(tmp_path / "d", make=True)
    home.store(member())
    path = tmp_path / "d" / "tasks" / "walk" / "member.json"
    content = json.loads(path.read_text())
    del content["task-hash"]
    path.write_text(json.dumps(content | {"sheet": "ab"}))
    with pytest.raises(BadInput, match="written by crowdml with protocol 1"):
        home.member()


def test_no_device_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no device"):
        Home(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be made"):
        Home(tmp_path / "file", make=True)


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_home("phone") == Path("/data/crowdml/devices/phone")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_home() == Path(os.path.expanduser("~/.local/share/crowdml/devices/default"))
    for name in ("", "../up", ".hidden", "a/b"):
        with pytest.raises(BadInput, match="not a name"):
            default_home(name)


def test_the_owners_cap_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path / "d", make=True)
    assert home.owner().cap == Cap()
    home.limit(3.0, None)
    home.limit(None, 1e-4)
    assert Home(home.path).owner().cap == Cap(epsilon=3.0, delta=1e-4)
    with pytest.raises(BadInput, match="not possible"):
        home.limit(-1.0, None)
