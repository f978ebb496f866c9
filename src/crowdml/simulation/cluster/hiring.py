"""Hiring a crew: workers of this machine, or of a cluster, which is joined or started for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from crowdml.simulation.workers.crew import HERE, Crew


def hire(on: str | Crew | None) -> AbstractContextManager[Crew]:
    """Return the crew that `on` names, to be let go at the end; one that was hired before stays.

    Args:
        on: None: processes of this machine. `"ray"`: a Ray cluster that is started and stopped. Otherwise the address
            of one: `ray://…`, or `HOST:PORT` of its head. Or a crew.
    """
    if on is None:
        return nullcontext(HERE)
    if not isinstance(on, str):
        return nullcontext(on)
    return _hire_ray(on)


@contextmanager
def _hire_ray(on: str) -> Iterator[Crew]:
    """Hire workers of a cluster, and let them go; a cluster that was started for it is stopped.

    Args:
        on: `ray`, `ray://HOST:PORT` or `HOST:PORT`.
    """
    from crowdml.simulation.cluster.connection import connected
    from crowdml.simulation.cluster.ray_crew import RayCrew

    with connected(on) as ray:
        crew = RayCrew(ray)
        try:
            yield crew
        finally:
            crew.close()
