"""Rows of the user's own: arrays, frames and files give the same simulation, each in a dozen settings or lines."""

from __future__ import annotations

import dataclasses
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

import crowdml
from crowdml.cli.app import main
from crowdml.core import BadInput, Labels, Number
from crowdml.data import Dataset, locate
from crowdml.data.loaders.reading import read_plain_or_gz
from crowdml.device.rows.row_sources import KeptRows, source_of
from crowdml.simulation import Result
from crowdml.simulation.own_data import bind
from crowdml.simulation.prepare import prepare
from crowdml.task import Task, parse
from crowdml.task.live_task import definition_of, open_task
from crowdml.task.task_file import located
from crowdml.wire import TaskDocument

MOST_SETTINGS = 12

WALK = """
crowdml = 1
name = "walk"
[data]
file = "rows.csv"
owner = "phone"
columns = ["x", "y"]
labels = ["standing", "walking"]
[model]
kind = "logistic"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
"""
QUICK = ("algorithm.batch=5", "crowd.passes=2", "crowd.curve=2")


def settings_of(text: str) -> int:
    """Count settings; headings are none."""

    def count(table: dict[str, Any]) -> int:
        return sum(count(value) if isinstance(value, dict) else 1 for value in table.values())

    return count(tomllib.loads(text))


def run(text: str, data: Any = None, *changes: str) -> Result:
    return crowdml.simulate(parse(text, "own.toml", changes), data=data, engine="numpy")


@pytest.fixture
def frame() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 120)
    rows = (generator.normal(size=(120, 2)) + np.where(labels, 1.0, -1.0)[:, None]).astype(np.float32)
    return pd.DataFrame(
        {
            "y": rows[:, 1],
            "label": np.where(labels, "walking", "standing"),
            "phone": [f"p{n % 7}" for n in range(120)],
            "x": rows[:, 0],
        }
    )


@pytest.fixture
def files(frame: pd.DataFrame, tmp_path: Path) -> Path:
    """The frame as a file of every kind, beside a task."""
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=50)
    texts: dict[str, Any] = {"labels": frame.label.to_numpy().astype(str), "phone": frame.phone.to_numpy().astype(str)}
    np.savez(tmp_path / "rows.npz", rows=frame[["y", "x"]].to_numpy(), columns=np.array(["y", "x"]), **texts)
    (tmp_path / "walk.toml").write_text(WALK, encoding="utf-8")
    return tmp_path


def test_breast_cancer_as_arrays() -> None:
    text = """
    crowdml = 1
    name = "cancer"
    [data]
    features = 30
    labels = ["malignant", "benign"]
    [model]
    kind = "logistic"
    [algorithm]
    kind = "fedsgd"
    rate = { kind = "constant", c = 0.5 }
    [privacy]
    mode = "none"
    """
    rows, labels = load_breast_cancer(return_X_y=True)
    data = Dataset.from_arrays((rows - rows.mean(axis=0)) / rows.std(axis=0), labels)
    result = run(text, data)
    assert result.test_error < 0.08 and result.task.crowd.devices == 20
    assert settings_of(text) <= MOST_SETTINGS


def test_diabetes_as_arrays_and_bounds() -> None:
    text = """
    crowdml = 1
    name = "diabetes"
    [data]
    features = 10
    target = { name = "progression", low = 25.0, high = 346.0 }
    [model]
    kind = "linear"
    [algorithm]
    kind = "fedsgd"
    rate = { kind = "constant", c = 0.3 }
    [privacy]
    mode = "none"
    [crowd]
    passes = 30
    """
    assert settings_of(text) <= MOST_SETTINGS
    rows, progression = load_diabetes(return_X_y=True)
    result = run(text, (rows * 20, progression))
    assert result.measured["r2"][-1].mean() > 0.3
    assert not result.warnings, "y is whole, and means values here"
    narrow = run(text, (rows * 20, progression), "data.target.high=300.0", "crowd.passes=1")
    beyond = int((progression > 300).sum())
    assert any(f"{beyond} targets of arrays lie beyond" in warning for warning in narrow.warnings)
    with pytest.raises(BadInput, match=rf"data.target: {beyond} targets of arrays lie beyond"):
        run(text, (rows, progression), "data.target.high=300.0", "data.target.outside=refuse")


