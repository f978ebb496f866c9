"""Columns by name and ids: every way to hand rows over, and a diff of names where they do not fit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput, Labels
from crowdml.data.rows.row_contract import Contract
from crowdml.data.rows.row_tables import Table
from crowdml.device.rows import row_sources
from crowdml.device.rows.row_sources import KeptRows, PassingRows, RowBuffer, source_of
from crowdml.task import parse
from crowdml.task.live_task import definition_of, open_task
from crowdml.wire import TaskDocument
from tests.device.conftest import TASK

NAMED = Contract(
    features=2,
    target=Labels(names=("standing", "walking")),
    columns=("age", "steps"),
    described=("age (years)", "steps (per day)"),
)
WITH_ID = Contract(features=2, target=Labels(names=("standing", "walking")), columns=("age", "steps"), id="patient")
ROWS = np.array([[31, 4000], [42, 0.5]], np.float32)


def read(rows: Any, contract: Contract, warned: list[str] | None = None) -> Table:
    found = source_of(rows, contract, warn=(warned if warned is not None else []).append)
    assert isinstance(found, KeptRows)
    return found.table()


def write(folder: Path, text: str) -> Path:
    (folder / "rows.csv").write_text(text, encoding="utf-8")
    return folder / "rows.csv"


@pytest.mark.parametrize(
    "text",
    [
        "age,steps,label\n31,4000,walking\n42,0.5,standing\n",
        "steps,label,age\n4000,walking,31\n0.5,standing,42\n",
        "label, steps , age\nwalking,4000,31\nstanding,0.5,42\n",
    ],
)
def test_columns_of_a_file_are_found_by_name_in_any_order(text: str, tmp_path: Path) -> None:
    warned: list[str] = []
    table = read(write(tmp_path, text), NAMED, warned)
    np.testing.assert_array_equal(table.rows, ROWS)
    assert table.targets.tolist() == [1, 0] and not warned


@pytest.mark.parametrize(
    "header, lines",
    [
        ("age,step,label", ["missing: steps", 'unknown: step (did you mean "steps"?)']),
        ("AGE,steps,label", ["missing: age", 'unknown: AGE (did you mean "age"?)']),
        ("age,label", ["missing: steps"]),
        ("age,steps,weight,label", ["unknown: weight"]),
        ("x,y,label", ["missing: age, steps", "unknown: x, y"]),
        ("age,age,steps,label", ["more than once: age"]),
    ],
)
def test_a_header_that_does_not_fit_is_refused_with_a_diff_of_names(
    header: str, lines: list[str], tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as error:
        read(write(tmp_path, header + "\n"), NAMED)
    first, *diff, last = str(error.value).split("\n  ")
    assert first.endswith("rows.csv, line 1: the columns are not those of the task") and diff == lines
    assert last == "the columns of the task, in any order: age (years), steps (per day)"


def test_a_long_diff_is_cut_short() -> None:
    many = Contract(features=40, target=Labels(names=("a", "b")), columns=tuple(f"c{n}" for n in range(40)))
    with pytest.raises(BadInput, match="missing: c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 and 30 more"):
        many.places([], "here")


def test_an_npz_file_with_names_is_put_in_order_and_one_without_is_taken_by_position(tmp_path: Path) -> None:
    path, warned = tmp_path / "rows.npz", list[str]()
    np.savez(path, rows=ROWS[:, ::-1], labels=np.array([1, 0]), columns=np.array(["steps", "age"]))
    np.testing.assert_array_equal(read(path, NAMED, warned).rows, ROWS)
    assert not warned
    np.savez(path, rows=ROWS, labels=np.array([1, 0]))
    np.testing.assert_array_equal(read(path, NAMED, warned).rows, ROWS)
    assert warned == [f"{path}: numbers without names are taken by position, as age (years), steps (per day)"]
    for columns, message in (
        (np.array(["age", "weight"]), "missing: steps\n  unknown: weight"),
        (np.array(["age"]), "one name for each column"),
        (np.array([1, 2]), "one name for each column"),
    ):
        np.savez(path, rows=ROWS, labels=np.array([1, 0]), columns=columns)
        with pytest.raises(BadInput) as error:
            read(path, NAMED)
        assert message in str(error.value)


def test_json_lines_may_name_their_numbers() -> None:
    warned: list[str] = []
    named = '{"row": {"steps": 4000, "age": 31}, "label": "walking"}\n{"label": 0, "row": {"age": 42, "steps": 0.5}}\n'
    table = PassingRows(row_sources.json_lines(io.StringIO(named), NAMED, warned.append), NAMED).take(2, 2)
    assert table is not None and not warned
    np.testing.assert_array_equal(table.rows, ROWS)
    plain = '{"row": [31, 4000], "label": "walking"}\n{"row": [42, 0.5], "label": 0}\n'
    table = PassingRows(row_sources.json_lines(io.StringIO(plain), NAMED, warned.append), NAMED).take(2, 2)
    assert table is not None and len(warned) == 1 and "the stream: numbers without names" in warned[0]
    wrong = '{"row": {"age": 1, "stps": 2}, "label": 0}\n'
    with pytest.raises(BadInput, match=r"row 1 of the stream: .*\n  missing: steps\n  unknown: stps \(did you mean"):
        PassingRows(row_sources.json_lines(io.StringIO(wrong), NAMED), NAMED).take(1, 1)


def test_pairs_in_python_may_be_named() -> None:
    table = read([({"steps": 4000, "age": 31}, "walking"), ([42, 0.5], "standing")], NAMED)
    np.testing.assert_array_equal(table.rows, ROWS)
    with pytest.raises(BadInput, match="row 1: the numbers of this row have names, and the task has none"):
        read([({"a": 1, "b": 2}, 0)], Contract(features=2, target=Labels(names=("a", "b"))))
    with pytest.raises(BadInput, match="row 1: a row must be 2 numbers"):
        read([({"age": "old", "steps": 2}, 0)], NAMED)


def test_ids_come_with_every_kind_of_rows(tmp_path: Path) -> None:
    csv = "patient,steps,label,age\n 7 ,4000,walking,31\nx y,0.5,standing,42\n"
    assert read(write(tmp_path, csv), WITH_ID).ids == ("7", "x y")
    unnamed = Contract(features=2, target=Labels(names=("standing", "walking")), id="patient")
    assert read(write(tmp_path, csv), unnamed).ids == ("7", "x y")
    np.savez(tmp_path / "rows.npz", rows=ROWS, labels=np.array([1, 0]), ids=np.array([7, 8]))
    assert read(tmp_path / "rows.npz", WITH_ID).ids == ("7", "8")
    assert read((ROWS, np.array([1, 0]), np.array(["7", "8"])), WITH_ID).ids == ("7", "8")
    assert read([([31, 4000], 1, 7), ({"age": 42, "steps": 0.5}, 0, "8")], WITH_ID).ids == ("7", "8")
    lines = '{"row": [31, 4000], "label": 1, "id": 7}\n{"row": [42, 0.5], "label": 0, "id": "8"}\n'
    streamed = PassingRows(row_sources.json_lines(io.StringIO(lines), WITH_ID), WITH_ID).take(2, 2)
    assert streamed is not None and streamed.ids == ("7", "8")
    buffer = RowBuffer(2)
    buffer.put([31, 4000], 1, id=7)
    source = source_of(buffer, WITH_ID)
    assert not isinstance(source, KeptRows)
    taken = source.take(1, 2)
    assert taken is not None and taken.ids == ("7",)


def test_a_missing_id_is_named(tmp_path: Path) -> None:
    for text, message in (
        ("age,steps,label\n", 'line 1: no column is called "patient"'),
        ("age,steps,label,patient,patient\n", 'line 1: 2 columns are called "patient"'),
        ("age,steps,label,patient\n1,2,walking,\n", "line 2: the id is missing"),
    ):
        with pytest.raises(BadInput) as error:
            read(write(tmp_path, text), WITH_ID)
        assert message in str(error.value)
    np.savez(tmp_path / "rows.npz", rows=ROWS, labels=np.array([1, 0]))
    with pytest.raises(BadInput, match="2 rows, but no ids"):
        read(tmp_path / "rows.npz", WITH_ID)
    for rows, message in (
        ([([1, 2], 0)], "row 1: the id is missing"),
        ([([1, 2], 0, 1.5)], "row 1: the id is missing, or is none"),
        ([([1, 2], 0, True)], "row 1: the id is missing, or is none"),
        ([([1, 2], 0, "\ud800")], "row 1: the id is missing, or is none"),
        ([([1, 2], 0, 1, 2)], "row 1: should be a row, its label and its id"),
    ):
        with pytest.raises(BadInput, match=message):
            read(rows, WITH_ID)
    with pytest.raises(BadInput, match=r'line 1 of the stream: not a row\n.*"id"'):
        next(row_sources.json_lines(io.StringIO('{"row": [1, 2], "label": 0}\n'), WITH_ID))


def test_the_task_names_its_columns() -> None:
    source = TASK.replace("features = 3", 'columns = ["age", "steps", "weight"]\nunits = { age = "years" }\nid = "who"')
    task = parse(source, "walk.toml")
    assert task.data.features == task.features == 3 and task.data.described == ("age (years)", "steps", "weight")
    definition = definition_of(task)
    assert definition["data"]["columns"] == ["age", "steps", "weight"] and definition["data"]["id"] == "who"
    live = open_task(TaskDocument(task="walk", incarnation=1, definition=definition, arrays=({},)))
    contract = live.task.data.contract
    assert contract.columns == ("age", "steps", "weight") and contract.id == "who" and contract.features == 3
    plain = definition_of(parse(TASK, "walk.toml"))["data"]
    assert not {"columns", "units", "id"} & set(plain), "a task without names has the text it always had"


@pytest.mark.parametrize(
    "data, message",
    [
        ('columns = ["a", "b"]\nfeatures = 3', "line 5, data: features = 3, but 2 columns have names"),
        ("", "line 5, data: say what a row is: columns = "),
        ("features = 0", "line 6, data.features: should be greater than 0, not 0"),
        ('columns = ["a", "a"]', "line 6, data.columns: columns must differ from each other; a stands twice"),
        ('columns = ["a", " b"]', "data.columns: ' b' cannot stand in a header"),
        ('columns = ["age", "b"]\nunits = { ag = "years" }', 'no column is called "ag"; did you mean "age"?'),
        ('columns = ["a", "b"]\nid = "b"', 'the id "b" is one of the columns'),
    ],
)
def test_mistakes_in_the_task_file_are_named(data: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        parse(TASK.replace("features = 3", data), "walk.toml")
    assert message in str(error.value)
