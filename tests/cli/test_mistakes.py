"""Mistakes of newcomers: exit code 2, no traceback, and a message that says what would be right."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import crowdml
from crowdml.cli import main
from crowdml.cli.app import app
from crowdml.cli.command_groups import MEANT
from crowdml.core import BadInput
from crowdml.models import MODELS
from crowdml.task.task import ALGORITHMS
from crowdml.task.task_errors import WORDS
from crowdml.task.task_file import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"
Run = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder of its own; it must refuse. Return what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "operator.token").write_text("token")

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["crowdml", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        printed, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            with pytest.raises(SystemExit) as ended:
                main()
        assert ended.value.code == 2 and printed.getvalue() == "", errors.getvalue()
        return errors.getvalue()

    return run


CHANGES = {
    "algorithm.rate=0.1": 'rate = { kind = "constant", c = 0.1 }',
    "crowd.partition=dirichlet": 'partition = { kind = "dirichlet", alpha = 0.5 }',
    "crowd.partition=Shards": 'partition = { kind = "shards" }',
    "algorithm=fedavg": 'algorithm = { kind = "fedavg" }',
    'data.transform=["scale"]': '{ kind = "scale", by = 0.0625 }',
    "crowd.delays=5": "its keys are: law, values, request",
    "crowd.rounds=100": "crowd.passes (times the crowd goes through its rows)",
    "algorithm.lr=0.1": "algorithm.rate, a table",
    "lr=0.1": "algorithm.rate, a table",
    "algorithm.learningRate=0.1": "algorithm.rate, a table",
    "client.count=3": "a participant is called device",
    "crowd.num_clients=3": "crowd.devices",
    "privacy.noise_multiplier=1.1": 'did you mean "noise-multiplier"?',
    "privacy.noise-std=1.1": "privacy.noise-scale (paper mode",
    "privacy.sigma=1.1": "privacy.noise-multiplier (noise in steps",
    "privacy.dp-sgd=true": 'privacy.noise-at = "steps"',
    "algorithm.server-lr=1.0": "algorithm.server, a table: server =",
    "algorithm.server-rate=1.0": "algorithm.server, a table: server =",
    "algorithm.local-momentum=0.9": 'rate = { kind = "momentum", c = 0.1 }; algorithm.rate-memory = "keep" or "reset"',
    "algorithm.server-momentum=0.9": 'algorithm.server, a table: server = { kind = "momentum"',
    "algorithm.adaptive-clip=true": 'of kind "dp-fedavg", whose clip follows',
    "algorithm.kind=FedAdagrad": 'server = { kind = "adagrad", c = 0.1 }',
    "algorithm.kind=fedopt": 'kind = "fedavgm", "fedadam" or "fedyogi"',
    "privacy.unit=user": 'unit = "device": all rows of a device together (user-level DP)',
    "privacy.unit=record": 'unit = "sample": one row',
    "algorithm.proximal-mu=0.1": 'algorithm.mu, of kind "fedprox"',
    "algorithm.server_learning_rate=1.0": "algorithm.server, a table: server =",
    "privacy.max-grad-norm=1.0": "privacy.clip",
    "algorithm.epochs=2": "algorithm.epochs (of a round of fedavg)",
    "algorithm.per-round=2": '"algorithm.per-round", of kind fedavg or',
    "crowd.batch=3": 'did you mean "algorithm.batch"?',
    "batch=3": 'did you mean "algorithm.batch"?',
    "algorithm.max_staleness=3": 'did you mean "max-staleness"?',
    "algorithm.kind=FedAvg": 'did you mean "fedavg"?',
    "crowd.devices=many": "number of devices",
    "sums.masked=true": 'did you mean "secure-aggregation"?',
    "secure-aggregation.masked=true": 'did you mean "enabled"?',
    "privacy.secagg=true": "secure-aggregation.enabled = true",
    "crowd.byzantine=3": "crowd.attack",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_key_that_is_wrong_is_answered_with_the_right_one(change: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(EXAMPLE, [change])
    assert CHANGES[change] in str(caught.value)
    assert caught.value.where.startswith(f"--set {change.partition('=')[0]}")


def test_every_key_that_stands_for_a_foreign_word_exists() -> None:
    keys = {
        f"{section}.{field.alias}"
        for section, kinds in (("algorithm", ALGORITHMS), ("model", MODELS))
        for settings in kinds.values()
        for field in settings.model_fields.values()
    }
    for field in crowdml.Task.model_fields.values():
        below = getattr(field.annotation, "model_fields", {})
        keys |= {f"{field.alias}.{inner.alias}" for inner in below.values()}
    named = [key for ours in WORDS.values() for key in re.findall(r"\b[a-z][a-z-]*\.[a-z][a-z-]*", ours)]
    assert len(named) > 20 and set(named) <= keys


def test_a_task_in_python_speaks_like_a_task_file() -> None:
    whole = crowdml.Task.load(EXAMPLE).model_dump(by_alias=True)
    for section, change, told in (
        ("algorithm", {"kind": "crowd-sgd", "rate": 0.1}, "algorithm.rate: should be a table, not 0.1\n  write it as"),
        (
            "algorithm",
            {"kind": "crowd-sgd", "lr": 0.1},
            "algorithm.lr: unknown key\n  in crowdml that is",
        ),
        ("crowd", {"partition": "dirichlet"}, "crowd.partition: should be a table, not 'dirichlet'\n  write it as"),
        ("data", 5, "data: should be a section, not 5\n  its keys are"),
    ):
        with pytest.raises(BadInput) as caught:
            crowdml.Task(**(whole | {section: change}))
        assert told in str(caught.value) and "--set" not in str(caught.value) and "pydantic" not in str(caught.value)
    with pytest.raises(BadInput) as caught:
        crowdml.Task.load(EXAMPLE, ["algorithm.bach=3"])
    assert str(caught.value) == 'changes: algorithm.bach: unknown key\n  did you mean "batch"?'


COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "negative seed": (("simulate", str(EXAMPLE), "--seed", "-5"), ("--seed", "greater than or equal to 0")),
    "seed of an audit": (("audit", str(EXAMPLE), "--seed", "-5"), ("--seed", "greater than or equal to 0")),
    "folder as task": (("simulate", "folder"), ("folder is a folder", "task file")),
    "binary as task": (("simulate", "binary"), ("binary is not a file of text",)),
    "empty task": (("simulate", "empty"), ("begins with crowdml = 1",)),
    "folder as legacy": (("import-legacy", "folder"), ("folder is a folder", "configuration.json")),
    "capitals": (("simulate", str(EXAMPLE), "--set", "data.dataset=MNIST"), ('did you mean "mnist"?',)),
    "too many devices": (
        ("simulate", str(EXAMPLE), "--set", "crowd.devices=9999"),
        ("no device ever fills", "algorithm.batch of at most 1, or fewer crowd.devices"),
    ),
    "client": (("client",), ("did you mean: crowdml device",)),
    "train": (("train", str(EXAMPLE)), ("did you mean: crowdml simulate",)),
    "status": (("status",), ("did you mean: crowdml device status",)),
    "jion": (("device", "jion"), ("did you mean: crowdml device join",)),
    "home is a file": (("serve", "--home", "empty"), ("--home: empty is a file", "give a folder")),
    "home cannot be": (("serve", "--home", "/proc/none"), ("--home: /proc/none cannot be made",)),
    "restore into a file": (("restore", "empty", "--home", "empty"), ("--home: empty is a file",)),
    "backup of nothing": (("backup", "copy"), ("there is no file", "--home FOLDER or --db URL")),
    "not an address": (
        ("task", "list", "--home", ".", "--server", "http://[::1"),
        ("does not answer", "--server"),
    ),
    "no scheme": (
        ("task", "list", "--home", ".", "--server", "localhost:8800"),
        ("is not the address of a server", "https://"),
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_is_answered_with_what_would_be_right(name: str, refused: Run) -> None:
    arguments, told = COMMANDS[name]
    said = refused(*arguments)
    for words in told:
        assert words in said, said


@pytest.mark.parametrize("token", ["schlüssel", "one\ntwo", "Bearer abc", "a\x1bb"])
def test_what_is_no_token_is_called_that(token: str, refused: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDML_OPERATOR_TOKEN", token)
    said = refused("task", "devices", "walk", "--home", ".")
    assert "CROWDML_OPERATOR_TOKEN: this is no token" in said and "operator.token" in said
    monkeypatch.delenv("CROWDML_OPERATOR_TOKEN")
    Path("operator.token").write_text(token)
    assert "operator.token: this is no token" in refused("task", "devices", "walk", "--home", ".")


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words."""
    for name, child in getattr(command, "commands", {}).items():
        yield from leaves(child, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


LEAVES = dict(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_refuses_bad_input_in_words(path: tuple[str, ...], refused: Run) -> None:
    assert "--no-such-option" in refused(*path, "--no-such-option")
    needed = [option for option in LEAVES[path].params if option.param_type_name == "argument" and option.required]
    if needed:
        said = refused(*path, *("no-such-thing" for _ in needed))
        assert said.lstrip().startswith(("error: ", "Usage: ")) and "Traceback" not in said
        assert len(said.splitlines()) > 1, "it says what would be right"


def test_every_command_that_stands_for_another_word_exists() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words, ours in MEANT.items():
        for word in words.split():
            first, _, second = ours.format(word).partition(" ")
            assert first in commands and (not second or second in commands[first].commands), (word, ours)
            assert word not in commands


def test_a_file_with_a_byte_order_mark_is_a_file_of_text(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_bytes(b"\xef\xbb\xbf" + EXAMPLE.read_bytes())
    assert load(tmp_path / "task.toml").name == "digits"


def test_rows_of_the_users_own_that_do_not_fit(refused: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b,label\n1,,3\n")
    small = ("--set", "data.features=2")
    for name, message in (
        ("none.csv", "--data: there is no file"),
        ("operator.token", "--data: "),
        ("folder", "--data: "),
        ("rows.csv", "rows.csv, line 2, column b: a value is missing"),
    ):
        said = refused("simulate", str(EXAMPLE), "--data", name, *small)
        assert message in " ".join(said.split()) and "Traceback" not in said
