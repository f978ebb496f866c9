"""What the server hands out of a task: its public state as JSON, and its model as a file that other tools read.

Whatever a stranger may read is serialised once for each snapshot, however often it is asked for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Literal

from crowdml.models import Own
from crowdml.server.refusals import Refusal
from crowdml.server.store import Store
from crowdml.server.tasks.figures.learning_curve import CurvePoint, LearningCurve
from crowdml.server.tasks.figures.statistics import statistics_of
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import Snapshot
from crowdml.task.model_files import to_onnx, to_safetensors


class Documents:
    """What strangers read about tasks, as bytes of JSON.

    Args:
        store: Has the learning curves.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: dict[tuple[str, int], tuple[object, bytes]] = {}
        self._curves: dict[int, LearningCurve] = {}

    def tasks(self, all_tasks: Iterable[RunningTask]) -> bytes:
        """List the tasks."""
        return b'{"tasks":[' + b",".join(map(self.summary, all_tasks)) + b"]}"

    def task(self, running: RunningTask) -> bytes:
        """Tell everything public about a task. What was signed never changes, and may be long."""
        key = ("signed", running.id)
        if key not in self._made:
            self._made[key] = (None, _write(running.envelope())[1:])
        return self.summary(running)[:-1] + b"," + self._made[key][1]

    async def curve(self, running: RunningTask) -> bytes:
        """Tell the learning curve, as far as the snapshot has come."""
        now, key = running.snapshot, ("curve", running.id)
        known = self._made.get(key)
        if known is None or known[0] != now.last_point:
            points = [point.to_json() for point in await self.points(running, now)]
            known = self._made[key] = (now.last_point, _write({"curve": points}))
        return known[1]

    async def points(self, running: RunningTask, now: Snapshot) -> list[CurvePoint]:
        """Return the learning curve up to a snapshot; of the store only what is new is asked for."""
        curve = self._curves.setdefault(running.id, LearningCurve(running.noise_variance))
        if not curve.points or curve.points[-1].stored.version < now.last_point:
            fresh = await asyncio.to_thread(self._store.points, running.id, curve.check_ins)
            curve.extend(point for point in fresh if point.version <= running.snapshot.version)
        return [point for point in curve.points if point.stored.version <= now.version]

    def statistics(self, running: RunningTask) -> bytes:
        """Tell what may be shown of a task beyond its summary."""
        mark, key = running.shown, ("statistics", running.id)
        known = self._made.get(key)
        if known is None or known[0] != mark:
            found = statistics_of(running, running.snapshot)
            known = self._made[key] = (mark, _write(found.to_json(running.name)))
        return known[1]

    def summary(self, running: RunningTask) -> bytes:
        """Tell how a task stands."""
        mark, key = running.shown, ("summary", running.id)
        known = self._made.get(key)
        if known is None or known[0] != mark:
            known = self._made[key] = (mark, _write(running.summary()))
        return known[1]


def export_model(running: RunningTask, kind: Literal["safetensors", "onnx"]) -> bytes:
    """Write the model as the settled snapshot has it."""
    now = running.snapshot
    parameters = running.parameters(now.published)
    metadata = _metadata_of(running, now)
    if kind == "safetensors":
        # Of a model of the user's own the library's names are left, so that it reads the file as one of its own.
        named = parameters[0] if isinstance(running.live.task.model, Own) else parameters
        return to_safetensors(named, metadata)
    try:
        return to_onnx(running.live.task, running.signed.open().arrays, parameters, metadata)
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise Refusal(
            501, "no-onnx", "this server cannot write ONNX", hint="its operator can add crowdml's extra onnx"
        ) from None


def _metadata_of(running: RunningTask, now: Snapshot) -> dict[str, str]:
    """Say where a model comes from and what was promised to the owners behind it."""
    task = running.live.task
    privacy = task.privacy.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        "crowdml": "1",
        "task": running.name,
        "objective": task.objective,
        **task.target.metadata,
        "version": str(now.version),
        "check-ins": str(now.check_ins),
        "task_hash": running.task_hash,
        "privacy": json.dumps(privacy) if running.live.plan.terms.promised else "no formal guarantee",
        **running.promise.metadata,
    }


def _write(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
