"""Folders that hold secrets are closed to others, or refused with a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crowdml.cli.operator import server_home
from crowdml.core import BadInput
from crowdml.core.files import require_private
from crowdml.device.device_home import Home


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


@pytest.mark.parametrize("before", [0o755, 0o750, 0o711, 0o704])
def test_a_home_that_others_can_enter_is_closed(
    tmp_path: Path, before: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(before)
    assert server_home(folder, make=True) == folder
    assert mode(folder) == 0o700 and "closed to them now" in capsys.readouterr().err
    server_home(folder, make=True)
    assert capsys.readouterr().err == "", "nothing to say the second time"


def test_a_device_closes_its_home_whenever_it_opens_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "device", make=True)
    home.path.chmod(0o755)
    Home(home.path)
    assert mode(home.path) == 0o700


def test_a_folder_in_which_everybody_writes_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    for make in (lambda: server_home(tmp_path, make=True), lambda: Home(tmp_path, make=True)):
        with pytest.raises(BadInput, match="everybody may write in") as caught:
            make()
        assert caught.value.where == "--home" and "folder of its own" in caught.value.hint
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777 and list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o750)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(BadInput, match="belongs to another user"):
        require_private(tmp_path, "--home")
    assert mode(tmp_path) == 0o750


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be made"):
        server_home(tmp_path / "file" / "home", make=True)
