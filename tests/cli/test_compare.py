"""crowdml compare and simulate --sweep as a user types them: files, lines of progress, and what is refused first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import crowdml
from crowdml.cli import output

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "digits.toml")
SHORT = ("--set", "crowd.passes=1", "--set", "crowd.curve=3", "--trials", "2")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDML_ENGINE", "numpy")


def test_a_comparison_is_printed_drawn_and_written(run: Run, tmp_path: Path) -> None:
    code, printed, told = run(
        *("compare", EXAMPLE, "--vary", "algorithm=crowd-sgd,fedavg", *SHORT, "--measure", "loss,devices"),
        *("--plot", "a.png", "--csv", "a.csv", "--json", "a.json", "--track", "tensorboard", "--against", "bytes_up"),
    )
    assert code == 0, told
    assert "note: fedavg has no batch: left out" in told and "100%  fedavg: error 0." in told
    assert "test accuracy" in printed and "worst" in printed and "tenth" in printed and "crowd-sgd" in printed
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    frame, content = pd.read_csv(tmp_path / "a.csv"), json.loads((tmp_path / "a.json").read_text())
    assert set(frame["algorithm"]) == {"crowd-sgd", "fedavg"} and len(content["cells"]) == 2
    last = frame[frame["cell"] == "fedavg"].groupby("trial").last()["test_error"].mean()
    assert content["cells"][1]["result"]["final"]["test_error"]["mean"] == pytest.approx(last, abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["digits-crowd-sgd", "digits-fedavg"]


def test_two_files_and_a_sweep(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(Path(EXAMPLE).read_text().replace('"digits"\nobj', '"other"\nobj'))
    code, printed, _ = run("compare", EXAMPLE, "other.toml", *SHORT)
    assert code == 0 and " digits " in printed and " other " in printed
    code, printed, _ = run("simulate", EXAMPLE, "--sweep", "algorithm.batch=10,35", *SHORT, "--json", "-")
    assert code == 0
    labels = [cell["label"] for cell in json.loads(printed)["cells"]]
    assert labels == ["batch = 10", "batch = 35"]


def test_a_result_can_be_kept_and_its_model_exported(run: Run, tmp_path: Path) -> None:
    code, _, told = run("simulate", EXAMPLE, *SHORT, "--save", "kept", "--export", "model.safetensors")
    assert code == 0 and "kept: kept" in told and "model: model.safetensors" in told
    result = crowdml.Result.load(tmp_path / "kept")
    assert len(result.model.predict(np.zeros((3, 64)))) == 3


REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown key": (("compare", EXAMPLE, "--vary", "algorithm.bach=1,2"), ("--vary algorithm.bach", '"batch"')),
    "unknown key of a sweep": (("simulate", EXAMPLE, "--sweep", "algorithm.bach=1"), ("--sweep algorithm.bach",)),
    "no values": (("compare", EXAMPLE, "--vary", "algorithm="), ("there is no value to try",)),
    "unknown kind": (("compare", EXAMPLE, "--vary", "algorithm=fedavgg"), ('did you mean "fedavg"?',)),
    "nothing to compare": (("compare", EXAMPLE), ("nothing to be compared with", "--vary algorithm.kind=")),
    "unknown ending": (("compare", EXAMPLE, EXAMPLE, "--plot", "a.bmpx"), ("no known ending for a figure", ".png")),
    "no folder for a table": (
        ("compare", EXAMPLE, EXAMPLE, "--csv", "none/a.csv"),
        ("the folder none does not exist",),
    ),
    "no folder for a result": (("simulate", EXAMPLE, "--save", "none/a"), ("the folder none does not exist",)),
    "unknown model": (("simulate", EXAMPLE, "--export", "a.pkl"), ("no known ending for a model", ".onnx")),
    "unknown axis": (("compare", EXAMPLE, EXAMPLE, "--against", "sample"), ("--against", 'did you mean "samples"?')),
    "no epsilon": (
        ("compare", EXAMPLE, EXAMPLE, "--against", "epsilon", "--plot", "a.png"),
        ("--against: no ε is known", "draw against samples"),
    ),
    "a place that takes nothing": (("compare", EXAMPLE, EXAMPLE, "--csv", "/proc/a.csv"), ("cannot be written",)),
    "no cell fits": (("compare", EXAMPLE, "--vary", "algorithm.batch=71,72"), ("no device ever fills a batch of 7",)),
    "unknown tracker": (("simulate", EXAMPLE, "--track", "wandb"), ("--track", "mlflow, tensorboard")),
    "place of no tracker": (("simulate", EXAMPLE, "--track-to", "runs"), ("nothing is tracked",)),
    "unknown measure": (("simulate", EXAMPLE, "--measure", "los"), ("--measure", 'did you mean "loss"?')),
    "steps of a sweep": (
        ("simulate", EXAMPLE, "--sweep", "algorithm.batch=1", "--debug"),
        ("--debug: a sweep has many results",),
    ),
    "two sorts of rows": (
        ("compare", EXAMPLE, "--vary", "data.dataset=digits,diabetes", "--data", "rows.csv"),
        ("--vary data.dataset", "handed over for all cells"),
    ),
    "no such rows": (("compare", EXAMPLE, "--vary", "algorithm.batch=5,10", "--data", "none.csv"), ("none.csv",)),
    "rounds of nobody": (("simulate", EXAMPLE, "--set", "crowd.rounds=5"), ("crowd-sgd has no rounds", "crowd.passes")),
    "no such task": (("compare", "none.toml", EXAMPLE), ("there is no file none.toml",)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_before_anything_runs(run: Run, name: str, tmp_path: Path) -> None:
    arguments, parts = REFUSED[name]
    code, printed, told = run(*arguments)
    assert code == 2 and printed == "" and "Traceback" not in told
    assert all(part in told for part in parts), told
    assert not any(path.name != "cache" for path in tmp_path.iterdir())


def test_a_tracker_that_fails_takes_nothing_away(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdml.studies.tracking import TensorBoard

    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(TensorBoard, "write", fails)
    code, printed, told = run("simulate", EXAMPLE, *SHORT, "--json", "a.json", "--track", "tensorboard")
    assert code == 2 and "test accuracy" in printed and (tmp_path / "a.json").exists()
    assert "runs did not take digits: the disk is full" in told


def test_a_cell_that_does_not_fit_takes_nothing_away(run: Run, tmp_path: Path) -> None:
    short = ("--set", "crowd.passes=1", "--trials", "1", "--csv", "a.csv")
    code, printed, told = run("compare", EXAMPLE, "--vary", "algorithm.batch=71,20", *short)
    assert code == 2 and "batch = 20" in printed and "Traceback" not in told
    assert "error: algorithm.batch (for batch = 71): no device ever fills" in told
    assert "batch = 20" in (tmp_path / "a.csv").read_text()


def test_cells_that_learn_the_same_are_named(run: Run) -> None:
    short = ("--set", "crowd.passes=1", "--trials", "1")
    code, printed, _ = run("compare", EXAMPLE, "--vary", "privacy.epsilon=1,2", *short)
    assert code == 0 and "epsilon = 2 has learnt the same as epsilon = 1" in " ".join(printed.split())
    code, printed, _ = run("compare", EXAMPLE, "--vary", "algorithm.batch=10,20", *short)
    assert code == 0 and "learnt the same" not in printed


def test_own_rows_and_an_interruption(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = load_digits(return_X_y=True)
    table = pd.DataFrame(rows[:600], columns=[f"p{at}" for at in range(64)])
    table.assign(label=labels[:600].astype(str)).to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.setenv("CROWDML_ENGINE", "compiled")
    words = ("simulate", EXAMPLE, "--sweep", "algorithm.batch=5,10", "--data", "rows.csv", *SHORT)
    code, _, told = run(*words, "--json", "whole.json")
    assert code == 0, told
    assert not list((tmp_path / "cache" / "crowdml" / "runs").glob("*.safetensors")), "nothing is left behind"
    named = output.Progress.named

    def interrupt(self: output.Progress, name: str, share: float, error: float) -> None:
        if name == "batch = 10":
            raise KeyboardInterrupt
        named(self, name, share, error)

    monkeypatch.setattr(output.Progress, "named", interrupt)
    code, _, told = run(*words, "--json", "none.json")
    assert code == 130 and "--resume keeps what is finished" in told
    seen: list[str] = []

    def watch(self: output.Progress, name: str, share: float, error: float) -> None:
        seen.append(name)

    monkeypatch.setattr(output.Progress, "named", watch)
    code, _, told = run(*words, "--resume", "--json", "resumed.json")
    assert code == 0 and set(seen) == {"batch = 10"}, "a finished cell was run again"
    whole, resumed = (json.loads((tmp_path / name).read_text())["cells"] for name in ("whole.json", "resumed.json"))
    for one, other in zip(whole, resumed, strict=True):
        assert one["result"]["curve"] == other["result"]["curve"]
    assert not list((tmp_path / "cache" / "crowdml" / "runs").glob("*.safetensors"))
