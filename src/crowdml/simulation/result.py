"""Result: what a simulation found, for a script, a table, a figure, a notebook or a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdml.core import NUMPY, BadInput, Tally, record, trees
from crowdml.core.files import writable
from crowdml.core.ops import Tree
from crowdml.core.registry import nearest
from crowdml.simulation.accounting import epsilon_so_far
from crowdml.simulation.reporting.course import RunCourse
from crowdml.simulation.reporting.device_errors import spread_of
from crowdml.simulation.reporting.figures import AGAINST, curve_figure
from crowdml.simulation.reporting.html import result_html
from crowdml.simulation.reporting.learnt_model import LearntModel
from crowdml.simulation.reporting.result_file import damaged, read_result, restored_parts, result_parts, write_result
from crowdml.task import Task
from crowdml.task.user_models import device_model

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

Watcher = Callable[[float, float], None]
"""Told the share done and the mean error after each point of the curve: on rows held back where there are some, else on
the test rows. Before the first point the error is not a number."""


@record
class Average:
    """How one trial was averaged.

    Attributes:
        versions: Commits.
        used: Commits whose weights were not the prior: for learned weights, those that passed the gate.
        devices: Devices of the last version, in the order of their check-ins.
        weights: What each of them counted in each layer, shape (layers, check-ins).
    """

    versions: int
    used: int
    devices: tuple[int, ...]
    weights: Floats

    def to_json(self) -> dict[str, Any]:
        """Return plain values: weights by device, one for each layer."""
        weights = self.weights[:, : len(self.devices)].T
        by_device = sorted(zip(self.devices, weights.tolist(), strict=True))
        return {
            "versions": self.versions,
            "used": self.used,
            "last": [
                {"device": device, "weights": [round(weight, 6) for weight in layers]} for device, layers in by_device
            ],
        }


@record
class Result:
    """The outcome of a simulation.

    Attributes:
        task: The task.
        seed: First seed.
        trials: Number of trials.
        samples: Rows used at each point of the curve, shape (points,).
        measured: Measurements by name, each of shape (points, trials); `test_error` is always there,
            `validation_error` where rows are held back from training.
        parameters: The learnt parameters, with trials as the first axis.
        counts: What the server counted for each device: `rows`, `counted`, `errors` of shape (trials, devices) and
            `labels` of shape (trials, devices, labels), with noise where the terms ask for it; empty without counts.
        privacy: What was claimed, and what it really adds up to.
        updates: Check-ins absorbed, over all trials.
        compile_seconds: What compiling cost.
        run_seconds: What running cost.
        engine: What ran it: "compiled", or "numpy".
        processes: Worker processes that ran it; 0: this one.
        notes: Caveats to print beside the figures.
        warnings: What casts doubt on the figures, such as a rate that made everything diverge.
        times: When each point of the curve was reached, of shape (points, trials); None where there is no time. The
            unit is that of the timeline.
        averages: How each trial was averaged, where weights depend on the check-ins.
        baselines: Test errors of other uses of the same public rows, or of models of the devices' own, by name, each of
            shape (trials,).
        course: Versions, messages and uses at every point of the curve; None where there are no check-ins.
        device_errors: Error on the rows of each device at the end, shape (trials, devices), not a number for a device
            without rows; None unless `crowd.measure` asks for it.
        transforms: For each transform of the task the arrays that it has learnt; empty for fixed ones.
        relay: Of a sliced net: seconds, batches per second, bytes, losses and replays; empty otherwise.
    """

    task: Task
    seed: int
    trials: int
    samples: Floats
    measured: dict[str, Floats]
    parameters: Tree
    privacy: dict[str, Any]
    updates: int
    run_seconds: float
    compile_seconds: float = 0.0
    engine: str = "numpy"
    processes: int = 0
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    counts: Tally | tuple[()] = ()
    times: Floats | None = None
    averages: tuple[Average, ...] = ()
    baselines: dict[str, Floats] = dataclasses.field(default_factory=dict)
    course: RunCourse | None = None
    device_errors: Floats | None = None
    transforms: tuple[dict[str, npt.NDArray[Any]], ...] = ()
    relay: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def estimated_labels(self) -> dict[str, Floats]:
        """Share of each label as the counts tell it, per trial (Crowd-ML 2015, equation 14); empty without counts."""
        if not self.counts:
            return {}
        shares = self.counts.spread.sum(axis=1) / np.maximum(self.counts.rows.sum(axis=1), 1)[:, None]
        return {name: shares[:, index] for index, name in enumerate(self.task.target.bin_names)}

    @property
    def test_error(self) -> float:
        """Mean test error at the end."""
        return float(self.measured["test_error"][-1].mean())

    @property
    def validation_error(self) -> float:
        """Mean error at the end on rows held back from training; there must be some (`data.validation`)."""
        return float(self.measured["validation_error"][-1].mean())

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values, in the layout that `simulate --json` writes."""
        content = {
            "task": self.task.name,
            "seed": self.seed,
            "trials": self.trials,
            "final": {name: _summary(values[-1]) for name, values in self.measured.items()},
            "curve": [
                {"samples": int(samples)} | {name: _summary(values[at]) for name, values in self.measured.items()}
                for at, samples in enumerate(self.samples)
            ],
            "estimated_labels": {name: _summary(shares) for name, shares in self.estimated_labels.items()},
            "privacy": self.privacy,
            "seconds": {"compile": round(self.compile_seconds, 3), "run": round(self.run_seconds, 3)},
            "engine": self.engine,
            "processes": self.processes,
            "updates": self.updates,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }
        if self.course is not None:
            content["course"] = self._course_json()
        if self.relay:
            content["relay"] = self.relay
        if self.device_errors is not None:
            content["devices"] = {name: _summary(values) for name, values in spread_of(self.device_errors).items()}
        if self.averages:
            content["averages"] = [average.to_json() for average in self.averages]
        if self.baselines:
            content["baselines"] = {name: {"test_error": _summary(errors)} for name, errors in self.baselines.items()}
        return content

    def _course_json(self) -> list[dict[str, Any]]:
        """Return what else is known of every point of the curve, as means over trials."""
        columns = {name: self.along(name) for name in ("versions", "time", "seconds", "bytes_up", "bytes_down")}
        columns["epsilon"] = self.along("epsilon")
        return [{name: _plain(values[at]) for name, values in columns.items()} for at in range(len(self.samples))]

    def along(self, name: str) -> Floats:
        """Return what was used up at every point of the curve, shape (points,): means over trials.

        Args:
            name: `samples`, `versions`, `time` (simulated), `seconds` (of computing), `bytes_up`, `bytes_down`, or
                `epsilon`: what the releases so far add up to for the unit that the terms protect.
        """
        if name not in AGAINST:
            raise BadInput(f'"{name}" is nothing that is used up', where="name", hint=nearest(name, AGAINST))
        return np.asarray(self._used(name).mean(axis=1), np.float64)

    def _used(self, name: str) -> Floats:
        """Return what was used up at every point, shape (points, trials); not numbers where it is not known."""
        each: Floats | float = np.nan
        if name == "samples":
            each = self.samples[:, None]
        elif name == "time":
            each = np.nan if self.times is None else self.times
        elif name == "seconds" and self.course is None:
            each = np.array([np.nan] * (len(self.samples) - 1) + [self.run_seconds])[:, None]
        elif self.course is not None:
            each = self._of_course(self.course, name)
        return np.broadcast_to(np.asarray(each, np.float64), self.measured["test_error"].shape)

    def _of_course(self, course: RunCourse, name: str) -> Floats:
        if name == "epsilon":
            return self._epsilon(course)[:, None]
        if name == "seconds":
            return course.seconds[:, None]
        return {"versions": course.versions, "bytes_up": course.up(), "bytes_down": course.down()}[name]

    def _epsilon(self, course: RunCourse) -> Floats:
        uses, releases = course.uses.tolist(), course.releases.tolist()
        return np.array(epsilon_so_far(self.task, uses, releases, course.group), np.float64)

    def to_pandas(self) -> pd.DataFrame:
        """Return a tidy frame: one row per point of the curve and trial.

        Columns: `samples`, `trial`, every measurement (`test_error`, and `test_loss` where `crowd.measure` asks for
        it), `versions`, `time` (simulated), `seconds` (of computing), `bytes_up`, `bytes_down` and `epsilon` so far;
        where devices were measured `device_error_mean`, `_std` and `_worst_tenth`, in the last row of each trial alone.
        What is not known is not a number.
        """
        import pandas as pd

        points, trials = self.measured["test_error"].shape
        columns: dict[str, Any] = {
            "samples": np.repeat(self.samples, trials),
            "trial": np.tile(np.arange(trials), points),
        }
        columns |= {name: values.reshape(-1) for name, values in self.measured.items()}
        for name in ("versions", "time", "seconds", "bytes_up", "bytes_down", "epsilon"):
            columns[name] = self._used(name).reshape(-1)
        if self.device_errors is not None:
            for name, values in spread_of(self.device_errors).items():
                columns[f"device_error_{name}"] = np.concatenate([np.full((points - 1) * trials, np.nan), values])
        return pd.DataFrame(columns)

    def _repr_html_(self) -> str:
        """Show a small table and the curve in a notebook."""
        return result_html(self.task, self.to_json(), self.plot() if len(self.samples) > 1 else None)

    def plot(self, path: Path | str | None = None, *, measure: str = "test_error", against: str = "samples") -> Figure:
        """Draw the learning curve, on test rows and on rows held back; return the figure.

        Args:
            path: Save it here, too: a name that ends in `.png`, `.svg` or `.pdf`.
            measure: What is drawn: a name of `measured`.
            against: The horizontal axis: what `along` knows.
        """
        return curve_figure(
            {self.task.name: self},
            None if path is None else Path(path),
            measure=measure,
            against=against,
            held_back="validation_error" in self.measured and measure == "test_error",
        )

    @property
    def model(self) -> LearntModel:
        """The model of the first trial: `predict`, `predict_proba`, `save` as ONNX or safetensors."""
        return self.model_of()

    def model_of(self, trial: int = 0, device: int | None = None) -> LearntModel:
        """Return the model of a trial, or that of a device where each has its own."""
        if not 0 <= trial < self.trials:
            raise BadInput(f"there is no trial {trial}", where="trial", hint=f"0 to {self.trials - 1}")
        learnt = trees.map(lambda leaf: leaf[trial], self.parameters)
        zeros = trees.leaves(self.task.model_for(NUMPY).zeros())
        if any(np.ndim(leaf) > np.ndim(zero) for leaf, zero in zip(trees.leaves(learnt), zeros, strict=True)):
            devices = len(trees.leaves(learnt)[0])
            if device is None or not 0 <= device < devices:
                raise BadInput(
                    f"every device of {self.task.algorithm.kind} has a model of its own, and there is no common one",
                    where="device",
                    hint=f"result.model_of(device=0), up to {devices - 1}",
                )
            learnt = trees.map(lambda leaf: leaf[device], learnt)
        elif device is not None:
            raise BadInput("all devices have the same model", where="device", hint="leave it out")
        return LearntModel(task=self.task, parameters=learnt, arrays=self.transforms, privacy=self.privacy)

    def save(self, path: Path | str) -> None:
        """Write the result into one file: arrays as safetensors, words as JSON. `Result.load(path)` reads it."""
        path = Path(path)
        writable(path)
        words, arrays = result_parts(self)
        words["averages"] = [vars(average) | {"weights": average.weights.tolist()} for average in self.averages]
        write_result(path, words, arrays)

    @staticmethod
    def load(path: Path | str, model: Any = None) -> Result:
        """Read a result that `save` has written. A damaged file is refused; none can run anything.

        Args:
            path: The file.
            model: The model of your own that it was learnt with, as in `crowdml.simulate`: a file holds what was
                learnt, and no code. Not needed for figures and tables, nor where the model is registered.
        """
        words, arrays = read_result(Path(path))
        try:
            averages = tuple(
                Average(**average | {"devices": tuple(average["devices"]), "weights": np.array(average["weights"])})
                for average in words.pop("averages")
            )
            found = Result(averages=averages, **restored_parts(words, arrays))
            found.to_json()  # which looks at all of it
        except (BadInput, KeyError, ValueError, TypeError, AttributeError) as error:
            raise damaged(Path(path), error) from None
        return found if model is None else dataclasses.replace(found, task=device_model(found.task, model))


def watched(measured: Mapping[str, Sequence[Any]]) -> Any:
    """Return the error to watch while a task runs: on rows held back where there are some, else on the test rows."""
    return measured.get("validation_error", measured["test_error"])


def _plain(value: float) -> float | None:
    """Return a number as JSON has it; None where it is none."""
    return round(float(value), 6) if np.isfinite(value) else None


def _summary(values: Floats) -> dict[str, float | None]:
    """Return mean and spread; None where they are no numbers, which JSON has no word for."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    figures = {"mean": float(values.mean()), "std": spread}
    return {name: round(value, 6) if np.isfinite(value) else None for name, value in figures.items()}
