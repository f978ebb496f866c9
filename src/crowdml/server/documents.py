"""Documents that a stranger may read: serialised once for each snapshot, however often they are asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from crowdml.server.running import RunningTask
from crowdml.server.store import Store


class Documents:
    """What strangers read about tasks, as bytes of JSON.

    Args:
        store: Has the learning curves.
    """

    def __init__(self, store: Store) -> None:
        """Begin with nothing serialised."""
        self._store = store
        self._made: dict[tuple[str, int], tuple[object, bytes]] = {}

    def tasks(self, all_tasks: Iterable[RunningTask]) -> bytes:
        """List the tasks."""
        return b'{"tasks":[' + b",".join(map(self._summary, all_tasks)) + b"]}"

    def task(self, running: RunningTask) -> bytes:
        """Tell everything public about a task. What was signed never changes, and may be long."""
        key = ("signed", running.id)
        if key not in self._made:
            self._made[key] = (None, _write(running.envelope())[1:])
        return self._summary(running)[:-1] + b"," + self._made[key][1]

    async def curve(self, running: RunningTask) -> bytes:
        """Tell the learning curve, as far as the snapshot has come."""
        now, key = running.snapshot, ("curve", running.id)
        known = self._made.get(key)
        if known is None or known[0] != now.last_point:
            points = await asyncio.to_thread(self._store.points, running.id)
            shown = running.errors.curve(point for point in points if point.version <= now.version)
            known = self._made[key] = (now.last_point, _write({"curve": shown}))
        return known[1]

    def _summary(self, running: RunningTask) -> bytes:
        now, key = running.snapshot, ("summary", running.id)
        known = self._made.get(key)
        if known is None or known[0] is not now:
            known = self._made[key] = (now, _write(running.summary(now)))
        return known[1]


def _write(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
