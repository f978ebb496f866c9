"""Four rows, a model of four numbers, and steps written out: for tests of recipes against formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdml.algorithms import Algorithm
from crowdml.core import Batch, Broadcast, Ops
from crowdml.task import Task, parse

ROWS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [2.0, 1.0]], np.float32)
LABELS = np.array([0, 1, 1, 0], np.int32)
WEIGHTS = np.array([[0.5, -0.5], [0.1, 0.2]], np.float32)


def told(count: Any = ()) -> Broadcast:
    """Return what a server says whose model has `WEIGHTS`."""
    return Broadcast(parameters=({"w": WEIGHTS},), count=count)


def task(
    kind: str, settings: str = "", privacy: str = 'mode = "none"', model: str = "", score: str = "softmax"
) -> Task:
    """Make a task over two features and two labels."""
    return parse(
        f"""
crowdml = 1
name = "by-hand"
[data]
features = 2
labels = ["a", "b"]
[model]
kind = "{score}"
{model}
[algorithm]
kind = "{kind}"
{settings}
[privacy]
{privacy}
"""
    )


def algorithm(ops: Ops, kind: str, settings: str = "", privacy: str = 'mode = "none"', model: str = "") -> Algorithm:
    """Assemble an algorithm over two features and two labels."""
    return task(kind, settings, privacy, model).build(ops)


def batch(ops: Ops, real: int = 4) -> Batch:
    """Return the rows, of which so many are real."""
    mask = (np.arange(4) < real).astype(np.float32)
    return Batch(rows=ops.xp.asarray(ROWS), targets=ops.xp.asarray(LABELS), mask=ops.xp.asarray(mask))


def gradient(w: Any, chosen: slice) -> Any:
    """Return the mean gradient of softmax regression over some rows."""
    x, y = ROWS[chosen].astype(float), LABELS[chosen]
    scores = np.exp(x @ w.T)
    return (scores / scores.sum(axis=1, keepdims=True) - np.eye(2)[y]).T @ x / len(x)


def walk(etas: list[float], size: int = 2) -> Any:
    """Return the change after one step per part of the rows, with the given rates."""
    w = WEIGHTS.astype(float)
    for at, eta in enumerate(etas):
        w = w - eta * gradient(w, slice(at * size, (at + 1) * size))
    return w - WEIGHTS


class Ones:
    """Coins whose every draw is 1."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def draw(self, stage: str, *arguments: Any) -> Any:
        self.asked.append(stage)
        return np.ones(arguments[-1], np.float32)

    uniform = laplace = gaussian = discrete_laplace = draw
