"""Crowd-ML 2015, figure 3: activity sensing on seven devices, for several rates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crowdml.simulation import Result
from crowdml.studies.contract import Curve, Row, Study

RATES = (0.1, 1.0, 10.0, 100.0)
CONVERGED_AT, END = 49, 299
"""Points of the curve: after 50 and after 300 samples."""


def _compare(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = []
    for label, result in results.items():
        curve = result.measured["estimated_error"]
        end, gap = curve[END], curve[CONVERGED_AT] - curve[END]
        rows.append(
            Row(
                setting=f"{label}, after 300 samples",
                metric="time-averaged error",
                paper=None,
                ours=float(end.mean()),
                std=float(end.std(ddof=1)),
                verdict="trend",
            )
        )
        rows.append(
            Row(
                setting=f"{label}, after 50 minus after 300 samples",
                metric="difference",
                paper=0.0,
                ours=float(gap.mean()),
                std=float(gap.std(ddof=1)),
                verdict="holds" if abs(gap.mean()) <= 0.05 else "differs",
            )
        )
    return tuple(rows)


FIG3 = Study(
    title="activity sensing: time-averaged error over the first 300 samples, by rate",
    task=Path(__file__).parents[1] / "tasks" / "activity.toml",
    curves=tuple(Curve(label=f"c = {rate:g}", chosen={"algorithm.rate.c": rate}, grid={}) for rate in RATES),
    compare=_compare,
    measure="estimated_error",
    notes=(
        "other data than the paper's: recordings of nine people with vehicles (TMD), dealt to seven devices",
        "features are standardised first: without it the constant part of the acceleration hides everything else",
        "a recording has one label, so rows are taken every half minute and not when the label changes",
    ),
)
