"""Tracking: results written where people keep their experiments, in MLflow or for TensorBoard.

Each result is one run of the tracker: the task's settings as its parameters, and every measurement as a curve over the
samples used, as means over trials. What a tracker cannot do is said before anything is simulated.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from crowdml.core import BadInput
from crowdml.core.errors import install
from crowdml.core.files import make_folder
from crowdml.core.registry import nearest
from crowdml.simulation.result import Result
from crowdml.task import Task

MLFLOW_STORE = "sqlite:///mlflow.db"
"""Where MLflow keeps runs if nobody says anything; it is MLflow's own choice, too."""

TENSORBOARD_FOLDER = "runs"
USED = ("versions", "time", "seconds", "bytes_up", "bytes_down", "epsilon")
MOST_CHARACTERS = 500
"""Of a parameter: MLflow takes no more everywhere."""


class Tracker(Protocol):
    """Writes results into a store."""

    place: str
    """Where that is, for people."""

    def write(self, label: str, result: Result) -> None:
        """Write a result as a run that is called so."""


def open_tracker(kind: str, to: str | None, experiment: str) -> Tracker:
    """Open a store, or say why that cannot be, before anything is simulated.

    Args:
        kind: `mlflow` or `tensorboard`.
        to: MLflow's tracking URI, or TensorBoard's folder; None: what `MLFLOW_TRACKING_URI` says, `sqlite:///mlflow.db`,
            or the folder `runs`.
        experiment: What runs belong to: the name of the task.
    """
    if kind not in TRACKERS:
        raise BadInput(f'"{kind}" is no tracker', where="--track", hint=nearest(kind, TRACKERS))
    try:
        return TRACKERS[kind](to, experiment)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mlflow", "tensorboardX", "sqlalchemy", "alembic"):
            raise
        raise BadInput(f"{error.name} is not installed", where="--track", hint=install("track")) from None


def curves_of(result: Result) -> dict[str, list[tuple[int, float]]]:
    """Return every curve as (samples, mean over trials), without what is no number."""
    columns = {name: values.mean(axis=1) for name, values in result.measured.items()}
    columns |= {name: result.along(name) for name in USED}
    found = {}
    for name, values in columns.items():
        pairs = zip(result.samples.tolist(), values.tolist(), strict=True)
        found[name] = [(round(samples), value) for samples, value in pairs if value == value]
    if result.device_errors is not None:
        devices = result.to_json()["devices"]
        end = round(float(result.samples[-1]))
        found |= {f"device_error_{name}": [(end, pair["mean"])] for name, pair in devices.items()}
    return {name: pairs for name, pairs in found.items() if pairs}


def settings_of(task: Task) -> dict[str, str]:
    """Return the keys of a task that are set, and their values, as text."""
    found: dict[str, str] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for name, each in value.items():
                walk(f"{prefix}.{name}" if prefix else str(name), each)
        elif value not in (None, [], {}):
            found[prefix] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    walk("", task.model_dump(mode="json", by_alias=True, exclude_none=True))
    return found


class MLflow:
    """Runs in an MLflow store."""

    def __init__(self, to: str | None, experiment: str) -> None:
        # Its messages about tables it has made are not ours to show.
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        logging.getLogger("alembic").setLevel(logging.ERROR)
        self.place = to or os.environ.get("MLFLOW_TRACKING_URI") or MLFLOW_STORE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries below it, which nobody here can heed
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException

            try:
                self._client = MlflowClient(tracking_uri=self.place)
                known = self._client.get_experiment_by_name(experiment)
                self._experiment = known.experiment_id if known else self._client.create_experiment(experiment)
            except MlflowException as error:
                why = str(error).strip().partition("\n")[0].partition(". ")[0]
                hint = "such as sqlite:///mlflow.db, or the address of a tracking server"
                raise BadInput(f"{self.place} cannot be used: {why}", where="--track-to", hint=hint) from None
        if known and known.lifecycle_stage != "active":
            raise BadInput(
                f'the experiment "{experiment}" of {self.place} was deleted, and takes no runs',
                where="--track-to",
                hint=f"mlflow experiments restore -x {self._experiment} brings it back; or another name of the task",
            )

    def write(self, label: str, result: Result) -> None:
        """Write a run: parameters, curves, and the privacy in its tags."""
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = self._client.create_run(self._experiment, run_name=label).info.run_id
            metrics = [
                Metric(name, value, now, step) for name, pairs in curves_of(result).items() for step, value in pairs
            ]
            settings = [Param(name, value[:MOST_CHARACTERS]) for name, value in settings_of(result.task).items()]
            settings += [Param("trials", str(result.trials)), Param("seed", str(result.seed))]
            tags = [RunTag("crowdml.privacy", json.dumps(result.privacy, ensure_ascii=False))]
            for begin in range(0, max(len(metrics), len(settings)), 100):
                span = slice(begin, begin + 100)  # a server takes no more at once
                self._client.log_batch(run, metrics=metrics[span], params=settings[span], tags=[] if begin else tags)
            self._client.set_terminated(run)


class TensorBoard:
    """Event files below a folder, which TensorBoard shows."""

    def __init__(self, to: str | None, experiment: str) -> None:
        import tensorboardX  # noqa: F401  whether it is there is said now

        self.place = to or TENSORBOARD_FOLDER
        folder = Path(self.place)
        make_folder(folder, "--track-to")
        if not os.access(folder, os.W_OK):
            raise BadInput(f"{folder} cannot be written", where="--track-to", hint="choose a place where you may write")
        self._experiment = experiment

    def write(self, label: str, result: Result) -> None:
        """Write a folder of events: curves, and the settings as text. A run of the same name is numbered."""
        from tensorboardX import SummaryWriter

        name = re.sub(r"[^A-Za-z0-9._=-]+", "-", f"{self._experiment}-{label}" if label != self._experiment else label)
        folder, number = Path(self.place) / name, 1
        while folder.exists():
            number += 1
            folder = Path(self.place) / f"{name}-{number}"
        with SummaryWriter(str(folder), flush_secs=3600) as writer:
            lines = [f"| {key} | {value} |" for key, value in settings_of(result.task).items()]
            writer.add_text("settings", "\n".join(["| key | value |", "|---|---|", *lines]), 0)
            writer.add_text("privacy", json.dumps(result.privacy, ensure_ascii=False), 0)
            for curve, pairs in curves_of(result).items():
                for step, value in pairs:
                    writer.add_scalar(curve, value, step)


TRACKERS: dict[str, Callable[[str | None, str], Tracker]] = {"mlflow": MLflow, "tensorboard": TensorBoard}
