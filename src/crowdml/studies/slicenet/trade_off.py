"""What noise on the first cut costs and buys: accuracy, share of labels read, and ε (not in the paper)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from crowdml.algorithms import Task
from crowdml.core.figures import save_figure
from crowdml.simulation import Result
from crowdml.studies.audit import audit
from crowdml.studies.comparisons import learns, shown, spread, statement
from crowdml.studies.contract import Curve, Row, Study

NOISES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
CHANCE = 0.1


def _name(noise: float) -> str:
    return f"noise {noise:g}"


def _best_reading(result: Result) -> float:
    """Return the share of labels that the luckiest follower reads."""
    return _audited(result.task.model_dump_json(by_alias=True), result.seed)


@functools.cache
def _audited(task: str, seed: int) -> float:
    found = audit(Task.model_validate_json(task), seed=seed)
    return max(own.right or 0.0 for own in found.readings if own.what.startswith("sums"))


def _rows(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows, readings = [], []
    for noise in NOISES:
        result = results[_name(noise)]
        accuracies = 1 - result.measured["test_error"][-1]
        readings.append(_best_reading(result))
        rows += [shown(_name(noise), "test accuracy", float(accuracies.mean()), spread(accuracies))]
        rows += [shown(_name(noise), "labels read from sums", readings[-1])]
        if noise:
            rows.append(shown(_name(noise), "ε for a row without its label", result.privacy["first_cut"]["epsilon"]))
    falls = readings[0] > 0.5 and readings[-1] < 2 * CHANCE and learns(results[_name(0.0)])
    rule = f"below {2 * CHANCE:g}, where without noise more than half are read and the net learns"
    return (*rows, statement("most noise", "labels read from sums", readings[-1], falls, rule))


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    """Draw accuracy and share read for each strength of the noise, with its ε below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 4.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    found = [results[_name(noise)] for noise in NOISES]
    for values, style, marker, colour, label in (
        ([1 - own.test_error for own in found], "-", "o", "#0072B2", "test accuracy"),
        ([_best_reading(own) for own in found], "--", "s", "#D55E00", "labels read from sums"),
    ):
        axes.plot(range(len(found)), values, style, marker=marker, color=colour, label=label)
    axes.axhline(CHANCE, linestyle=":", color="#000000", label="chance")
    axes.set_xticks(range(len(found)), [_tick(noise, own) for noise, own in zip(NOISES, found, strict=True)])
    axes.set(xlabel="noise on the first cut, and ε of a row at δ = 1e-5", ylim=(0, 1))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title(title.replace(": ", "\n", 1), loc="left", fontsize="medium")
    save_figure(figure, path)


def _tick(noise: float, result: Result) -> str:
    if not noise:
        return "none"
    epsilon = result.privacy["first_cut"]["epsilon"]
    return f"{noise:g}\nε {epsilon:.0f}" if epsilon >= 9.5 else f"{noise:g}\nε {epsilon:.1f}"


TRADE_OFF = Study(
    title="noise on the first cut: accuracy, labels read, ε",
    claim="(ours, not the paper's) enough noise on the first cut stops followers from reading labels",
    refuted_by="labels read twice as often as by chance under most noise, or not read without noise",
    tuned="held back",
    task=Path(__file__).parents[1] / "tasks" / "slicenet-noise.toml",
    curves=tuple(
        Curve(label=_name(noise), changes=(f"algorithm.cut-noise={noise}",), chosen={}, grid={}) for noise in NOISES
    ),
    compare=_rows,
    draw=_draw,
    trials=3,
    notes=(
        "not in the paper: it sends sums as they are",
        "noise on each sum is a multiple of the bound 0.8 on the norm of all; layers before the cut stay as they were",
        "labels are read by a former dominator with 500 rows of its own, in one trial; whoever has more reads more",
        "net and rate were chosen on rows held back, at noise 0, 0.3 and 1",
        "labels themselves are not protected: slopes tell them",
    ),
)