ADULT = """
crowdml = 1
name = "adult"
[data]
file = "adult.csv"
owner = "household"
columns = [
  "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
  "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
]
words = "words.toml"
missing = "leave-out"
transform = [{ kind = "standardise" }]
labels = ["<=50K", ">50K"]
[model]
kind = "logistic"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
"""


def test_adult_from_its_own_words_with_an_owner_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = locate("adult")
    if folder is None:
        pytest.skip("the dataset adult is not on this machine; set CROWDML_DATA to a folder that has it")
    assert settings_of(ADULT) <= MOST_SETTINGS
    raw = read_plain_or_gz(folder / "adult.data", 8 << 20).decode().splitlines()
    lines = [f"{line}, household {number % 40}" for number, line in enumerate(filter(None, raw))]
    header = ",".join([*Task.model_validate(tomllib.loads(ADULT.replace('words = "words.toml"', ""))).data.columns])
    (tmp_path / "adult.csv").write_text("\n".join([f"{header},label,household", *lines]), encoding="utf-8")
    (tmp_path / "adult.toml").write_text(ADULT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    typed = ["data", "words", "adult.csv", "--except", "label", "--except", "household", "-o", "words.toml"]
    for arguments in (typed, ["simulate", "adult.toml", "--engine", "numpy", "--trials", "1", "--json", "found.json"]):
        monkeypatch.setattr(sys, "argv", ["crowdml", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    told = capsys.readouterr()
    gaps = sum(" ?," in line for line in lines)
    assert gaps > 2000 and f"{gaps} of {len(lines)} rows lack a value and are left out" in told.out + told.err
    assert json.loads((tmp_path / "found.json").read_text())["final"]["test_error"]["mean"] < 0.2
    assert bind(Task.load(tmp_path / "adult.toml")).crowd.devices == 40


def test_every_kind_of_rows_gives_the_same_result(files: Path, frame: pd.DataFrame) -> None:
    assert settings_of(WALK) <= MOST_SETTINGS
    task = Task.load(files / "walk.toml", QUICK)
    known = crowdml.simulate(task, engine="numpy")
    assert known.test_error < 0.3 and known.task.crowd.devices == 7
    arrays = Dataset.from_arrays(frame[["y", "x"]], frame["label"], owners=frame["phone"])
    for data in (
        files / "rows.npz",
        str(files / "rows.parquet"),
        frame,
        arrays,
        Dataset.from_frame(frame, owner="phone"),
    ):
        found = crowdml.simulate(task, data=data, engine="numpy")
        np.testing.assert_array_equal(found.parameters[0]["w"], known.parameters[0]["w"])
        assert found.measured["test_error"].tolist() == known.measured["test_error"].tolist()


def test_every_owner_is_a_device_with_its_own_rows(files: Path, frame: pd.DataFrame) -> None:
    task = bind(Task.load(files / "walk.toml", QUICK))
    assert task.crowd.devices == 7 and task.crowd.partition.kind == "writer" and task.data.file is None
    dataset = prepare(task)[1]
    assert dataset.train_owners is not None and len(dataset.test_rows) == 24
    order = {(row.x, row.y): row.phone for row in frame.itertuples()}
    for row, owner in zip(dataset.train_rows.tolist(), dataset.train_owners.tolist(), strict=True):
        assert order[np.float32(row[0]), np.float32(row[1])] == f"p{owner}"


def test_without_owners_the_partition_deals(files: Path) -> None:
    frame = pd.read_csv(files / "rows.csv").drop(columns="phone")
    frame.to_csv(files / "rows.csv", index=False)
    plain = WALK.replace('owner = "phone"\n', "")
    (files / "walk.toml").write_text(plain + "[crowd]\ndevices = 5\n", encoding="utf-8")
    assert crowdml.simulate(Task.load(files / "walk.toml", QUICK), engine="numpy").task.crowd.devices == 5


def test_rows_to_test_on_may_have_a_file_of_their_own(files: Path, frame: pd.DataFrame) -> None:
    frame.iloc[:30].drop(columns="phone").to_csv(files / "more.csv", index=False)
    for test, count in (("data.test=more.csv", 30), ("data.test=0.5", 60)):
        task = bind(Task.load(files / "walk.toml", [*QUICK, test]))
        dataset = prepare(task)[1]
        assert len(dataset.test_targets) == count and task.crowd.devices == 7
        assert len(dataset.train_targets) == (120 if count == 30 else 60)


def test_a_file_that_has_changed_is_read_again(files: Path, frame: pd.DataFrame) -> None:
    task = Task.load(files / "walk.toml", QUICK)
    before = bind(task)
    assert bind(task) == before
    frame.iloc[:100].to_csv(files / "rows.csv", index=False)
    assert bind(task).data.dataset != before.data.dataset
    assert len(prepare(bind(task))[1].train_targets) == 80


def test_other_transforms_begin_with_the_rows_as_they_are(files: Path) -> None:
    small, plain = (
        prepare(bind(Task.load(files / "walk.toml", [f"data.transform=[{{ kind = 'scale', by = {by} }}]"])))[1]
        for by in (0.5, 1.0)
    )
    np.testing.assert_array_equal(small.train_rows, plain.train_rows / 2)


def test_rows_handed_over_stay_as_they_are(frame: pd.DataFrame) -> None:
    data = Dataset.from_frame(frame, owner="phone")
    before = data.train_rows.copy()
    run(WALK, data, *QUICK, "data.transform=[{ kind = 'scale', by = 0.5 }]")
    np.testing.assert_array_equal(data.train_rows, before)


TOWARDS: dict[str, tuple[Any, Any, list[Any]]] = {
    "names": (Labels(names=("no", "yes")), ["yes", "no", "yes"] * 4, [1, 0, 1]),
    "names the other way round": (Labels(names=("yes", "no")), ["yes", "no", "yes"] * 4, [0, 1, 0]),
    "numbers": (Labels(names=("no", "yes")), [1, 0, 1] * 4, [1, 0, 1]),
    "whole floats": (Labels(names=("no", "yes")), [1.0, 0.0, 1.0] * 4, [1, 0, 1]),
    "numbers that are names": (Labels(names=("-1", "1")), [1, -1, 1] * 4, [1, 0, 1]),
    "numbers from 1": (Labels(names=("1", "2", "3")), [1, 3, 2] * 4, [0, 2, 1]),
    "some of the numbers": (Labels(names=("1", "2", "3")), [1, 2, 1] * 4, [0, 1, 0]),
    "numbers the other way round": (Labels(names=("1", "0")), [1, 0, 1] * 4, [0, 1, 0]),
    "nullable numbers": (Labels(names=("no", "yes")), pd.array([1, 0, 1] * 4, "Int64"), [1, 0, 1]),
    "nullable fractions": (Number(low=0.0, high=2.0, name="n"), pd.array([0.5, 2.0, 9] * 4), [-0.5, 1, 1]),
    "truth": (Labels(names=("False", "True")), [True, False, True] * 4, [1, 0, 1]),
    "values": (Number(low=0.0, high=2.0, name="n"), [0.5, 2.0, 9.0] * 4, [-0.5, 1.0, 1.0]),
    "whole values": (Number(low=0.0, high=2.0, name="n"), [1, 2, 9] * 4, [0.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("name", TOWARDS)
def test_the_task_says_what_targets_mean(name: str) -> None:
    target, given, expected = TOWARDS[name]
    labels = [f'"{label}"' for label in getattr(target, "names", ())]
    text = WALK.replace('file = "rows.csv"\nowner = "phone"\n', "").replace(
        '["standing", "walking"]', f"[{', '.join(labels)}]"
    )
    if isinstance(target, Number):
        text = text.replace("labels = []", 'target = { name = "n", low = 0.0, high = 2.0 }').replace(
            "logistic", "linear"
        )
    text = text.replace("logistic", "softmax") if len(labels) > 2 else text
    rows = np.arange(24.0).reshape(12, 2)
    dataset = prepare(bind(parse(text), Dataset.from_arrays(rows, given)))[1]
    whole = dict(zip(rows[:, 0].tolist(), expected * 4, strict=True))
    for half, targets in ((dataset.train_rows, dataset.train_targets), (dataset.test_rows, dataset.test_targets)):
        np.testing.assert_allclose(targets, [whole[row] for row in half[:, 0].tolist()], atol=1e-6)


LABELS: dict[str, tuple[tuple[str, str], list[Any]]] = {
    "numbers from 1": (("1", "2"), [1, 2]),
    "the other way round": (("1", "0"), [1, 0]),
    "signs": (("-1", "1"), [-1, 1]),
    "whole floats": (("0", "1"), [0.0, 1.0]),
    "truth": (("False", "True"), [False, True]),
    "words": (("no", "yes"), ["no", "yes"]),
}


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "frame", "arrays"])
@pytest.mark.parametrize("name", LABELS)
def test_labels_are_read_alike_from_everywhere(name: str, kind: str, tmp_path: Path) -> None:
    """A column of numbers in Parquet, a frame or an array means what the same digits mean in CSV."""
    names, given = LABELS[name]
    frame = pd.DataFrame({"x": np.arange(12.0), "label": given * 6})
    data: Any = tmp_path / f"rows.{kind}"
    if kind == "csv":
        frame.astype({"label": int} if name == "whole floats" else {}).to_csv(data, index=False)
    elif kind == "parquet":
        frame.to_parquet(data)
    elif kind == "npz":
        np.savez(data, rows=frame[["x"]].to_numpy(), labels=np.array(given * 6))
    else:
        data = frame if kind == "frame" else (frame[["x"]].to_numpy(), frame.label.to_numpy())
    text = WALK.replace('file = "rows.csv"\nowner = "phone"\n', "").replace('["x", "y"]', '["x"]')
    made = prepare(bind(parse(text.replace('["standing", "walking"]', json.dumps(names))), data))[1]
    assert made.train_targets.tolist() == [int(x) % 2 for x in made.train_rows[:, 0]]


MISTAKES: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "a gap": (lambda f: f.assign(x=f.x.where(f.index != 4)), "row 5, column x: a value is missing"),
    "text": (lambda f: f.assign(x=["far", *map(str, f.x[1:])]), "row 1, column x: 'far' is not a number"),
    "unknown label": (
        lambda f: f.assign(label=["waking", *f.label[1:]]),
        "row 1, column label: 'waking' is not a label",
    ),
    "no owner": (lambda f: f.drop(columns="phone"), 'no column is called "phone"'),
    "an empty owner": (
        lambda f: f.assign(phone=f.phone.where(f.index > 0)),
        "row 1, column phone: the owner is missing",
    ),
    "no label": (lambda f: f.drop(columns="label"), 'no column is called "label"'),
    "another header": (lambda f: f.rename(columns={"x": "z"}), "missing: x\n  unknown: z"),
    "one more column": (lambda f: f.assign(z=1.0), "unknown: z"),
    "an empty label": (
        lambda f: f.assign(label=f.label.where(f.index > 0).astype("string")),
        "row 1, column label: the label is missing",
    ),
    "no rows": (lambda f: f.iloc[:0], "no rows"),
}


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_row_and_column(name: str, kind: str, files: Path, frame: pd.DataFrame) -> None:
    change, message = MISTAKES[name]
    changed = change(frame)
    data: Any = changed
    if kind != "frame":
        data = files / f"changed.{kind}"
        changed.to_csv(data, index=False) if kind == "csv" else changed.to_parquet(data)
    if kind == "csv":  # the header is a line too
        message = message.replace("row 5", "line 6").replace("row 1", "line 2")
    with pytest.raises(BadInput) as error:
        crowdml.simulate(Task.load(files / "walk.toml", QUICK), data=data)
    assert message in str(error.value)


CROWDS = {
    "more devices than owners": ("crowd.devices=9", "9 devices for rows of 7 owners: some would be empty"),
    "fewer": ("crowd.devices=5", "5 devices for rows of 7 owners: some owners would have none"),
    "a partition": ("crowd.partition={ kind = 'iid' }", "iid would deal rows that have owners"),
    "a split": ("data.split={ train = 50, test = 20 }", "rows that have owners are not split anew"),
    "a share too large": ("data.test=0.99", "7 owners must keep one each: 113 are left"),
    "no such file to test on": ("data.test=none.csv", "there is no file"),
    "an ending": ("data.file=walk.toml", "has no known ending"),
    "no such file": ("data.file=none.csv", "there is no file"),
}


@pytest.mark.parametrize("name", CROWDS)
def test_a_crowd_or_a_file_that_does_not_fit(name: str, files: Path) -> None:
    change, message = CROWDS[name]
    path = files / "walk.toml"
    with pytest.raises(BadInput) as error, located(path, [change]):
        crowdml.simulate(Task.load(path, [change]))
    assert message in str(error.value) and f"--set {change.partition('=')[0]}" in str(error.value)


def test_what_fits_is_not_refused(files: Path) -> None:
    task = bind(Task.load(files / "walk.toml", ["crowd.devices=7", "crowd.partition={ kind = 'writer' }"]))
    assert task.crowd.devices == 7


FILE_KEYS = {
    'owner = "phone"\n': (
        'label-column = "y"\n',
        'label-column = "y" is one of the columns: it would be predicted from',
    ),
    'file = "rows.csv"': ('dataset = "digits"\nfile = "rows.csv"', "give dataset or file, not both"),
    'owner = "phone"': ('owner = "x"', 'the owner "x" is learnt from or predicted'),
    'file = "rows.csv"\nowner': ('file = "rows.csv"\ntest = 2.0\nowner', "test = 2 is no share of the rows"),
    'columns = ["x"': ('test = 0.2\nsplit = { train = 5, test = 5 }\ncolumns = ["x"', "give one of them"),
}


@pytest.mark.parametrize("old", FILE_KEYS)
def test_keys_that_do_not_go_together(old: str) -> None:
    new, message = FILE_KEYS[old]
    with pytest.raises(BadInput) as error:
        parse(WALK.replace(old, new))
    assert message in str(error.value)


def test_the_same_file_goes_live(files: Path) -> None:
    with_keys = Task.load(files / "walk.toml", ["data.test=0.3", "data.label-column=kind"])
    text = WALK.replace('file = "rows.csv"\nowner = "phone"\n', "")
    same = parse(text, changes=["data.label-column=kind"])
    assert definition_of(with_keys) == definition_of(same), "where rows come from is not signed"
    assert "label-column" not in definition_of(parse(text)), "nor is what everybody assumes"
    live = open_task(TaskDocument(task="walk", incarnation=1, definition=definition_of(with_keys), arrays=()))
    assert live.task.data.contract == same.data.contract and live.task.data.contract.owner is None


def test_a_device_finds_the_labels_where_the_task_says(tmp_path: Path) -> None:
    contract = parse(WALK, changes=["data.label-column=kind"]).data.contract
    (tmp_path / "mine.csv").write_text("y,kind,x\n2,walking,1\n")
    (tmp_path / "other.csv").write_text("y,label,x\n2,walking,1\n")
    for source in (source_of(tmp_path / "mine.csv", contract), source_of(tmp_path / "other.csv", contract, "label")):
        assert isinstance(source, KeptRows)
        assert source.table().rows.tolist() == [[1.0, 2.0]] and source.table().targets.tolist() == [1]


def test_an_older_text_of_a_number_stays_the_same() -> None:
    target = 'target = { name = "n", low = 0.0, high = 2.0 }'
    text = WALK.replace('labels = ["standing", "walking"]', target).replace("logistic", "linear")
    assert "outside" not in definition_of(parse(text))["data"]["target"]
    refusing = parse(text.replace("high = 2.0", 'high = 2.0, outside = "refuse"'))
    assert definition_of(refusing)["data"]["target"]["outside"] == "refuse"
    with pytest.raises(BadInput, match="row 2: 5 lies beyond the bounds of the target"):
        refusing.data.contract.table([([0, 0], 1.0), ([0, 0], 5.0)], lambda at: f"row {at + 1}")


def test_ids_must_be_one_row_each(files: Path, frame: pd.DataFrame) -> None:
    task = parse(WALK.replace('owner = "phone"', 'id = "phone"'))
    with pytest.raises(BadInput, match="several rows have the id p0"):
        crowdml.simulate(task, data=frame)


def test_a_task_of_owners_refuses_rows_of_nobody(frame: pd.DataFrame) -> None:
    alone = dataclasses.replace(Dataset.from_frame(frame.drop(columns="phone")), name="alone")
    pair = (frame[["x", "y"]].to_numpy(), frame["label"])
    for data in (alone, pair):
        with pytest.raises(BadInput) as error:
            crowdml.simulate(parse(WALK, changes=QUICK), data=data)
        assert 'every "phone" is a device of this task, and these rows do not say whose' in str(error.value)
        assert error.value.where == "data.owner" and "(X, y, owners)" in error.value.hint
        nobodys = parse(WALK.replace('owner = "phone"\n', ""), changes=QUICK)
        assert crowdml.simulate(nobodys, data=data, engine="numpy").task.crowd.devices == 20
    owned = (*pair, frame["phone"])
    assert crowdml.simulate(parse(WALK, changes=QUICK), data=owned, engine="numpy").task.crowd.devices == 7


def test_rows_to_test_on_are_said_once(frame: pd.DataFrame) -> None:
    task = parse(WALK, changes=[*QUICK, "data.test=0.5"])
    with pytest.raises(BadInput, match=r"frame has its rows to test on already, 24 of them\n  .*test=0.5") as error:
        crowdml.simulate(task, data=Dataset.from_frame(frame, owner="phone"))
    assert error.value.where == "data.test"
    halves = (frame[["x", "y"]].to_numpy(), frame["label"], frame["phone"])
    assert len(prepare(bind(task, halves))[1].test_targets) == 60, "arrays have none: the task says how many"


@pytest.mark.parametrize("key", ["owner", "test"])
def test_keys_of_a_file_without_one(key: str) -> None:
    value = {"owner": "phone", "test": 0.5}[key]
    text = WALK.replace('file = "rows.csv"\nowner = "phone"\n', "").replace("[data]", '[data]\ndataset = "digits"')
    with pytest.raises(BadInput, match=f"data.{key} is of rows of your own, and the rows of digits are none"):
        crowdml.simulate(parse(text.replace('columns = ["x", "y"]', "features = 64"), changes=[f"data.{key}={value}"]))


def test_something_else_is_refused() -> None:
    with pytest.raises(BadInput, match="data: int holds no rows"):
        crowdml.simulate(parse(WALK), data=5)
    with pytest.raises(BadInput, match=r"a row of arrays has 3 numbers, and one of the task 2\n  features = 3"):
        crowdml.simulate(parse(WALK.replace('owner = "phone"\n', "")), data=(np.eye(3), [0, 1, 0]))
    stale = parse(WALK).model_copy(
        update={"data": parse(WALK).data.model_copy(update={"dataset": "x@1", "file": None, "owner": None})}
    )
    with pytest.raises(BadInput, match="the rows of x@1 are no longer in memory"):
        crowdml.simulate(stale)
