"""Files are found where they are said to be, checked, and missed with a helpful message."""

from __future__ import annotations

import gc
import gzip
import weakref
from pathlib import Path

import pytest

from crowdml.core import BadInput
from crowdml.data import DATASETS, folders, load, locate, verify
from crowdml.data.folders import _load


def put(folder: Path, name: str = "adult") -> Path:
    """Lay files with the right names and wrong content."""
    folder = folder / DATASETS[name].folder
    folder.mkdir(parents=True)
    for file in DATASETS[name].forms[0].files:
        (folder / file.versions[0].path).write_bytes(b"nothing")
    return folder


def test_the_given_folder_comes_before_the_cache(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locate("adult") is None
    cached = put(empty_machine)
    assert locate("adult") == cached
    monkeypatch.setenv("CROWDML_DATA", str(empty_machine.parent / "given"))
    assert locate("adult") == cached, "a folder without the dataset is passed over"
    given = put(empty_machine.parent / "given")
    assert locate("adult") == given
    (given / "adult.test").unlink()
    assert locate("adult") == cached, "an incomplete folder too"


def test_a_missing_dataset_says_what_where_and_how(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDML_DATA", "/nowhere")
    with pytest.raises(BadInput) as caught:
        load("adult")
    message = str(caught.value)
    assert "adult.data or adult.data.gz is missing, and 1 more" in message
    assert "/nowhere/adult" in message and str(empty_machine / "adult") in message
    assert "crowdml data get adult" in message


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(BadInput, match='did you mean "mnist"'):
        load("mnits")


def test_verify_tells_ok_missing_and_corrupt(empty_machine: Path) -> None:
    assert [file.status for file in verify("adult")] == ["missing", "missing"]
    folder = put(empty_machine)
    assert [file.status for file in verify("adult")] == ["corrupt", "corrupt"]
    assert verify("adult")[0].path == folder / "adult.data"
    assert verify("digits") == []


def test_verify_knows_both_versions_of_a_file(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    source = locate("adult")
    if source is None or not (source / "adult.data.gz").is_file():
        pytest.skip("the dataset adult is not on this machine; set CROWDML_DATA to a folder that has it")
    assert [file.status for file in verify("adult")] == ["ok", "ok"]
    monkeypatch.setenv("CROWDML_DATA", str(empty_machine))
    folder = put(empty_machine)
    (folder / "adult.data").write_bytes(gzip.decompress((source / "adult.data.gz").read_bytes()))
    (folder / "adult.test").unlink()
    (folder / "adult.test.gz").write_bytes((source / "adult.test.gz").read_bytes()[:-1])
    assert [file.status for file in verify("adult")] == ["ok", "corrupt"]


def test_files_without_checksum_are_called_unchecked(empty_machine: Path) -> None:
    raw = empty_machine / "activity" / "RawData"
    raw.mkdir(parents=True)
    (raw / "labels.txt").write_text("")
    assert [file.status for file in verify("activity-hapt")] == ["unchecked"]
    assert [file.status for file in verify("activity")] == ["missing"]


def test_a_second_load_is_free() -> None:
    _load.cache_clear()
    assert load("digits") is load("digits")


def test_a_large_dataset_is_read_anew_once_nobody_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LARGE", 1)
    _load.cache_clear()
    rows = weakref.ref(first := load("digits"))
    assert load("digits") is first and _load.cache_info().currsize == 0
    del first
    gc.collect()
    assert rows() is None
