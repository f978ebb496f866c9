"""Rows: every way to hand them over, and a clear word about each mistake."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput, Labels
from crowdml.data.rows.row_contract import Contract
from crowdml.device.rows import row_sources
from crowdml.device.rows.row_sources import KeptRows, PassingRows, RowBuffer, source_of

CONTRACT = Contract(features=2, target=Labels(names=("standing", "walking")))
GOOD = "x,label,y\n0.5,walking,1\n1e-3, standing ,-2.25\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return path


def kept(rows: Any) -> KeptRows:
    found = source_of(rows, CONTRACT)
    assert isinstance(found, KeptRows)
    return found


def test_csv(tmp_path: Path) -> None:
    for text in (GOOD, "\ufeff" + GOOD, GOOD.replace("\n", "\r\n")):
        table = kept(write(tmp_path, text)).table()
        np.testing.assert_array_equal(table.rows, np.array([[0.5, 1], [1e-3, -2.25]], np.float32))
        assert table.targets.tolist() == [1, 0] and table.rows.dtype == np.float32


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "the file is empty"),
        ("x,y\n1,2\n", 'line 1: no column is called "label"'),
        ("label,label,x\n", "line 1: 2 column"),
        ("x,label\n1,walking\n", "line 1: 1 columns beside the label, but a row of this task has 2"),
        (GOOD + "1,walking\n", "line 4: 2 fields, 3 were expected"),
        (GOOD + "\n1\n", "line 5: 1 fields"),
        (GOOD + "1,walking,abc\n", "line 4, column y: 'abc' is not a number"),
        (GOOD + "1,walking,nan\n", "line 4, column y: a value is missing\n  fill it in, or leave the row out"),
        (GOOD + "1,walking, NA\n", "line 4, column y: a value is missing"),
        (GOOD + ",walking,1\n", "line 4, column x: a value is missing"),
        (GOOD + "1e300,walking,1\n", "line 4, column x: 1e+300 is not a finite number of 32 bits"),
        (GOOD + "1,waking,1\n", "line 4, column label: 'waking' is not a label\n  did you mean \"walking\""),
        (GOOD + "1,1,1\n", "line 4, column label: '1' is not a label"),
        ("x,label,y\n1,walking,2\x00\n", "rows.csv"),
    ],
)
def test_csv_mistakes_are_named_with_their_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        kept(write(tmp_path, text)).table()
    assert message in str(error.value)


def test_other_label_column_and_other_files(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("label", "kind"))
    assert len(source_of(path, CONTRACT, "kind").table()) == 2  # type: ignore[union-attr]
    (tmp_path / "latin.csv").write_bytes(GOOD.encode() + b"1,\xe9,2\n")
    for name, message in (
        ("latin.csv", "not text in UTF-8"),
        ("none.csv", "there is no file"),
        ("rows.txt", "no known ending"),
    ):
        with pytest.raises(BadInput, match=message):
            kept(tmp_path / name).table()


def test_npz(tmp_path: Path) -> None:
    rows = np.array([[1, 2], [3, 4]], np.uint8)
    for labels in (np.array([1, 0]), np.array(["walking", "standing"])):
        np.savez(tmp_path / "rows.npz", rows=rows, labels=labels)
        table = kept(str(tmp_path / "rows.npz")).table()
        assert table.targets.tolist() == [1, 0]
        np.testing.assert_array_equal(table.rows, rows.astype(np.float32))


BAD_ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "no labels": ({"rows": np.zeros((2, 2))}, "no array is called labels"),
    "wrong width": ({"rows": np.zeros((2, 3)), "labels": np.zeros(2, int)}, "(2, 3)"),
    "three axes": ({"rows": np.zeros((2, 2, 1)), "labels": np.zeros(2, int)}, "(2, 2, 1)"),
    "text": ({"rows": np.array([["a", "b"]]), "labels": np.zeros(1, int)}, "rows are <U1"),
    "lengths": ({"rows": np.zeros((2, 2)), "labels": np.zeros(3, int)}, "2 rows, but labels of shape (3,)"),
    "not finite": (
        {"rows": np.array([[1.0, 2], [np.inf, 0]]), "labels": np.zeros(2, int)},
        "row 2, number 1 of the row: inf is not",
    ),
    "no such label": ({"rows": np.zeros((2, 2)), "labels": np.array([0, 2])}, "row 2: label 2 is not a number"),
    "fractions": ({"rows": np.zeros((1, 2)), "labels": np.array([0.5])}, "row 1: 0.5 is not a label"),
    "objects": ({"rows": np.array([[{}, 1]], object), "labels": np.zeros(1, int)}, "not an NPZ file of plain arrays"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_npz_mistakes(name: str, tmp_path: Path) -> None:
    arrays, message = BAD_ARRAYS[name]
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(BadInput) as error:
        kept(tmp_path / "rows.npz").table()
    assert message in str(error.value)


def test_a_file_that_is_no_npz(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04 broken", b"\x80\x04 a pickle"):
        (tmp_path / "rows.npz").write_bytes(content)
        with pytest.raises(BadInput, match="not an NPZ"):
            kept(tmp_path / "rows.npz").table()


def test_a_function_is_asked_again_and_a_list_is_not() -> None:
    grown: list[tuple[list[float], str]] = []

    def measure() -> Iterator[tuple[list[float], str]]:
        grown.append(([1.0, 2.0], "walking"))
        yield from grown

    source = kept(measure)
    assert [len(source.table()) for _ in range(3)] == [1, 2, 3]
    fixed = kept([([1.0, 2.0], "walking")])
    assert fixed.table() is fixed.table()
    arrays = kept((np.ones((3, 2)), np.array([0, 1, 1])))
    assert arrays.table().targets.tolist() == [0, 1, 1]
    assert len(kept(lambda: (np.ones((3, 2)), np.array([0, 1, 1]))).table()) == 3


@pytest.mark.parametrize(
    "rows, message",
    [
        ([([1.0], "walking")], "row 1: a row must be 2 numbers, not 1"),
        ([([1.0, 2.0], "walking"), "ab"], "row 2: a row must be 2 numbers"),
        ([([1.0, 2.0], "walking"), 7], "row 2: should be a pair"),
        ([([1.0, 2.0], True)], "row 1: True is not a label"),
        ([([1.0, 2.0], -1)], "row 1: label -1"),
        (lambda: 5, "int holds no rows"),
    ],
)
def test_mistakes_in_pairs(rows: Any, message: str) -> None:
    with pytest.raises(BadInput) as error:
        kept(rows).table()
    assert message in str(error.value)


def test_a_stream_is_read_only_as_far_as_needed() -> None:
    read = []

    def measure() -> Iterator[tuple[list[float], str]]:
        for number in range(5):
            read.append(number)
            yield [float(number), 0.0], "walking"

    source = source_of(measure(), CONTRACT)
    assert isinstance(source, PassingRows)
    first = source.take(2, 4)
    assert first is not None and first.rows[:, 0].tolist() == [0, 1] and read == [0, 1]
    assert source.take(2, 4) is not None
    assert source.take(2, 4) is None, "what is left over does not fill a batch"


def test_json_lines() -> None:
    lines = '{"row": [1, 2], "label": "walking"}\n\n{"row": [3, 4.5], "label": 0}\n'
    source = PassingRows(row_sources.json_lines(io.StringIO(lines), CONTRACT), CONTRACT)
    table = source.take(2, 2)
    assert table is not None and table.targets.tolist() == [1, 0]
    for line in ("{", '{"row": [1, 2]}', "[1]", "7"):
        with pytest.raises(BadInput, match="line 1 of the stream: not a row"):
            next(row_sources.json_lines(io.StringIO(line + "\n"), CONTRACT))
    lines += '{"row": [1], "label": 0}\n'
    wrong = PassingRows(row_sources.json_lines(io.StringIO(lines), CONTRACT), CONTRACT)
    with pytest.raises(BadInput, match="row 3 of the stream"):
        wrong.take(3, 3)


def test_a_buffer_is_bounded_and_a_batch_grows_with_it() -> None:
    buffer = RowBuffer(5)
    source = source_of(buffer, CONTRACT)
    assert isinstance(source, PassingRows)
    assert [buffer.put([0.0, 1.0], "walking") for _ in range(7)] == [True] * 5 + [False] * 2
    assert buffer.lost == 2
    taken = source.take(2, 4)
    assert taken is not None and len(taken) == 4
    buffer.close()
    assert source.take(2, 4) is None and not buffer.put([0.0, 1.0], "walking")


def test_a_buffer_waits_for_its_rows() -> None:
    buffer = RowBuffer(4)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(PassingRows(buffer, CONTRACT).take(2, 4)))
    reader.start()
    buffer.put([1.0, 2.0], 1)
    buffer.put([3.0, 4.0], 0)
    reader.join(timeout=30)
    assert found[0].targets.tolist() == [1, 0]
