"""Rows of a report: how a measured figure is set beside the paper's."""

from __future__ import annotations

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.contract import Row, Verdict


def accuracy(setting: str, result: Result, paper: float | None, tolerance: float = 0.02, at: int = -1) -> Row:
    """Compare a test accuracy with the paper's figure: it holds when ours is as good, up to the tolerance."""
    values = 1 - result.measured["test_error"][at]
    ours = float(values.mean())
    verdict: Verdict = "trend" if paper is None else "holds" if ours >= paper - tolerance else "differs"
    return Row(setting=setting, metric="test accuracy", paper=paper, ours=ours, std=spread(values), verdict=verdict)


def statement(setting: str, metric: str, paper: float | None, ours: float, holds: bool, std: float = 0.0) -> Row:
    """Set a figure of ours beside the paper's, with a verdict that was reached elsewhere."""
    return Row(setting=setting, metric=metric, paper=paper, ours=ours, std=std, verdict="holds" if holds else "differs")


def shown(setting: str, metric: str, ours: float, std: float = 0.0) -> Row:
    """Show a figure of ours that nothing is compared with."""
    return Row(setting=setting, metric=metric, paper=None, ours=ours, std=std, verdict="trend")


def spread(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Return the standard deviation over trials; 0 for a single one."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0
