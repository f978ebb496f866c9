"""Async ADMM, figure 3: centralised and local fits, and what ADMM makes of the same rows without noise."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from crowdml.simulation import Result
from crowdml.studies.admm.common import CENTRAL, CENTRALISED, SPLITS, TASK, TUNED, accuracies, gap, shown_level
from crowdml.studies.admm.drawing import draw_levels
from crowdml.studies.comparisons import statement
from crowdml.studies.contract import Curve, Row, Study

LOCAL = {10: 0.01, 50: 0.1, 100: 0.1, 150: 0.1, 200: 0.1, 300: 0.1, 1000: 0.2}
"""β by the number of devices, as rows held back chose it; that of 150 is the one of 100 and of 200."""
ADMM = "admm, 100 devices, 20 versions"


def _label(devices: int) -> str:
    return f"local, {devices} devices"


def _local(devices: int, beta: float) -> Curve:
    return Curve(
        label=_label(devices),
        changes=(
            'algorithm={ kind = "local-fit" }',
            "stop={}",
            f"crowd={{ devices = {devices}, passes = 1, curve = 1 }}",
        ),
        chosen={"algorithm.beta": beta},
        grid={"algorithm.beta": (0.01, 0.03, 0.1, 0.2, 0.3, 1.0)},
    )


def _compare(results: Mapping[str, Result]) -> tuple[Row, ...]:
    means = [float(accuracies(results[_label(devices)]).mean()) for devices in LOCAL]
    falls = all(more > fewer for more, fewer in itertools.pairwise(means))
    lost = float(accuracies(results[CENTRALISED]).mean()) - means[-1]
    return (
        shown_level(results, CENTRALISED),
        *(shown_level(results, _label(devices)) for devices in LOCAL),
        statement("from 10 to 1000 devices", "accuracy lost in all", lost, falls, "accuracy falls with every step"),
        shown_level(results, ADMM),
        gap(results, ADMM, 0.006),
    )


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    lines = {"local": [(float(devices), accuracies(results[_label(devices)])) for devices in LOCAL]}
    levels = {name: accuracies(results[name]) for name in (CENTRALISED, ADMM)}
    draw_levels(lines, levels, path, title, "devices that share 30,000 rows")


FIG3 = Study(
    title="centralised and local fits of Adult, and ADMM without noise",
    claim="local accuracy falls as the same rows are shared by more devices; (ours) ADMM loses next to nothing",
    refuted_by="an accuracy that does not fall with every step, or ADMM more than 0.006 behind the centralised fit",
    tuned="held back",
    task=TASK,
    curves=(
        CENTRAL,
        *(_local(devices, beta) for devices, beta in LOCAL.items()),
        Curve(
            label=ADMM,
            changes=("crowd.curve=4",),
            chosen={"algorithm.rho": 0.02, "algorithm.beta": 0.01},
            grid={"algorithm.rho": (0.01, 0.02, 0.05, 0.1), "algorithm.beta": (0.01,)},
        ),
    ),
    compare=_compare,
    trials=SPLITS,
    notes=(
        TUNED,
        "the paper's figure 3 gives no numbers that could be read off: its statement is that accuracy falls",
        "a trial is a split of all complete rows; a local accuracy is the mean over 100 of the devices",
    ),
    draw=_draw,
)
