"""Courses: tasks of three kinds (on arrival, in rounds, in secure sums), and what may go wrong in each."""

from __future__ import annotations

import dataclasses
from random import Random

from tests.system.network import Weather

HEAD = """
crowdml = 1
name = "walk"
objective = "Tell walking from standing"
[data]
features = 3
labels = ["standing", "walking"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
"""
PROMISE = """
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 20.0
delta = 1e-6
"""
ARRIVAL = (
    HEAD
    + """
[algorithm]
kind = "crowd-sgd"
batch = 2
rate = { kind = "inverse-sqrt", c = 10.0 }
"""
    + PROMISE
    + """
max-uses = 40
statistics-epsilon = 1.0
[stop]
max-releases = 10
"""
)
ROUNDS = (
    HEAD
    + """
[algorithm]
kind = "fedsgd"
per-round = 3
max-rows = 4
"""
    + PROMISE
    + """
max-uses = 60
unit = "device"
[stop]
max-releases = 60
max-versions = 6
"""
)
SUMS = (
    HEAD
    + """
[algorithm]
kind = "fedsgd"
per-round = 6
max-rows = 4
"""
    + PROMISE
    + """
max-uses = 60
unit = "device"
[secure-aggregation]
enabled = true
honest = 1.0
drop-out = 0.34
[stop]
max-releases = 60
max-versions = 3
"""
)
TASKS = {"arrival": ARRIVAL, "rounds": ROUNDS, "sums": SUMS}


@dataclasses.dataclass(frozen=True)
class Course:
    """What is tried.

    Attributes:
        seed: Where everything comes from.
        kind: Of the task.
        devices: How many.
        storm_s: For how long things go wrong.
        weather: What goes wrong on the way.
        strikes: What strikes processes, by name, with its share.
        strike_s: Seconds between two strikes, on average.
        pause_s: Seconds between two rows of a device, on average.
        slow_disk: Part of all accesses to the disk that take seconds.
        file: The task's file; empty: that of its kind.
    """

    seed: int
    kind: str
    devices: int
    storm_s: float
    weather: Weather
    strikes: dict[str, float]
    strike_s: float
    pause_s: float
    slow_disk: float
    file: str = ""


STRIKES = (
    "kill the server",
    "cut the server's power",
    "kill the server at a commit",
    "stop the server",
    "turn the server's clock",
    "kill a device",
    "cut a device's power",
    "kill a device at a commit",
    "stop a device",
    "turn a device's clock",
    "cut the network",
)


def course_of(seed: int) -> Course:
    """Draw a course: some faults are there and others are not, so that none hides behind the others."""
    chance = Random(f"course of {seed}")
    kind = ("arrival", "rounds", "sums")[seed % 3]

    def some(most: float) -> float:
        return chance.random() * most if chance.random() < 0.6 else 0.0

    return Course(
        seed=seed,
        kind=kind,
        devices=8 if kind == "sums" else 6,
        storm_s=chance.uniform(300.0, 900.0),
        weather=Weather(lost=some(0.15), unanswered=some(0.15), twice=some(0.15), slow=some(0.1)),
        strikes={name: chance.random() for name in STRIKES if chance.random() < 0.6},
        strike_s=chance.uniform(20.0, 120.0),
        pause_s=chance.uniform(10.0, 40.0),
        slow_disk=some(0.02),
    )
