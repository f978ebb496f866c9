"""Trackers write to real stores: each test reads the store back with the library's own reader."""

from __future__ import annotations

import builtins
import os
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.simulation import Result, simulate
from crowdml.studies.tracking import curves_of, open_tracker, settings_of
from crowdml.task import Task

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"


@pytest.fixture(scope="module")
def result() -> Result:
    noise = "privacy={ mode = 'paper', mechanism = 'gaussian', clip = 0.5, epsilon = 2.0, delta = 1e-6 }"
    changes = [noise, "crowd.passes=2", "crowd.curve=3", "crowd.measure=['loss', 'devices']"]
    return simulate(Task.load(EXAMPLE, changes), trials=2, engine="numpy")


@pytest.mark.filterwarnings("ignore")  # of what lies below MLflow
def test_mlflow_has_the_run(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    pytest.importorskip("mlflow")
    tracker = open_tracker("mlflow", None, "digits")
    tracker.write("a cell", result)
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "a cell" and run.info.status == "FINISHED"
    assert run.data.params["algorithm.kind"] == "crowd-sgd" and run.data.params["trials"] == "2"
    curve = {point.step: point.value for point in client.get_metric_history(run.info.run_id, "test_error")}
    assert curve == pytest.approx(dict(curves_of(result)["test_error"]))
    assert {"test_loss", "epsilon", "bytes_up", "device_error_worst_tenth"} <= set(run.data.metrics)
    assert '"mode": "paper"' in run.data.tags["crowdml.privacy"]
    with pytest.raises(BadInput, match=r"--track-to: .*cannot be used"):
        open_tracker("mlflow", "nothing://here", "digits")
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(
        BadInput, match=r'the experiment "digits" of .* was deleted, and takes no runs\n  mlflow .*restore'
    ):
        open_tracker("mlflow", None, "digits")


def test_tensorboard_has_the_events(result: Result, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    tracker = open_tracker("tensorboard", str(tmp_path / "runs"), "digits")
    for _ in range(2):
        tracker.write("fedavg, ε = 1", result)
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert folders == ["digits-fedavg-=-1", "digits-fedavg-=-1-2"]
    (file,) = (tmp_path / "runs" / folders[0]).iterdir()
    curves: dict[str, list[tuple[int, float]]] = {}
    for event in _events(file):
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    wanted = curves_of(result)
    assert set(curves) == set(wanted)
    for name, pairs in wanted.items():
        assert dict(curves[name]) == pytest.approx(dict(pairs), rel=1e-5), name


def _events(file: Path) -> Iterator[Any]:
    """Read a file of TFRecords: length, checksum, content, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    content = file.read_bytes()
    while content:
        (size,) = struct.unpack("<Q", content[:8])
        yield Event.FromString(content[12 : 12 + size])
        content = content[16 + size :]


def test_settings_are_text_by_key(result: Result) -> None:
    found = settings_of(result.task)
    assert found["algorithm.rate.c"] == "30.0" and found["name"] == "digits" and "data.id" not in found
    assert all(isinstance(value, str) for value in found.values())


def test_what_cannot_be_tracked_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match='did you mean "mlflow"'):
        open_tracker("mlfow", None, "digits")
    (tmp_path / "file").write_text("")
    pytest.importorskip("tensorboardX")
    with pytest.raises(BadInput, match=r"--track-to: .*file is a file"):
        open_tracker("tensorboard", str(tmp_path / "file"), "digits")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(BadInput, match="cannot be written"):
            open_tracker("tensorboard", str(tmp_path / "closed"), "digits")
    original = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] in ("mlflow", "tensorboardX"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    for kind in ("mlflow", "tensorboard"):
        with warnings.catch_warnings(), pytest.raises(BadInput, match=r"is not installed\n.*\[track\]"):
            open_tracker(kind, str(tmp_path / "other"), "digits")
