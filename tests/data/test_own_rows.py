"""Rows of the user's own become a dataset: read in parts, held out by chance, each mistake with its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

from crowdml.core import BadInput, Labels, Number
from crowdml.data import Dataset
from crowdml.data.held_out import hold_out
from crowdml.data.own_rows import OwnRows
from crowdml.data.rows import parquet_files, row_files
from crowdml.data.rows.row_contract import Contract
from crowdml.data.rows.row_files import RowFile
from crowdml.device.rows.row_sources import KeptRows, source_of

CONTRACT = Contract(features=2, target=Labels(names=("no", "yes")), owner="who", label_setting="data.label-column")


def table(count: int = 50) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(count, 2)).round(4)
    return pd.DataFrame(
        {
            "who": generator.integers(0, 5, count),
            "a": rows[:, 0],
            "label": np.where(rows[:, 0] > 0, "yes", "no"),
            "b": rows[:, 1],
        }
    )


def read(path: Path, contract: Contract = CONTRACT, test: Any = 0.2, label_column: str = "label") -> Dataset:
    return OwnRows(contract=contract, label_column=label_column, test=test).of_file(
        RowFile(path=path, setting="data.file")
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_parts_make_the_same_whole(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"rows.{kind}"
    frame = table()
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path, row_group_size=17)
    whole = read(path)
    monkeypatch.setattr(row_files, "NUMBERS_AT_ONCE", 12)
    monkeypatch.setattr(parquet_files, "ROWS_AT_ONCE", 3)
    parts = read(path)
    held = hold_out(50, 0.2, frame.who.to_numpy())
    for half, chosen in (("train", ~held), ("test", held)):
        expected = frame.loc[chosen, ["a", "b"]].to_numpy(np.float32)
        for found in (whole, parts):
            np.testing.assert_array_equal(getattr(found, f"{half}_rows"), expected)
            assert (getattr(found, f"{half}_targets") == (expected[:, 0] > 0)).all()
    assert parts.train_owners is not None and parts.note == "10 of 50 rows are held out to test on, drawn by chance"
    np.testing.assert_array_equal(parts.train_owners, frame.who[~held])


def test_rows_are_laid_where_they_are_wanted(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "rows.parquet")
    made: list[Any] = []

    def allocate(shape: tuple[int, ...], dtype: Any) -> Any:
        made.append(np.zeros(shape, dtype))
        return made[-1]

    own = OwnRows(contract=CONTRACT, label_column="label", test=0.2)
    found = own.of_file(RowFile(path=tmp_path / "rows.parquet", setting="data.file"), allocate)
    assert found.train_rows is made[0] and found.test_rows is made[1] and len(made) == 2


def test_every_owner_keeps_a_row() -> None:
    owners = np.array([0, 0, 0, 1, 2, 2, 2, 2, 2, 3], np.int32)
    for seed in range(20):
        held = hold_out(10, 0.5, owners, seed)
        assert held.sum() == 5 and set(owners[~held]) == {0, 1, 2, 3}
    with pytest.raises(BadInput, match="4 owners must keep one each: 6 are left"):
        hold_out(10, 0.7, owners)
    with pytest.raises(BadInput, match="1 row: some to learn from"):
        hold_out(1, 0.5, None)


def test_a_device_reads_parquet_too(tmp_path: Path) -> None:
    frame = table(8).rename(columns={"who": "id"})
    frame.to_parquet(tmp_path / "rows.parquet")
    contract = Contract(features=2, target=Labels(names=("no", "yes")), columns=("b", "a"), id="id")
    found = source_of(tmp_path / "rows.parquet", contract)
    assert isinstance(found, KeptRows)
    np.testing.assert_array_equal(found.table().rows, frame[["b", "a"]].to_numpy(np.float32))
    assert found.table().ids == tuple(str(one) for one in frame.id) and found.table().owners is None
    for content in (b"", b"PAR1 broken"):
        (tmp_path / "rows.parquet").write_bytes(content)
        with pytest.raises(BadInput, match="not a Parquet file"):
            source_of(tmp_path / "rows.parquet", contract).table()  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="--rows: there is no file"):
        source_of(tmp_path / "none.parquet", contract).table()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_values_beyond_their_bounds_are_clipped_or_refused(kind: str, tmp_path: Path) -> None:
    path, frame = tmp_path / f"rows.{kind}", table(6)[["a", "b"]].assign(heat=[1.0, 2, 3, 99, 5, 6])
    if kind == "npz":
        np.savez(path, rows=frame[["a", "b"]].to_numpy(), targets=frame.heat.to_numpy())
    else:
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    contract = Contract(features=2, target=Number(low=0.0, high=10.0, name="heat"))
    found = read(path, contract, label_column="heat")
    assert found.outside == 1 and max(found.train_targets.max(), found.test_targets.max()) == 1.0
    place = {"csv": "line 5, column heat", "parquet": "row 4, column heat", "npz": "row 4"}[kind]
    with pytest.raises(BadInput, match=f"rows.{kind}, {place}: 99 lies beyond the bounds of the target"):
        strict = Contract(features=2, target=contract.target, refuses_outside=True)
        read(path, strict, label_column="heat")


def test_a_file_to_test_on_may_lack_owners(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "rows.csv", index=False)
    for columns in (["a", "b", "label"], ["a", "b", "label", "who"]):
        table(9)[columns].to_csv(tmp_path / "more.csv", index=False)
        found = read(tmp_path / "rows.csv", test=RowFile(path=tmp_path / "more.csv", setting="data.test"))
        assert len(found.train_targets) == 50 and len(found.test_targets) == 9 and not found.note
    table(9).assign(label="maybe").to_csv(tmp_path / "more.csv", index=False)
    with pytest.raises(BadInput, match=r"more.csv, line 2, column label: 'maybe' is not a label"):
        read(tmp_path / "rows.csv", test=RowFile(path=tmp_path / "more.csv", setting="data.test"))


ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "one axis": ({"rows": np.zeros(3)}, "rows have shape (3,)"),
    "words": ({"rows": np.array([["1", "x"], ["2", "3"]])}, "rows, row 1, number 2 of the row: 'x' is not a number"),
    "a gap": ({"rows": [[1.0, np.nan], [2, 3]]}, "rows, row 1, number 2 of the row: a value is missing"),
    "infinite": ({"rows": [[1.0, np.inf], [2, 3]]}, "row 1, number 2 of the row: inf is not a finite number"),
    "ragged": ({"rows": [[1.0, 2.0], [3.0]]}, "rows differ in length"),
    "sparse": ({"rows": csr_matrix(np.eye(2))}, "rows are a sparse matrix"),
    "too few targets": ({"targets": [1]}, "2 rows, but 1 targets"),
    "two axes of targets": ({"targets": [[1], [2]]}, "targets have shape (2, 1)"),
    "no target": ({"targets": [1.5, np.nan]}, "targets, row 2: a target is missing"),
    "unknown label": ({"targets": ["no", "maybe"], "labels": ["no", "yes"]}, "targets, row 2: 'maybe' is not a label"),
    "owners": ({"owners": ["a"]}, "owners for 1 of 2 rows"),
    "nobody's": ({"owners": ["a", None]}, "owners, row 2: the owner is missing"),
    "share": ({"test": 1.5}, "1.5 is no share of the rows"),
    "share in words": ({"test": "half"}, "test: 'half' is no share of the rows"),
    "no share": ({"test": None}, "test: None is no share of the rows"),
    "masked": ({"rows": np.ma.masked_array(np.eye(2), np.eye(2) > 0)}, "rows, row 1, number 1 of the row: a value is"),
    "one word of labels": ({"labels": "no"}, "labels: labels are names that differ from each other, not 'no'"),
    "labels twice": ({"labels": ["no", "no"]}, "labels are names that differ from each other"),
    "narrow rows to test on": ({"test": (np.eye(1), ["no"])}, "test rows: 1 numbers in a row, 2 in one to learn from"),
    "targets to test on": ({"test": (np.eye(2), ["no"])}, "test: 2 rows to test on, with 1 targets"),
    "none to test on": ({"test": (np.zeros((0, 2)), [])}, "test: 0 rows to test on, with 0 targets"),
    "three things to test on": ({"test": (np.eye(2), ["no"], ["a"])}, "test: 3 things to test on"),
    "new label to test on": ({"test": (np.eye(1, 2), ["maybe"])}, "targets, row 1: 'maybe' is not a label"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_mistakes_in_arrays(name: str) -> None:
    changes, message = ARRAYS[name]
    given: dict[str, Any] = {"rows": np.eye(2), "targets": ["no", "yes"]} | changes
    rows, targets = given.pop("rows"), given.pop("targets")
    with pytest.raises(BadInput) as error:
        Dataset.from_arrays(rows, targets, **given)
    assert message in str(error.value)


def test_arrays_with_rows_to_test_on_and_frames() -> None:
    found = Dataset.from_arrays(np.eye(3), ["no", "yes", "no"], test=(np.ones((2, 3)), ["yes", "no"]))
    assert found.test_targets.tolist() == [1, 0] and len(found.train_rows) == 3
    frame = table().assign(label=pd.Categorical(table().label), who=table().who.astype("Int64"))
    named = Dataset.from_frame(frame, owner="who")
    assert named.columns == ("a", "b") and named.label_names == ("no", "yes") and named.train_owners is not None
    with pytest.raises(BadInput, match='no column is called "kind"\n  there are: who, a, label, b'):
        Dataset.from_frame(frame, "kind")


@pytest.mark.parametrize("given", [[0.0, 1.0], [False, True], [-1, 1], [12_000, 20_000], [1, 3], ["a", "b"]])
def test_targets_to_test_on_mean_what_those_to_learn_from_do(given: list[Any]) -> None:
    found = Dataset.from_arrays(np.eye(4), given * 2, test=(np.eye(4), [*given[::-1], *given]))
    first, second = found.train_targets.tolist()[:2]
    assert first < second and found.test_targets.tolist() == [second, first, first, second]


def test_columns_to_test_on_are_found_by_name() -> None:
    frame = table()[["a", "b"]]
    found = Dataset.from_arrays(frame, table().label, test=(frame[["b", "a"]], table().label))
    assert np.array_equal(found.test_rows, found.train_rows)
    for other in (frame.rename(columns={"b": "c"}), frame[["a", "a"]]):
        with pytest.raises(BadInput, match=r"test rows: the columns are a, .\n  those of the rows to learn from"):
            Dataset.from_arrays(frame, table().label, test=(other, table().label))


def test_mistakes_in_frames() -> None:
    with pytest.raises(BadInput, match=r"ndarray is no data frame\n  Dataset.from_arrays"):
        Dataset.from_frame(np.eye(2))
    with pytest.raises(BadInput, match='owner: the owner "who" is predicted'):
        Dataset.from_frame(table(), "who", owner="who")


def test_empty_lines_hold_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    table(9).to_csv(path, index=False)
    whole = read(path)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, "", *lines, "", ""]))
    assert np.array_equal(read(path).train_rows, whole.train_rows)
    path.write_text("\n".join([header, "", *lines, "1"]))
    with pytest.raises(BadInput, match=r"line 12: 1 fields, 4 were expected"):
        read(path)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_other_separators_are_named(mark: str, tmp_path: Path) -> None:
    table(9).to_csv(tmp_path / "rows.csv", index=False, sep=mark)
    with pytest.raises(BadInput, match=r"line 1: columns are separated by \w+\n  separate them by commas"):
        read(tmp_path / "rows.csv")


def test_a_column_without_a_name_and_other_decimals_are_explained(tmp_path: Path) -> None:
    table(9).to_csv(tmp_path / "rows.csv")
    with pytest.raises(BadInput, match=r"unknown: a column without a name \(frame.to_csv\(path, index=False\)"):
        read(tmp_path / "rows.csv", dataclasses.replace(CONTRACT, columns=("a", "b"), described=("a", "b")))
    for written in ("1,5", "-1,234.5"):
        (tmp_path / "rows.csv").write_text(f'who,a,b,label\nann,"{written}",2,no\n')
        with pytest.raises(BadInput, match=rf"line 2, column a: '{written}' is not a number\n  digits without marks"):
            read(tmp_path / "rows.csv")


def test_another_encoding_is_named(tmp_path: Path) -> None:
    table(9).to_csv(tmp_path / "rows.csv", index=False, encoding="utf-16")
    with pytest.raises(BadInput, match=r"rows.csv, line 1: not text in UTF-8\n  save it as CSV in UTF-8"):
        read(tmp_path / "rows.csv")
    table(90).assign(who=["zoe"] * 70 + ["zoé"] * 20).to_csv(tmp_path / "rows.csv", index=False, encoding="latin-1")
    with pytest.raises(BadInput, match=r"rows.csv, line 72: not text in UTF-8"):
        read(tmp_path / "rows.csv")


def test_a_field_without_an_end_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"who,a,label,b\nann,1,no,2\nann,{'9' * 200_000},no,2\n")
    with pytest.raises(BadInput, match=r"rows.csv, line 3: not a line of a CSV file: field larger than field limit"):
        read(tmp_path / "rows.csv")


@pytest.mark.parametrize("owner", ["who", None])
@pytest.mark.parametrize("leaves_out", [False, True])
def test_damage_inside_a_parquet_file_is_a_sentence(leaves_out: bool, owner: str | None, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    frame = table(500).assign(a=np.random.default_rng(0).normal(size=500))
    (frame if owner else frame.drop(columns="who")).to_parquet(path)
    whole, refused = path.read_bytes(), 0
    contract = Contract(features=2, target=CONTRACT.target, owner=owner, leaves_out=leaves_out)
    for begin in range(4, len(whole), len(whole) // 25):
        damaged = bytearray(whole)
        damaged[begin : begin + 40] = bytes(255 - byte for byte in damaged[begin : begin + 40])
        path.write_bytes(damaged)
        try:
            read(path, contract)
        except BadInput as error:
            refused += 1
            assert "rows.parquet" in str(error)
    assert refused > 5


@pytest.mark.parametrize("leaves_out", [False, True])
def test_columns_of_one_name_cannot_be_told_apart_in_parquet(leaves_out: bool, tmp_path: Path) -> None:
    columns = [pa.array([1.0, 2.0]), pa.array([3.0, 4.0]), pa.array(["no", "yes"]), pa.array(["ann", "ann"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["a", "a", "label", "who"]), tmp_path / "rows.parquet")
    with pytest.raises(BadInput, match=r"rows.parquet: 2 columns are called a\n  a name for each column"):
        read(tmp_path / "rows.parquet", dataclasses.replace(CONTRACT, leaves_out=leaves_out))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_missing_target_is_called_so(kind: str, tmp_path: Path) -> None:
    frame = table(9)
    frame["label"] = frame["label"].where(frame.index != 3)
    path = tmp_path / f"rows.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    place = {"csv": "line 5", "parquet": "row 4"}[kind]
    with pytest.raises(BadInput, match=f"rows.{kind}, {place}, column label: the label is missing\n  fill it in"):
        read(path)


def test_a_whole_number_of_any_length_is_no_traceback(tmp_path: Path) -> None:
    frame = table(9).astype({"a": object})
    frame.loc[3, "a"] = 10**400
    own = OwnRows(contract=CONTRACT, label_column="label", test=0.2)
    with pytest.raises(BadInput, match=r"the frame, row 4, column a: 10{400} is not a finite number of 32 bits"):
        own.of_frame(frame)
    with pytest.raises(BadInput, match=r"rows, row 1, number 2 of the row: 10{400} is not a finite"):
        Dataset.from_arrays([[1, 10**400], [2, 3]], ["no", "yes"])
    with pytest.raises(BadInput, match="the row: a row must be 2 numbers"):
        CONTRACT.row([1, 10**400], "the row")
    with pytest.raises(BadInput, match=r"the row: 10{400} is not a finite number"):
        Number(low=0.0, high=1.0).parse(10**400, "the row")


def test_rows_that_are_learnt_from_are_not_tested_on(tmp_path: Path) -> None:
    table(9).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(BadInput, match=r"data.test: rows.csv is learnt from"):
        read(tmp_path / "rows.csv", test=RowFile(path=tmp_path / "." / "rows.csv", setting="data.test"))
