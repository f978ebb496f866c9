"""Result: what a simulation found, for a script, a table or a figure of the error against samples used."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdml.core import Tally, Target, record
from crowdml.core.files import save_figure
from crowdml.core.ops import Tree
from crowdml.task import Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

Watcher = Callable[[float, float], None]
"""Told the share done and the mean error after each point of the curve: on rows held back where there are some, else on
the test rows. Before the first point the error is not a number."""

# Okabe and Ito's palette: distinct for colour-blind readers, with line styles as a second cue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")


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
        if self.averages:
            content["averages"] = [average.to_json() for average in self.averages]
        if self.baselines:
            content["baselines"] = {name: {"test_error": _summary(errors)} for name, errors in self.baselines.items()}
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
        curve_figure({self.task.name: self}, Path(path), held_back="validation_error" in self.measured)


def watched(measured: Mapping[str, Sequence[Any]]) -> Any:
    """Return the error to watch while a task runs: on rows held back where there are some, else on the test rows."""
    return measured.get("validation_error", measured["test_error"])


def _summary(values: Floats) -> dict[str, float | None]:
    """Return mean and spread; None where they are no numbers, which JSON has no word for."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    figures = {"mean": float(values.mean()), "std": spread}
    return {name: round(value, 6) if np.isfinite(value) else None for name, value in figures.items()}


def curve_figure(
    results: Mapping[str, Result],
    path: Path,
    measure: str = "test_error",
    title: str | None = None,
    held_back: bool = False,
) -> None:
    """Draw one curve per result, with a band of one standard deviation over trials, and save the figure.

    A result with a single point, such as that of batch training, becomes a level line. With `held_back` the curve of a
    single result has one beside it for the rows held back from training.
    """
    from matplotlib.figure import Figure

    many = len(results) > 1 or held_back
    figure = Figure(figsize=(7, 4.8 if many else 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for index, (label, result) in enumerate(results.items()):
        name = "test rows" if held_back else label
        _draw(axes, name, result, measure, COLOURS[index % len(COLOURS)], STYLES[index % len(STYLES)])
        if held_back:
            _draw(axes, "rows held back", result, "validation_error", COLOURS[1], STYLES[1])
    words = "time-averaged error, counted by devices" if measure == "estimated_error" else measure.replace("_", " ")
    words = "error" if held_back else words
    first = next(iter(results.values())).task.target
    if not first.has_accuracy and measure.endswith("error"):
        words += ", share of the range"
        if all(result.task.target == first for result in results.values()):
            _show_unit(axes, first)
    axes.set(xlabel="samples used by the crowd", ylabel=words, xlim=(0, None), ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        title or (next(iter(results)) if len(results) == 1 else ""), loc="left", fontsize="medium", wrap=True
    )
    if many:
        figure.legend(loc="outside lower center", ncols=3 if len(results) < 7 else 4, frameon=False, fontsize="small")
    save_figure(figure, path)


def _show_unit(axes: Axes, target: Target) -> None:
    """Add what errors of a number are in its own unit, on the right."""
    width: Any = 2 * getattr(target, "half_range", 0.5)
    unit = getattr(target, "unit", "")
    right = axes.secondary_yaxis("right", functions=(lambda share: share * width, lambda error: error / width))
    right.set_ylabel("mean absolute error" + (f" in {unit}" if unit else ""))


def _draw(axes: Axes, label: str, result: Result, measure: str, colour: str, style: str) -> None:
    values = result.measured[measure]
    mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1 if values.shape[1] > 1 else 0)
    if len(mean) == 1:
        axes.axhline(mean[0], linestyle=style, color=colour, label=label, linewidth=1.8)
        return
    axes.plot(result.samples, mean, style, color=colour, label=label, linewidth=1.8)
    low, high = np.clip(mean - spread, 0, 1), np.clip(mean + spread, 0, 1)
    axes.fill_between(result.samples, low, high, color=colour, alpha=0.15, linewidth=0)
