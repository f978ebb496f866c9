"""Reading a task file: every class of bad input is answered with line, key and what would be right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core import NUMPY, BadInput, Labels, Number
from crowdml.task import Task, load, parse
from crowdml.task.live_task import definition_of
from crowdml.task.task_file import located

GOOD = """\
crowdml = 1
name = "digits"
objective = "Recognise digits"

[data]
dataset = "digits"
features = 4                  # before transforms
labels = ["a", "b"]
transform = [{ kind = "scale", by = 0.5 }, { kind = "norm", order = 1, at-most = 1.0 }]

[model]
kind = "softmax"
regularisation = 0.1

[algorithm]
kind = "crowd-sgd"
batch = 10
buffer = 40
held-out = 0.1
rate = { kind = "inverse-sqrt", c = 10.0 }
stale = "weight"

[privacy]
mode = "paper"
epsilon = 8.0
statistics-epsilon = 0.5

[stop]
max-versions = 100
error-below = 0.05

[crowd]
devices = 5
passes = 2
partition = { kind = "iid" }
delays = { law = "uniform", check-in = 3.0 }
"""


def refused(source: str, *changes: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse(source, "t.toml", changes)
    return caught.value


def line_of(source: str, text: str) -> int:
    """The number of the only line that contains the text."""
    found = [number for number, line in enumerate(source.split("\n"), start=1) if text in line]
    assert len(found) == 1, f"{text!r} stands in lines {found}"
    return found[0]


def test_a_good_file() -> None:
    task = parse(GOOD)
    assert (task.name, task.objective, task.features) == ("digits", "Recognise digits", 4)
    assert (task.algorithm.batch, task.algorithm.buffer, task.algorithm.held_out) == (10, 40, 0.1)
    assert (task.algorithm.rate.kind, task.algorithm.rate.c) == ("inverse-sqrt", 10.0)
    assert (task.privacy.mode, task.privacy.epsilon, task.privacy.statistics_epsilon) == ("paper", 8.0, 0.5)
    assert (task.stop.error_below, task.crowd.devices, task.crowd.delays.check_in) == (0.05, 5, 3.0)


def test_a_file_on_the_disc(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert load(path) == Task.load(path) == Task.load(str(path)) == parse(GOOD)
    assert Task.load(path, ["algorithm.batch=7"]).algorithm.batch == 7


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        load(tmp_path / "no.toml")
    with pytest.raises(BadInput, match="is a folder"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes('name = "é"'.encode("latin-1"))
    with pytest.raises(BadInput, match="is not a file of text"):
        load(tmp_path / "latin.toml")
    (tmp_path / "empty.toml").write_bytes(b"")
    with pytest.raises(BadInput, match="is missing"):
        load(tmp_path / "empty.toml")


A_NUMBER = 'target = { name = "temperature", low = 5.0, high = 35.0, unit = "°C" }'
REGRESSION = GOOD.replace('labels = ["a", "b"]', A_NUMBER).replace(
    'kind = "softmax"', 'kind = "linear"\nloss = "huber"'
)

# What is replaced, by what; then the key that must be named, a part of the message and a part of the hint. The line
# is that of the replacement.
WRONG: dict[str, tuple[str, str, str, str, str]] = {
    "unknown top key": ("objective =", "objektive =", "objektive", "unknown key", 'did you mean "objective"'),
    "unknown section": ("[crowd]", "[crow]", "crow", "unknown key", 'did you mean "crowd"'),
    "unknown data key": ("features = 4 ", "featurs = 4 ", "data.featurs", "unknown key", 'did you mean "features"'),
    "unknown model key": ("regularisation", "regularization", "model.regularization", "unknown key", "regularisation"),
    "unknown algorithm key": ("buffer = 40", "bufer = 40", "algorithm.bufer", "unknown key", 'did you mean "buffer"'),
    "unknown privacy key": ("epsilon = 8.0", "epsilom = 8.0", "privacy.epsilom", "unknown key", '"epsilon"'),
    "unknown stop key": ("max-versions", "max-version", "stop.max-version", "unknown key", '"max-versions"'),
    "unknown rate key": ("c = 10.0", "cc = 10.0", "algorithm.rate.cc", "unknown key", "c"),
    "unknown delay key": ("check-in = 3.0", "chekin = 3.0", "crowd.delays.chekin", "unknown key", '"check-in"'),
    "unknown transform key": ("by = 0.5", "bye = 0.5", "data.transform[0].bye", "unknown key", "by"),
    "a key like no other": ("batch = 10", "zzzz = 10", "algorithm.zzzz", "unknown key", "choose one of: kind, batch"),
    "unknown model": ('kind = "softmax"', 'kind = "softmaks"', "model.kind", 'unknown kind "softmaks"', '"softmax"'),
    "unknown algorithm": ('"crowd-sgd"', '"crowd-sdg"', "algorithm.kind", 'unknown kind "crowd-sdg"', '"crowd-sgd"'),
    "unknown rate": ('"inverse-sqrt"', '"inverse-root"', "algorithm.rate.kind", "unknown kind", "inverse"),
    "unknown transform": ('"norm"', '"nrom"', "data.transform[1].kind", 'unknown kind "nrom"', '"norm"'),
    "unknown partition": ('"iid"', '"idd"', "crowd.partition.kind", 'unknown kind "idd"', '"iid"'),
    "unknown law": ('"uniform"', '"unifrom"', "crowd.delays.law", "'unifrom' is not possible", '"uniform"'),
    "unknown rule": ('stale = "weight"', 'stale = "wait"', "algorithm.stale", "'wait' is not possible", '"weight"'),
    "unknown mode": ('mode = "paper"', 'mode = "papers"', "privacy.mode", "not possible", '"paper"'),
    "unknown mechanism": (
        "epsilon = 8.0", 'epsilon = 8.0\nmechanism = "laplas"', "privacy.mechanism", 'mechanism "laplas"', '"laplace"'
    ),
    "kind is a number": ('kind = "softmax"', "kind = 3", "model.kind", 'unknown kind "3"', "softmax"),
    "kind is missing": ('kind = "iid"', "", "crowd.partition", '"kind" is missing', "iid"),
    "a rate without c": (', c = 10.0', "", "algorithm.rate", '"c" is missing', ""),
    "text for a number": ("batch = 10", 'batch = "10"', "algorithm.batch", "valid integer, not '10'", ""),
    "fraction for a count": ("batch = 10", "batch = 10.5", "algorithm.batch", "valid integer, not 10.5", ""),
    "truth for a count": ("batch = 10", "batch = true", "algorithm.batch", "valid integer, not True", ""),
    "number for text": ('"Recognise digits"', "5", "objective", "valid string, not 5", ""),
    "list for a section": ("[stop]\n", "[[stop]]\n", "stop", "should be a section", ""),
    "number for a list": ('labels = ["a", "b"]', "labels = 2", "data.labels", "valid list, not 2", ""),
    "number among labels": ('labels = ["a", "b"]', 'labels = ["a", 2]', "data.labels[1]", "valid string, not 2", ""),
    "text for a rate": ('{ kind = "inverse-sqrt", c = 10.0 }', '"fast"', "algorithm.rate", "not 'fast'", ""),
    "negative batch": ("batch = 10", "batch = -10", "algorithm.batch", "greater than 0, not -10", ""),
    "no batch": ("batch = 10", "batch = 0", "algorithm.batch", "greater than 0, not 0", ""),
    "negative rate": ("c = 10.0", "c = -1.0", "algorithm.rate.c", "greater than 0, not -1.0", ""),
    "rate nan": ("c = 10.0", "c = nan", "algorithm.rate.c", "finite number, not nan", ""),
    "rate endless": ("c = 10.0", "c = inf", "algorithm.rate.c", "finite number, not inf", ""),
    "factor nan": ("by = 0.5", "by = nan", "data.transform[0].by", "finite number, not nan", ""),
    "negative regularisation": ("= 0.1\n\n[alg", "= -0.1\n\n[alg", "model.regularisation", "or equal to 0", ""),
    "regularisation nan": ("= 0.1\n\n[alg", "= nan\n\n[alg", "model.regularisation", "finite number", ""),
    "epsilon negative": ("epsilon = 8.0", "epsilon = -8.0", "privacy.epsilon", "greater than 0", ""),
    "epsilon nan": ("epsilon = 8.0", "epsilon = nan", "privacy.epsilon", "finite number", ""),
    "epsilon endless": ("epsilon = 8.0", "epsilon = inf", "privacy.epsilon", "finite number", ""),
    "delta one": ("epsilon = 8.0", "epsilon = 8.0\ndelta = 1.0", "privacy.delta", "less than 1", ""),
    "zero devices": ("devices = 5", "devices = 0", "crowd.devices", "greater than 0, not 0", ""),
    "negative devices": ("devices = 5", "devices = -5", "crowd.devices", "greater than 0", ""),
    "zero passes": ("passes = 2", "passes = 0", "crowd.passes", "greater than 0", ""),
    "negative delay": ("check-in = 3.0", "check-in = -3.0", "crowd.delays.check-in", "greater than or equal to 0", ""),
    "all rows held out": ("held-out = 0.1", "held-out = 1.0", "algorithm.held-out", "less than 1", ""),
    "no features": ("features = 4 ", "features = 0 ", "data.features", "greater than 0", ""),
    "one label": ('labels = ["a", "b"]', 'labels = ["a"]', "data.labels", "at least 2", ""),
    "a label twice": ('labels = ["a", "b"]', 'labels = ["a", "a"]', "data.labels", "a stands twice", ""),
    "another format": ("crowdml = 1", "crowdml = 2", "crowdml", "2 is not possible", "1"),
    "truth for the format": ("crowdml = 1", "crowdml = true", "crowdml", "True", "1"),
    "a bad name": ('name = "digits"', 'name = "My Digits"', "name", "My Digits", ""),
    "error-below two": ("error-below = 0.05", "error-below = 2.0", "stop.error-below", "less than 1", ""),
    "statistics too dear": ("epsilon = 0.5", "epsilon = 9.0", "privacy.statistics-epsilon", "leaves", "smaller"),
    "gaussian without delta": (
        "epsilon = 8.0", 'epsilon = 8.0\nmechanism = "gaussian"', "privacy.delta", "delta above zero", "1e-5"
    ),
    "nothing to bound": ('"norm", order = 1, at-most = 1.0', '"scale", by = 2.0', "privacy.clip", "nothing", "clip"),
    "underscores": ("held-out = 0.1", "held_out = 0.1", "algorithm.held_out", "unknown key", '"held-out"'),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WRONG))
def test_bad_input_is_answered_with_key_fault_and_remedy(name: str) -> None:
    old, new, key, what, hint = WRONG[name]
    assert GOOD.count(old) == 1
    error = refused(GOOD.replace(old, new))
    assert error.where.endswith(f", {key}"), str(error)
    assert error.where.startswith("t.toml, ")
    assert what in error.what
    assert hint in error.hint


# Those whose key stands in no line by itself are looked for in the nearest section around it.
ELSEWHERE = {"gaussian without delta": "[privacy]", "nothing to bound": "[privacy]", "list for a section": "[[stop]]"}


@pytest.mark.parametrize("name", list(WRONG))
def test_bad_input_is_answered_with_the_line(name: str) -> None:
    old, new, _, _, _ = WRONG[name]
    source = GOOD.replace(old, new)
    if name in ELSEWHERE:
        expected = line_of(source, ELSEWHERE[name])
    else:
        # The last line of what was replaced, or the place itself where something was taken away.
        before = source[: GOOD.index(old)]
        expected = before.count("\n") + 1 + new.partition("\n\n")[0].rstrip("\n").count("\n")
    assert f", line {expected}," in refused(source).where


@pytest.mark.parametrize("section", ["data", "model", "algorithm", "privacy"])
def test_a_missing_section_is_named(section: str) -> None:
    source = re.sub(rf"\[{section}\]\n(.+\n)+", "", GOOD)
    assert refused(source).what == f'the key "{section}" is missing'
    assert refused(source).where == "t.toml"


@pytest.mark.parametrize("section", ["stop", "crowd"])
def test_a_section_with_defaults_may_be_left_out(section: str) -> None:
    parse(re.sub(rf"\[{section}\]\n(.+\n)+", "", GOOD))


@pytest.mark.parametrize("key", ["crowdml", "name"])
def test_a_missing_key_is_named(key: str) -> None:
    error = refused(re.sub(rf"(?m)^{key} = .*\n", "", GOOD))
    assert (error.what, error.where) == (f'the key "{key}" is missing', "t.toml")


def test_a_missing_key_is_named_with_the_line_of_its_section() -> None:
    source = re.sub(r"(?m)^labels = .*$", "target = { name = 'age', low = 0.0 }", GOOD)
    error = refused(source)
    assert error.what == 'the key "high" is missing'
    assert error.where == f"t.toml, line {line_of(source, 'target')}, data.target"


def test_a_task_predicts_labels_or_a_number_and_never_both() -> None:
    neither = refused(re.sub(r"(?m)^labels = .*\n", "", GOOD))
    assert neither.what.startswith('say what is predicted: labels = ["no", "yes"], or for a number target = {')
    assert neither.where.endswith(", data")
    both = refused(GOOD.replace('labels = ["a", "b"]', 'labels = ["a", "b"]\n' + A_NUMBER))
    assert both.what == "a task predicts labels or a number: give labels or target, not both"


def test_a_number_is_a_target_with_a_name_and_two_bounds() -> None:
    task = parse(REGRESSION)
    assert task.target == Number(low=5.0, high=35.0, name="temperature", unit="°C")
    assert task.data.labels == [] and task.model_for(NUMPY).loss.target == task.target
    assert parse(GOOD).target == Labels(names=("a", "b")) and parse(GOOD).data.target is None


@pytest.mark.parametrize(
    ("changed", "key", "what", "hint"),
    [
        ("low = 35.0, high = 5.0", "data.target", "low = 35 is not below high = 5: nothing lies between them", ""),
        ("low = 1e6, high = 1000001.0", "data.target", "too close to be told apart", ""),
        ("low = nan, high = 35.0", "data.target.low", "finite number, not nan", "smallest value"),
        ("low = 5.0, high = 1e40", "data.target.high", "less than or equal to", "largest value"),
        ("low = 5.0", "data.target", 'the key "high" is missing', "largest value"),
        ("low = 5.0, high = 35.0, bins = 1", "data.target.bins", "greater than or equal to 2", "bins"),
        ("low = 5.0, high = 35.0, hihg = 3", "data.target.hihg", "unknown key", 'did you mean "high"?'),
        ("low = 5.0, high = 35.0, unit = 3", "data.target.unit", "valid string, not 3", "the unit"),
    ],
)
def test_what_is_wrong_with_a_number_is_said_at_its_line(changed: str, key: str, what: str, hint: str) -> None:
    source = REGRESSION.replace('low = 5.0, high = 35.0, unit = "°C"', changed)
    error = refused(source)
    assert what in error.what and hint in error.hint
    assert error.where == f"t.toml, line {line_of(source, 'target =')}, {key}"


def test_a_number_is_not_predicted_from_itself() -> None:
    named = REGRESSION.replace("features = 4", 'columns = ["a", "b", "c", "temperature"]')
    assert 'the target "temperature" is one of the columns' in refused(named).what
    identified = REGRESSION.replace("features = 4", 'id = "temperature"\nfeatures = 4')
    assert 'the id and the target cannot both be "temperature"' in refused(identified).what


def test_models_and_targets_must_fit() -> None:
    error = refused(GOOD.replace('kind = "softmax"', 'kind = "linear"'))
    assert "predicts a number, and the task has 2 labels" in error.what
    error = refused(REGRESSION.replace('kind = "linear"\nloss = "huber"', 'kind = "softmax"'))
    assert "the target of the task is a number" in error.what and 'kind = "linear"' in error.hint


def test_a_misspelling_is_answered_before_what_is_missing_because_of_it() -> None:
    assert refused(GOOD.replace("features =", "fetures =")).what == "unknown key"


def test_a_batch_that_does_not_fit_the_buffer() -> None:
    error = refused(GOOD.replace("batch = 10", "batch = 41"))
    assert error.what == "batch = 41 does not fit into buffer = 40"
    assert error.where == f"t.toml, line {line_of(GOOD, '[algorithm]')}, algorithm"
    parse(GOOD.replace("batch = 10", "batch = 40"))


def test_a_two_class_model_with_three_labels() -> None:
    source = GOOD.replace('"softmax"', '"logistic"').replace('["a", "b"]', '["a", "b", "c"]')
    error = refused(source)
    assert error.where == f"t.toml, line {line_of(source, 'logistic')}, model.kind"
    assert "separates two labels, the task has 3" in error.what


def test_stopping_by_an_error_that_nobody_counts() -> None:
    for old, new in (("statistics-epsilon = 0.5\n", ""), ("batch = 10", "batch = 10\nstatistics = false")):
        error = refused(GOOD.replace(old, new))
        assert error.where.endswith(", stop.error-below") and "line" in error.where
        assert "statistics" in error.hint


@pytest.mark.parametrize(
    "source",
    [
        "crowdml 1",
        "crowdml = ",
        "[data\nx = 1",
        "a = 1\na = 2",
        '"open',
        "a = {b = 1\n}",
        "\x00",
        "a = 1979-99-99",
        "\ufeffa = 1",
    ],
)
def test_what_is_not_toml_is_said_so(source: str) -> None:
    error = refused(source)
    assert error.what.startswith("not valid TOML: ")
    assert error.where == "t.toml"


@pytest.mark.parametrize(
    "value", ["1" * 5000, "[" * 3000 + "]" * 3000, "0x" + "f" * 400, "1" * 400], ids=["digits", "deep", "hex", "wide"]
)
def test_absurd_values_are_bad_input_and_no_crash(value: str) -> None:
    refused(GOOD.replace("features = 4 ", f"features = {value} "))


@pytest.mark.parametrize("value", ["1979-05-27", "07:32:00", "{}", "[[]]", "''", "-0.0", "1e400", "[nan]"])
@pytest.mark.parametrize("key", ["features = 4 ", "batch = 10", "c = 10.0", 'kind = "softmax"', "devices = 5"])
def test_values_of_any_other_type_are_bad_input(key: str, value: str) -> None:
    refused(GOOD.replace(key, f"{key.partition('=')[0]}= {value} "))


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([line for line in GOOD.split("\n") if "=" in line]),
    st.one_of(
        st.integers(-3, 3).map(str),
        st.floats().map(repr),
        st.sampled_from(['""', "true", "[]", "{}", '["x"]', "{ kind = 1 }"]),
    ),
)
def test_whatever_value_a_key_has_the_answer_is_a_task_or_bad_input(line: str, value: str) -> None:
    try:
        parse(GOOD.replace(line, f"{line.partition('=')[0]}= {value}"), "t.toml")
    except BadInput as error:
        assert error.what and "\n" not in error.what


# ---- changes on top of the file


def test_changes_are_applied_in_order_and_read_as_toml() -> None:
    task = parse(
        GOOD,
        changes=[
            "algorithm.batch=3", "algorithm.batch=4", "name=other", 'objective="with = sign"', "stop.max-releases=9",
            "data.labels=['x', 'y', 'z']", "algorithm.rate={ kind = 'constant', c = 2 }", "algorithm.rate.c=1e-1",
            "model.kind=svm", "model.kind=softmax", "algorithm.statistics=true", "crowd.delays.law=fixed",
        ],
    )  # fmt: skip
    assert (task.algorithm.batch, task.name, task.objective) == (4, "other", "with = sign")
    assert task.data.labels == ["x", "y", "z"]
    assert (task.algorithm.rate.kind, task.algorithm.rate.c) == ("constant", 0.1)
    assert (task.stop.max_releases, task.crowd.delays.law) == (9, "fixed")


def test_a_change_may_begin_a_section() -> None:
    source = re.sub(r"\[crowd\]\n(.+\n)+", "", GOOD)
    assert parse(source, changes=["crowd.devices=3"]).crowd.devices == 3


def test_changes_leave_the_file_alone() -> None:
    parse(GOOD, changes=["algorithm.batch=3"])
    assert parse(GOOD).algorithm.batch == 10


@pytest.mark.parametrize("change", ["algorithm.batch", "=3", "", ".=1", "a..b=1", ".algorithm=1", "algorithm.=1"])
def test_what_is_not_a_change(change: str) -> None:
    error = refused(GOOD, change)
    assert error.where == "--set"
    assert error.what == f'"{change}" is not a change'
    assert "section.key=value" in error.hint


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        ("algorithm.batch=0", "--set algorithm.batch", "greater than 0"),
        ("algorithm.batch=ten", "--set algorithm.batch", "not 'ten'"),
        ("algorithm.bach=3", "--set algorithm.bach", "unknown key"),
        ("algorithm.rate.c=nan", "--set algorithm.rate.c", "finite"),
        ("algorithm.rate={kind='inverse', c=-1}", "--set algorithm.rate.c", "greater than 0"),
        ("model.kind=softmaks", "--set model.kind", "unknown kind"),
        ("name=", "--set name", "not ''"),
        ("algorithm=3", "--set algorithm", "not 3"),
        ("crowd.delays.law=slow", "--set crowd.delays.law", "not possible"),
        ("data.labels=[]", "--set data.labels", "at least 2"),
    ],
)
def test_a_bad_change_is_named_as_such(change: str, where: str, what: str) -> None:
    error = refused(GOOD, change)
    assert error.where == where
    assert what in error.what


def test_a_change_below_what_is_no_section() -> None:
    error = refused(GOOD, "algorithm.batch.size=3")
    assert error.where.startswith("--set algorithm.batch")
    assert error.what == "batch is not a section"


@pytest.mark.parametrize("change", ["cro.devices=3", "algorithm.rat.c=1"])
def test_a_section_that_only_a_change_made_is_not_looked_for_in_the_file(change: str) -> None:
    error = refused(GOOD, change)
    assert error.where.startswith("--set ")
    assert error.what == "unknown key"


def test_spaces_around_the_sign_of_a_change_do_not_matter() -> None:
    assert parse(GOOD, changes=["algorithm.batch = 3", "name = other"]).name == "other"


def test_a_change_is_one_value() -> None:
    refused(GOOD, "algorithm.batch=3\nbuffer = 50")


def test_faults_beside_a_change_keep_their_line() -> None:
    error = refused(GOOD.replace("devices = 5", "devices = 0"), "algorithm.batch=3")
    assert error.where == f"t.toml, line {line_of(GOOD, 'devices')}, crowd.devices"


# ---- faults that come to light after reading


def test_later_faults_get_file_and_line_too(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(GOOD)
    with pytest.raises(BadInput) as caught, located(path, ["crowd.devices=7"]):
        raise BadInput("too many", where="crowd.passes", hint="fewer")
    assert caught.value.where == f"{path}, line {line_of(GOOD, 'passes')}, crowd.passes"
    assert (caught.value.what, caught.value.hint) == ("too many", "fewer")
    with pytest.raises(BadInput) as caught, located(path, ["crowd.devices=7"]):
        raise BadInput("too many", where="crowd.devices")
    assert caught.value.where == "--set crowd.devices"
    with pytest.raises(BadInput) as caught, located(path):
        raise BadInput("no such file", where="/data/Digits.npz")
    assert caught.value.where == "/data/Digits.npz"


@pytest.mark.parametrize(
    ("changed", "hint"),
    [
        ('sensor = { kind = "activity" }', "makes rows of 64 numbers and asks for a label: give features = 64"),
        ('sensor = { kind = "acceleration" }', "choose one of: activity, draw-a-digit"),
        ('sensor = { kind = "activity", slot-s = 1.0 }', "3.2"),
    ],
)
def test_a_sensor_must_make_rows_of_the_task(changed: str, hint: str) -> None:
    with pytest.raises(BadInput, match=re.escape(hint)):
        parse(GOOD.replace("features = 4 ", f"{changed}\nfeatures = 4 "))


def test_a_sensor_is_signed_and_its_absence_leaves_no_trace() -> None:
    sensed = parse(GOOD.replace("features = 4 ", 'sensor = { kind = "activity" }\nfeatures = 64 '))
    assert definition_of(sensed)["data"]["sensor"] == {"kind": "activity", "keep": "slots", "slot-s": 3.2}
    assert "sensor" not in definition_of(parse(GOOD))["data"]
