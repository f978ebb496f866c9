"""What noise on the first cut costs and buys: accuracy, share of labels read, and ε (not in the paper)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from crowdml.algorithms import Task
from crowdml.core.figures import save_figure
from crowdml.simulation import Result
from crowdml.studies.audit import audit
from crowdml.studies.comparisons import shown, spread, statement
from crowdml.studies.contract import Curve, Row, Study

NOISES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
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
    falls = readings[0] > 0.5 and readings[-1] < 2 * CHANCE
    return (*rows, statement("most noise", "labels read from sums", None, readings[-1], falls))


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    """Draw accuracy and share read against ε; without noise there is none, so it stands at the right edge."""
    from matplotlib.figure import Figure

    noisy = [results[_name(noise)] for noise in NOISES if noise]
    epsilons = [own.privacy["first_cut"]["epsilon"] for own in noisy]
    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    places = [*epsilons, max(epsilons) * 4]
    ordered = [*noisy, results[_name(0.0)]]
    axes.plot(places, [1 - own.test_error for own in ordered], "-", marker="o", color="#0072B2", label="test accuracy")
    axes.plot(
        places,
        [_best_reading(own) for own in ordered],
        "--",
        marker="s",
        color="#D55E00",
        label="labels read from sums",
    )
    axes.axhline(CHANCE, linestyle=":", color="#000000", label="chance")
    axes.set(xscale="log", xlabel="ε of a row without its label, at δ = 1e-5; rightmost: no noise", ylim=(0, 1))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    axes.set_title(title)
    save_figure(figure, path)


TRADE_OFF = Study(
    title="noise on the first cut: accuracy, labels read, ε",
    task=Path(__file__).parents[1] / "tasks" / "slicenet-noise.toml",
    curves=tuple(
        Curve(label=_name(noise), changes=(f"algorithm.cut-noise={noise}",), chosen={}, grid={}) for noise in NOISES
    ),
    compare=_rows,
    draw=_draw,
    trials=1,
    notes=(
        "not in the paper: it sends sums as they are",
        "noise on each sum is a multiple of the bound 0.8 on the norm of all; layers before the cut stay as they were",
        "labels are read by a former dominator with 500 rows of its own; whoever has more reads more",
        "labels themselves are not protected: slopes tell them",
    ),
)
