"""Checks of values and places, and writing a file entirely or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.core.files import read_text, writable, write_whole


def test_writable_refuses_a_folder_and_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder"):
        writable(tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        writable(tmp_path / "no" / "file.json")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="does not exist"):
        writable(tmp_path / "file" / "below.json")
    writable(tmp_path / "new.json")
    writable(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"
    assert not (tmp_path / "new.json").exists()


def test_writable_refuses_where_one_may_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BadInput, match="cannot be written"):
        writable(tmp_path / "file.json")


def test_write_whole_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_whole(path, b"one")
    assert path.read_bytes() == b"one"
    write_whole(path, b"")
    assert path.read_bytes() == b""
    assert os.listdir(tmp_path) == ["result.json"]


def test_write_whole_gives_the_rights_any_new_file_has(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "result", b"x")
        left = os.umask(0o027)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "result").stat().st_mode) == 0o640
    assert left == 0o027


@pytest.mark.parametrize("failing", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("fault", [OSError("disc full"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_write_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, fault: BaseException
) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"precious")

    def fail(*_: Any) -> None:
        raise fault

    monkeypatch.setattr(os, failing, fail)
    for path in (old, tmp_path / "new"):
        with pytest.raises(type(fault)):
            write_whole(path, b"half of it")
    assert old.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["old"]


def test_a_stream_that_breaks_midway_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_bytes(b"precious")
    real = os.fdopen

    class Breaking:
        """Writes half of what it is given, then fails."""

        def __init__(self, handle: int, mode: str) -> None:
            self.stream = real(handle, mode)

        def __enter__(self) -> Breaking:
            return self

        def __exit__(self, *_: object) -> None:
            self.stream.close()

        def write(self, content: bytes) -> None:
            self.stream.write(content[: len(content) // 2])
            self.stream.flush()
            raise OSError("disc full")

    monkeypatch.setattr(os, "fdopen", Breaking)
    with pytest.raises(OSError, match="disc full"):
        write_whole(tmp_path / "old", b"new content")
    monkeypatch.undo()
    assert (tmp_path / "old").read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["old"]


def test_the_content_is_on_the_disc_before_the_name_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def seen_fsync(handle: int) -> None:
        order.append(f"fsync {os.fstat(handle).st_size}")
        fsync(handle)

    def seen_replace(source: str, target: Path) -> None:
        order.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    write_whole(tmp_path / "file", b"12345")
    assert order == ["fsync 5", "replace"]


def test_write_whole_does_not_put_a_file_in_the_place_of_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadInput):
        write_whole(pipe, b"x")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "task.toml").symlink_to("../gone.toml")
    with pytest.raises(BadInput, match=r"task.toml is a link to ../gone.toml, which is not there"):
        read_text(tmp_path / "task.toml", "a file")


def test_writable_tries_where_rights_do_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    with pytest.raises(BadInput, match="cannot be written: Read-only file system"):
        writable(tmp_path / "a")
