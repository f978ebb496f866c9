"""What losses cost: 30 % of the devices are gone at any time, and every five minutes nobody has a network for 60 s.

    python -m tests.system.losses [--seeds 5] [--json FILE]

The real server and real devices learn in rounds, in virtual time (see `world.py`), once with losses and once without,
from the same seed: the same rows for each device, the same choice of members. A round that never ends is found, as in
every course: the task must come to its last version. What both have learnt is tried on the same fresh rows.

It ends with 1 where a round was stuck, or where losses cost more than one point of accuracy in the mean of the pairs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load as read_tensors

from tests.system.courses import HEAD, Course
from tests.system.network import Weather
from tests.system.server_process import Headers
from tests.system.world import World, made

LOST, LOST_S = 0.3, 60.0
"""Every minute each device is lost for that minute, with this probability."""
OUTAGE_S, EVERY_S = 60.0, 300.0
LONGEST_S = 6 * 3600.0
FRESH = 20_000
VERSIONS = 60
MOST_POINTS = 1.0
FEWEST_SEEDS = 5
"""Points of accuracy that losses may cost in the mean of so many pairs at least."""
TASK = (
    HEAD
    + """
[algorithm]
kind = "fedsgd"
per-round = 6
max-rows = 8
rate = { kind = "inverse-sqrt", c = 20.0 }
[privacy]
mode = "none"
[stop]
max-releases = 200
max-versions = {VERSIONS}
"""
).replace("{VERSIONS}", str(VERSIONS))


@dataclasses.dataclass(frozen=True)
class Learnt:
    """How one course ended: share of right labels on fresh rows, versions, virtual seconds, and what went wrong."""

    accuracy: float
    versions: int
    virtual_s: float
    violations: tuple[str, ...]


class LossyWorld(World):
    """A world with losses, or without: `course.strikes` says."""

    lost = outages = 0
    model: bytes = b""

    @staticmethod
    def row(chance: Random) -> tuple[list[float], str]:
        """Draw a row whose label nobody can tell for certain: 87 % are right at best."""
        row = [chance.gauss(0.0, 1.0) for _ in range(3)]
        return row, "walking" if row[0] - 0.5 * row[1] + chance.gauss(0.0, 0.5) > 0 else "standing"

    def _storm(self) -> None:
        for device in self.devices:
            device.run()
        if self.course.strikes:
            self.timeline.after(LOST_S, self._lose)
            self.timeline.after(EVERY_S, self._cut)

    def _calm(self) -> None:
        self.timeline.run(self._is_over, self.timeline.now + LONGEST_S)

    def _lose(self) -> None:
        for device in self.devices:
            if device.alive and self.chance.random() < LOST:
                device.stopped_until = self.timeline.now + LOST_S
                self.lost += 1
        self.timeline.after(LOST_S, self._lose)

    def _cut(self) -> None:
        self.network.weather.outage_until = self.timeline.now + OUTAGE_S
        self.outages += 1
        self.timeline.after(EVERY_S, self._cut)

    def _end(self) -> None:
        self.network.weather = Weather()
        self.model, self.versions = self._fetch("/v1/tasks/walk/model"), self._ask("GET", "/v1/tasks/walk")["version"]
        super()._end()

    def _fetch(self, path: str) -> bytes:
        found: list[Any] = []
        headers: Headers = self._bearer("operator")
        self.network.ask("operator", "GET", path, headers, b"", lambda *came: found.extend(came), found.append)
        self._await(lambda: bool(found))
        assert found[0] == 200, found
        return bytes(found[2])


def learn(seed: int, losses: bool, file: str = TASK) -> tuple[Learnt, LossyWorld]:
    """Go through one course."""
    course = Course(
        seed=seed,
        kind="rounds",
        devices=12,
        storm_s=0.0,
        weather=Weather(),
        strikes={"losses": 1.0} if losses else {},
        strike_s=60.0,
        pause_s=2.0,
        slow_disk=0.0,
        file=file,
    )
    with made(course, LossyWorld) as world:
        world.run()
        found = Learnt(
            accuracy=_accuracy(world.model),
            versions=world.versions,
            virtual_s=world.timeline.now,
            violations=tuple(world.history.violations),
        )
    return found, world


def _accuracy(model: bytes) -> float:
    """Try a model on fresh rows, the same for all."""
    chance = Random("fresh rows")
    rows, labels = zip(*(LossyWorld.row(chance) for _ in range(FRESH)), strict=True)
    features = np.array(rows)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)
    parameters = read_tensors(model)
    (weights,) = (part for part in parameters.values() if part.ndim == 2)
    bias = next((part for part in parameters.values() if part.ndim == 1), 0.0)
    scores = features @ weights + bias if weights.shape[0] == features.shape[1] else features @ weights.T + bias
    return float(np.mean((scores[:, 1] > scores[:, 0]) == (np.array(labels) == "walking")))


def found_wrong(pairs: Sequence[tuple[Learnt, Learnt]]) -> list[str]:
    """Say what must not be: of pairs without losses and with them, each from one seed.

    >>> calm = Learnt(accuracy=0.87, versions=60, virtual_s=60.0, violations=())
    >>> found_wrong([(calm, dataclasses.replace(calm, accuracy=0.865))] * 5)
    []
    >>> found_wrong([(calm, dataclasses.replace(calm, accuracy=0.855, versions=59))] * 4 + [(calm, calm)])
    ['seeds 0, 1, 2, 3: a round was stuck', 'losses cost 1.20 points of accuracy, more than 1']
    """
    wrong = [violation for pair in pairs for learnt in pair for violation in learnt.violations]
    stuck = [str(seed) for seed, pair in enumerate(pairs) if any(learnt.versions < VERSIONS for learnt in pair)]
    if stuck:
        wrong.append(f"seeds {', '.join(stuck)}: a round was stuck")
    if len(pairs) < FEWEST_SEEDS:
        wrong.append(f"{len(pairs)} seeds are too few to tell: {FEWEST_SEEDS} at least")
    elif (cost := statistics.mean(points_lost(pairs))) > MOST_POINTS:
        wrong.append(f"losses cost {cost:.2f} points of accuracy, more than {MOST_POINTS:.0f}")
    return wrong


def points_lost(pairs: Sequence[tuple[Learnt, Learnt]]) -> list[float]:
    """Return what losses cost in each pair."""
    return [100 * (calm.accuracy - lossy.accuracy) for calm, lossy in pairs]


def main() -> int:
    """Read the options and run; the exit code is 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=FEWEST_SEEDS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    pairs = []
    for seed in range(given.seeds):
        (calm, _), (lossy, world) = learn(seed, losses=False), learn(seed, losses=True)
        pairs.append((calm, lossy))
        print(
            f"seed {seed}: {calm.accuracy:.2%} without losses in {calm.virtual_s / 60:.0f} min, "
            f"{lossy.accuracy:.2%} with {world.lost} losses of a device and {world.outages} outages "
            f"in {lossy.virtual_s / 60:.0f} min; {calm.versions} and {lossy.versions} versions",
            flush=True,
        )
    points = points_lost(pairs)
    error = statistics.stdev(points) / len(points) ** 0.5 if len(points) > 1 else 0.0
    print(
        f"lost by losses: {statistics.mean(points):.2f} ± {error:.2f} points of accuracy (paired, {len(points)} seeds, "
        "standard error)"
    )
    if given.json:
        found = {
            "points_lost": points,
            "mean": statistics.mean(points),
            "standard_error": error,
            "without": [dataclasses.asdict(calm) for calm, _ in pairs],
            "with": [dataclasses.asdict(lossy) for _, lossy in pairs],
        }
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    wrong = found_wrong(pairs)
    print("\n".join(wrong) or f"no round was stuck, and the cost is below {MOST_POINTS:.0f} point")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
