"""Successors of lost workers: they may be lost as well, and are held to the same versions. A stand-in plays Ray."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.simulation.cluster.ray_crew import MOST_LOST_AT_ONCE, RayCrew
from crowdml.simulation.cluster.replayed_lane import ReplayedLane
from crowdml.simulation.workers import frames, pool
from crowdml.simulation.workers.crew import WorkerLost, described_machine


class ActorError(Exception):
    """The process is gone."""


class TaskError(Exception):
    """The process cannot work."""


class Ray:
    """Ray's module, as far as a crew uses it.

    Args:
        greetings: What each worker that is started says of itself, in order; None: it is gone before it can.
    """

    exceptions = SimpleNamespace(RayActorError=ActorError, ObjectLostError=ActorError, RayTaskError=TaskError)

    def __init__(self, greetings: Iterator[dict[str, Any] | None]) -> None:
        self._greetings = greetings
        self.started, self.killed = 0, 0

    def remote(self, kind: object) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._start))

    def _start(self, variables: dict[str, str]) -> Any:
        self.started += 1
        greeting = next(self._greetings)
        said = greeting and frames.to_bytes({**greeting, "process": self.started, "cpu_seconds": 0.0}, ())
        return SimpleNamespace(hello=SimpleNamespace(remote=lambda: said))

    def get(self, coming: bytes | None) -> bytes:
        if coming is None:
            raise ActorError("the node is gone")
        return coming

    def wait(self, coming: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return coming, []

    def kill(self, actor: object, no_restart: bool) -> None:
        self.killed += 1

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    pool.elsewhere.clear()


def crew_of(*later: dict[str, Any] | None) -> RayCrew:
    """Hire two workers of this machine; then come others."""
    ours = described_machine()
    return RayCrew(Ray(iter([ours, ours, *later])))


def test_a_machine_that_goes_with_its_workers_does_not_end_the_run() -> None:
    """Both are lost at once, and what Ray still starts on that machine is lost before it has said a word."""
    ours = described_machine()
    crew = crew_of(None, None, ours, None, ours)
    asked: list[int] = []

    class Lane(ReplayedLane):
        def _begin(self) -> None:
            asked.append(self.worker.process)  # type: ignore[attr-defined]
            if len(asked) == 1:
                for worker in crew.workers:
                    worker.broken = True
                raise WorkerLost("gone")

    opening: Any = None
    lane = Lane(crew, crew.lease(1)[0], ({}, []), opening)
    assert asked == [1, 5] and lane.worker is crew.workers[0]
    assert [worker.process for worker in crew.workers] == [5, 7]


def test_successors_that_are_all_lost_end_it() -> None:
    crew = crew_of(*[None] * 100)
    crew.workers[0].broken = True
    with pytest.raises(WorkerLost, match="the node is gone"):
        crew.lease(1)
    assert crew.ray.started == 2 + 2 + MOST_LOST_AT_ONCE


def test_a_successor_of_another_version_is_refused() -> None:
    ours = described_machine()
    name = next(iter(ours["versions"]))
    crew = crew_of(ours | {"versions": ours["versions"] | {name: "0.0"}})
    crew.workers[0].broken = True
    with pytest.raises(BadInput, match=f"a worker process of the cluster has {name} 0.0"):
        crew.lease(1)
    assert crew.ray.killed == 1


def test_a_successor_with_another_processor_is_told_of() -> None:
    crew = crew_of(described_machine() | {"processor": "another one"})
    before = crew.notes
    crew.workers[0].broken = True
    crew.lease(1)
    assert before == () and "another one" in crew.notes[0]
