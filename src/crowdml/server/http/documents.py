"""What the server hands out of a task: its public state as JSON, and its model as a file that other tools read.

Whatever a stranger may read is serialised once for each snapshot, however often it is asked for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from crowdml.core import NUMPY, trees
from crowdml.models import Own
from crowdml.server.refusals import Refusal
from crowdml.server.store import Store
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import Snapshot
from crowdml.task.onnx_export import to_onnx


class Documents:
    """What strangers read about tasks, as bytes of JSON.

    Args:
        store: Has the learning curves.
    """

    def __init__(self, store: Store) -> None:
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
            shown = running.curve(point for point in points if point.version <= now.version)
            known = self._made[key] = (now.last_point, _write({"curve": shown}))
        return known[1]

    def _summary(self, running: RunningTask) -> bytes:
        now, key = running.snapshot, ("summary", running.id)
        known = self._made.get(key)
        if known is None or known[0] is not now:
            known = self._made[key] = (now, _write(running.summary(now)))
        return known[1]


def export_model(running: RunningTask, kind: Literal["safetensors", "onnx"]) -> bytes:
    """Write the model as the settled snapshot has it."""
    now = running.snapshot
    found = now.published.parameters
    like = running.live.task.model_for(NUMPY).zeros()
    parameters = trees.cut(found, like) if isinstance(found, np.ndarray) else found
    metadata = _metadata_of(running, now)
    if kind == "safetensors":
        from safetensors.numpy import save

        # Of a model of the user's own the library's names are left, so that it reads the file as one of its own.
        named = parameters[0] if isinstance(running.live.task.model, Own) else parameters
        arrays = {path: np.ascontiguousarray(leaf) for path, leaf in trees.paths(named)}
        return save(arrays, metadata=metadata)
    try:
        return to_onnx(running.live.task, running.signed.open().arrays, parameters, metadata)
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise Refusal(501, "no-onnx", "this server cannot write ONNX", hint="pip install 'crowdml[onnx]'") from None


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
