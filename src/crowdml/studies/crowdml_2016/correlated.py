"""Correlated noise beside fresh noise: the same ε for a sample, the same messages.

Not a figure of the paper, which names noise that depends on earlier noise without a bound for it. Devices go through
their rows once, so a sample is in one release and costs the same whatever the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crowdml.simulation import Result
from crowdml.studies.comparisons import accuracy, spread, statement
from crowdml.studies.contract import Curve, Row, Study
from crowdml.studies.crowdml_2016.grid import draw_grid

EPSILONS = (1.0, 2.0, 4.0, 8.0)
BANDS = (1, 4, 16)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
CHOSEN = {
    (1, 1.0): 0.003,
    (1, 2.0): 0.03,
    (1, 4.0): 0.1,
    (1, 8.0): 0.3,
    (4, 1.0): 0.03,
    (4, 2.0): 0.1,
    (4, 4.0): 0.1,
    (4, 8.0): 0.3,
    (16, 1.0): 0.03,
    (16, 2.0): 0.1,
    (16, 4.0): 0.3,
    (16, 8.0): 0.3,
}
"""Rates by bands and ε: the outcome of `--search`."""


def _name(bands: int) -> str:
    return "fresh noise" if bands == 1 else f"{bands} bands"


def label(bands: int, epsilon: float) -> str:
    """Name one curve."""
    return f"{_name(bands)}, ε = {epsilon:g}"


def _curve(bands: int, epsilon: float) -> Curve:
    matrix = f', noise-sequence = "banded", noise-bands = {bands}' if bands > 1 else ""
    return Curve(
        label=label(bands, epsilon),
        changes=(
            "algorithm.local-batch=20",
            "algorithm.server-batch=1",
            'algorithm.rate={ kind = "constant", c = 1.0 }',
            f'privacy={{ mode = "paper", mechanism = "gaussian", epsilon = {epsilon}, delta = 1e-6{matrix} }}',
            "stop={ max-releases = 30 }",
            "crowd.devices=100",
            "crowd.passes=1",
        ),
        chosen={"algorithm.rate.c": CHOSEN[bands, epsilon]},
        grid={"algorithm.rate.c": RATES},
    )


def _compare(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = [accuracy(name, result) for name, result in results.items()]
    for epsilon in EPSILONS:
        fresh, banded = (results[label(bands, epsilon)].measured["test_error"][-1] for bands in (1, BANDS[-1]))
        gaps = fresh - banded
        better = float(gaps.mean()) > 0
        setting = f"{_name(BANDS[-1])} minus fresh noise, ε = {epsilon:g}"
        rows.append(statement(setting, "test accuracy", float(gaps.mean()), better, "above 0", spread(gaps)))
    return tuple(rows)


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    columns = {
        f"ε = {epsilon:g}": {_name(bands): results[label(bands, epsilon)] for bands in BANDS} for epsilon in EPSILONS
    }
    draw_grid({"test accuracy": columns}, path, title)


CORRELATED = Study(
    title="correlated noise and fresh noise at the same ε for a sample",
    claim="(ours, not the paper's) noise that is correlated over 16 messages costs less accuracy than fresh noise",
    refuted_by="an accuracy that is not above that with fresh noise, at any ε",
    tuned="held back",
    task=Path(__file__).parents[1] / "tasks" / "mnist-softmax.toml",
    curves=tuple(_curve(bands, epsilon) for bands in BANDS for epsilon in EPSILONS),
    compare=_compare,
    trials=5,
    notes=(
        "not a figure of the paper",
        "one pass: each sample is in one release, so ε for a sample is the same in a column; for a whole device "
        "correlated noise costs more",
        "rates were chosen on rows held back from training: tuning not charged",
    ),
    draw=_draw,
)
