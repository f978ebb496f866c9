"""Result: what a simulation found, ready for a script, a table or a figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Task
from crowdml.core import record
from crowdml.core.ops import Tree

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]


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
            "last": [{"device": device, "weights": [round(own, 6) for own in layers]} for device, layers in by_device],
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
        notes: Caveats to print beside the figures.
        warnings: What casts doubt on the figures, such as a rate that made everything diverge.
        times: When each point of the curve was reached, of shape (points, trials); None where there is no time. The
            unit is that of the timeline.
        averages: How each trial was averaged, where weights depend on the check-ins.
        beside: Test errors of other uses of the same public rows, by name, each of shape (trials,).
    """

    task: Task
    seed: int
    trials: int
    samples: Floats
    measured: dict[str, Floats]
    parameters: Tree
    privacy: dict[str, Any]
    updates: int
    compile_seconds: float
    run_seconds: float
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    counts: dict[str, npt.NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    times: Floats | None = None
    averages: tuple[Average, ...] = ()
    beside: dict[str, Floats] = dataclasses.field(default_factory=dict)

    @property
    def estimated_labels(self) -> dict[str, Floats]:
        """Share of each label as the counts tell it, per trial (Crowd-ML 2015, equation 14); empty without counts."""
        if not self.counts:
            return {}
        shares = self.counts["labels"].sum(axis=1) / np.maximum(self.counts["rows"].sum(axis=1), 1)[:, None]
        return {name: shares[:, index] for index, name in enumerate(self.task.data.labels)}

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
            "updates": self.updates,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }
        if self.averages:
            content["averages"] = [average.to_json() for average in self.averages]
        if self.beside:
            content["beside"] = {name: {"test_error": _summary(errors)} for name, errors in self.beside.items()}
        return content

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per point of the curve and trial."""
        import pandas as pd

        points, trials = self.measured["test_error"].shape
        columns: dict[str, Any] = {
            "samples": np.repeat(self.samples, trials),
            "trial": np.tile(np.arange(trials), points),
        }
        return pd.DataFrame(columns | {name: values.reshape(-1) for name, values in self.measured.items()})

    def plot(self, path: Path | str) -> None:
        """Draw the error against samples used, on test rows and on rows held back, and save the figure."""
        from crowdml.simulation.plot import curve_figure

        curve_figure({self.task.name: self}, Path(path), held_back="validation_error" in self.measured)


def watched(measured: Mapping[str, Sequence[Any]]) -> Any:
    """Return the error to watch while a task runs: on rows held back where there are some, else on the test rows."""
    return measured.get("validation_error", measured["test_error"])


def _summary(values: Floats) -> dict[str, float | None]:
    """Return mean and spread; None where they are no numbers, which JSON has no word for."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    figures = {"mean": float(values.mean()), "std": spread}
    return {name: round(value, 6) if np.isfinite(value) else None for name, value in figures.items()}
