"""Columns of words: every reader makes the same numbers of them, and names what is none of the words."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdml.core import BadInput, Labels
from crowdml.data.own_rows import OwnRows
from crowdml.data.rows.listed_words import MOST_WORDS, list_words, words_toml
from crowdml.data.rows.row_contract import Contract
from crowdml.data.rows.row_files import RowFile
from crowdml.device.rows.row_sources import KeptRows, json_lines, source_of
from crowdml.task import parse
from crowdml.task.live_task import definition_of
from crowdml.task.task_file import load

TASK = """
crowdml = 1
name = "jobs"
[data]
columns = ["age", "sex", "work"]
words = { sex = ["Female", "Male"], work = ["none", "state", "private"] }
labels = ["no", "yes"]
[model]
kind = "logistic"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
"""
CONTRACT = parse(TASK).data.contract
LEAVING = dataclasses.replace(CONTRACT, leaves_out=True)
FRAME = pd.DataFrame(
    {
        "work": ["state", "none", "private"],
        "age": [40, 3, 2],
        "label": ["yes", "no", "no"],
        "sex": ["Male", "Female", "Male"],
    }
)
NUMBERS = [[40, 1, 0, 1, 0], [3, 0, 1, 0, 0], [2, 1, 0, 0, 1]]


def written(frame: pd.DataFrame, kind: str, folder: Path) -> Path:
    path = folder / f"rows.{kind}"
    if kind == "csv":
        path.write_text(frame.to_csv(index=False).replace(",s", ", s"), encoding="utf-8")
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        names = [name for name in frame.columns if name not in ("label", "who")]
        texts: dict[str, Any] = {"rows": frame[names], "labels": frame.label} | (
            {"who": frame.who, "ids": frame.who} if "who" in frame else {}
        )
        arrays = {name: part.astype(str).to_numpy().astype("U") for name, part in texts.items()}
        np.savez(path, columns=np.array(names), **arrays)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_files_are_read_alike(kind: str, tmp_path: Path) -> None:
    path = written(FRAME, kind, tmp_path)
    for contract in (CONTRACT, LEAVING):
        table = RowFile(path=path, setting="file").table(contract, "label")
        assert table.rows.tolist() == NUMBERS and table.targets.tolist() == [1, 0, 0]
    source = source_of(path, CONTRACT)
    assert isinstance(source, KeptRows) and source.table().rows.tolist() == NUMBERS, "a device reads the same"


def test_rows_that_come_one_by_one_are_read_alike() -> None:
    frame = FRAME[["age", "sex", "work"]]
    pairs = [(list(row), label) for row, label in zip(frame.itertuples(index=False), FRAME.label, strict=True)]
    named = [(dict(zip(frame.columns, row, strict=True)), label) for row, label in pairs]
    for given in (pairs, named):
        assert CONTRACT.table(given, str).rows.tolist() == NUMBERS
    lines = io.StringIO('{"row": {"work": "state", "sex": "Male", "age": 40}, "label": "yes"}\n')
    assert CONTRACT.table(json_lines(lines, CONTRACT), str).rows.tolist() == NUMBERS[:1]
    assert CONTRACT.from_arrays("rows", frame.to_numpy(), FRAME.label).rows.tolist() == NUMBERS
    ready = CONTRACT.from_arrays("rows", np.array(NUMBERS, float), FRAME.label)
    assert ready.rows.tolist() == NUMBERS, "numbers may be ready already"


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_a_simulation_reads_them_alike(kind: str, tmp_path: Path) -> None:
    frame = pd.concat([FRAME] * 4, ignore_index=True)
    own = OwnRows(contract=CONTRACT, label_column="label", test=0.25)
    if kind == "frame":
        dataset = own.of_frame(frame)
    else:
        dataset = own.of_file(RowFile(path=written(frame, kind, tmp_path), setting="data.file"))
    both = np.concatenate([dataset.train_rows, dataset.test_rows]).tolist()
    assert sorted(both) == sorted(NUMBERS * 4) and len(dataset.test_rows) == 3


UNKNOWN: dict[str, tuple[str, Any, str]] = {
    "another word": (
        "work",
        "privat",
        "column work: 'privat' is none of the words of this column\n  did you mean \"private\"?",
    ),
    "missing": ("work", "?", "column work: a value is missing\n  fill it in, or leave the row out, as data.missing"),
    "a word among numbers": ("age", "old", "column age: 'old' is not a number\n  a row holds numbers: list the words"),
}


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_none_of_the_words_is_named(name: str, kind: str, tmp_path: Path) -> None:
    column, value, message = UNKNOWN[name]
    frame = FRAME.astype({"age": object})
    frame.loc[1, column] = value
    frame = frame.astype({"age": str}) if kind == "parquet" else frame
    with pytest.raises(BadInput) as error:
        if kind == "frame":
            OwnRows(contract=CONTRACT, label_column="label", test=0.5).of_frame(frame)
        else:
            RowFile(path=written(frame, kind, tmp_path), setting="file").table(CONTRACT, "label")
    place = {"csv": "line 3", "parquet": "row 2", "frame": "the frame, row 2"}[kind]
    assert message in str(error.value) and place in str(error.value)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "frame"])
def test_rows_that_lack_a_value_are_left_out_and_counted(kind: str, tmp_path: Path) -> None:
    frame = pd.concat([FRAME] * 4, ignore_index=True).astype({"age": float}).assign(who="a")
    frame.loc[0, "age"], frame.loc[1, "sex"], frame.loc[2, "label"], frame.loc[3, "who"] = None, " ?", None, ""
    contract = dataclasses.replace(LEAVING, owner="who")
    own = OwnRows(contract=contract, label_column="label", test=0.25)
    path = written(frame, kind, tmp_path) if kind != "frame" else tmp_path
    dataset = own.of_frame(frame) if kind == "frame" else own.of_file(RowFile(path=path, setting="data.file"))
    assert len(dataset.train_rows) + len(dataset.test_rows) == 8 and dataset.train_owners is not None
    assert "4 of 12 rows lack a value and are left out" in dataset.note
    if kind != "frame":
        told: list[str] = []
        source_of(path, dataclasses.replace(LEAVING, id="who"), warn=told.append).table()  # type: ignore[union-attr]
        assert len(told) == 1 and "4 of 12 rows lack a value" in told[0], "a device says so, too"


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "frame"])
@pytest.mark.parametrize("column", ["work", "label", "age"])
def test_a_mistake_behind_rows_that_are_left_out_has_its_own_number(column: str, kind: str, tmp_path: Path) -> None:
    frame = pd.concat([FRAME] * 4, ignore_index=True).astype({"age": str})
    frame.loc[[0, 4], "sex"], frame.loc[6, column] = None, "wrong"
    own = OwnRows(contract=LEAVING, label_column="label", test=0.25)
    place = "line 8" if kind == "csv" else "row 7"
    place += "" if kind == "npz" and column == "label" else f", column {column}"
    with pytest.raises(BadInput, match=rf"{place}: 'wrong' is n"):
        if kind == "frame":
            own.of_frame(frame)
        else:
            own.of_file(RowFile(path=written(frame, kind, tmp_path), setting="data.file"))


def test_numbers_alone_may_lack_a_value_too(tmp_path: Path) -> None:
    plain = Contract(features=2, target=Labels(names=("no", "yes")), leaves_out=True)
    told: list[str] = []
    (tmp_path / "rows.csv").write_text("x,y,label\n1,2,no\n,2,no\n3,4,yes\n")
    np.savez(
        tmp_path / "rows.npz", rows=np.array([[1.0, 2], [np.nan, 2], [3, 4]]), labels=np.array(["no", "no", "yes"])
    )
    for kind in ("csv", "npz"):
        table = RowFile(path=tmp_path / f"rows.{kind}", setting="file").table(plain, "label", told.append)
        assert table.rows.tolist() == [[1, 2], [3, 4]] and table.targets.tolist() == [0, 1]
    assert [line.partition(": ")[2] for line in told] == ["1 of 3 rows lack a value and are left out"] * 2


def test_a_mark_that_is_a_word_is_not_missing(tmp_path: Path) -> None:
    contract = parse(TASK.replace('"none", ', '"?", ')).data.contract
    for leaves_out in (False, True):
        some = dataclasses.replace(contract, leaves_out=leaves_out)
        (tmp_path / "rows.csv").write_text("age,sex,work,label\n5,Male, ?,no\n")
        assert RowFile(path=tmp_path / "rows.csv", setting="x").table(some, "label").rows.tolist() == [[5, 1, 1, 0, 0]]


MISTAKES = {
    'work = ["none", "state", "private"]': ('job = ["a", "b"]', 'words: no column is called "job"'),
    '"none", "state", "private"': ('"none"', "a column of words has two or more, all different"),
    '"none", "state"': ('"state", "state"', "a column of words has two or more, all different"),
    '"none",': ('" none",', "spaces around words do not count"),
    'columns = ["age"': (
        'features = 3\ncolumns = ["age"',
        "3 columns have names and make 5 numbers: leave features out",
    ),
    "{ sex": ('"words.toml" #{ sex', "is read from the folder of a task file, and there is none here"),
}


@pytest.mark.parametrize("old", MISTAKES)
def test_words_that_do_not_fit_are_refused(old: str) -> None:
    new, message = MISTAKES[old]
    with pytest.raises(BadInput) as error:
        parse(TASK.replace(old, new))
    assert message in str(error.value)


def test_words_are_signed_and_shown() -> None:
    task = parse(TASK, changes=["data.missing=leave-out"])
    assert task.data.features == 5 and task.data.row_in_words == "age, sex (one of 2 words), work (one of 3 words)"
    signed = definition_of(task)["data"]
    assert signed["words"]["sex"] == ["Female", "Male"] and signed["missing"] == "leave-out" and signed["features"] == 5
    plain = parse(TASK.replace("words =", "#"))
    assert not {"words", "missing"} & set(definition_of(plain)["data"]), "an older task stays the same text"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_words_come_from_a_file(kind: str, tmp_path: Path) -> None:
    frame = FRAME.assign(work=["state", "?", "private"])
    found = list_words(written(frame, kind, tmp_path), leave_out=("label",))
    assert found == {"work": ["private", "state"], "sex": ["Female", "Male"]}
    (tmp_path / "words.toml").write_text(words_toml(found), encoding="utf-8")
    (tmp_path / "jobs.toml").write_text(TASK.replace("words = {", 'words = "words.toml" #'), encoding="utf-8")
    task = load(tmp_path / "jobs.toml")
    assert task.data.words == found and task.data.features == 3
    (tmp_path / "words.toml").write_text("work = ")
    with pytest.raises(BadInput, match="is not valid TOML"):
        load(tmp_path / "jobs.toml")
    (tmp_path / "words.toml").unlink()
    with pytest.raises(BadInput, match=r"words\.toml"):
        load(tmp_path / "jobs.toml")


def test_what_is_no_category_is_refused(tmp_path: Path) -> None:
    count = MOST_WORDS + 1
    frame = pd.DataFrame(
        {
            "n": range(count),
            "name": [f"p{at}" for at in range(count)],
            "sex": ["f", "m", "f"] * (count // 3) + ["m"] * (count % 3),
        }
    )
    path = written(frame, "parquet", tmp_path)
    with pytest.raises(BadInput, match="column name has more than 1000 different words: it is no category"):
        list_words(path)
    assert list_words(path, leave_out=("name",)) == {"sex": ["f", "m"]}
    (tmp_path / "latin.csv").write_bytes("work,label\nstate,no\nprivé,no\n".encode("latin-1"))
    with pytest.raises(BadInput, match=r"latin\.csv, line 3: not text in UTF-8"):
        list_words(tmp_path / "latin.csv")
    with pytest.raises(BadInput, match="no column is called nam"):
        list_words(path, leave_out=("name", "nam"))
    with pytest.raises(BadInput, match="no column holds words"):
        list_words(path, leave_out=("name", "sex"))
