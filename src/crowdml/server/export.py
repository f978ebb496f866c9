"""Export: the model as a file that other tools read, with what was promised in its metadata."""

from __future__ import annotations

import json
from typing import Literal

import numpy as np

from crowdml.algorithms.onnx_export import to_onnx
from crowdml.core import NUMPY, trees
from crowdml.models import unflatten
from crowdml.server.answers import Refusal
from crowdml.server.running import RunningTask
from crowdml.server.snapshot import Snapshot


def export(running: RunningTask, kind: Literal["safetensors", "onnx"]) -> bytes:
    """Write the model as the settled snapshot has it."""
    now = running.snapshot
    found = now.published.parameters
    like = running.live.task.model_for(NUMPY).zeros()
    parameters = unflatten(found, like) if isinstance(found, np.ndarray) else found
    metadata = metadata_of(running, now)
    if kind == "safetensors":
        from safetensors.numpy import save

        arrays = {path: np.ascontiguousarray(leaf) for path, leaf in trees.paths(parameters)}
        return save(arrays, metadata=metadata)
    try:
        return to_onnx(running.live.task, running.signed.open().arrays, parameters, metadata)
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise Refusal(501, "no-onnx", "this server cannot write ONNX", hint="pip install 'crowdml[onnx]'") from None


def metadata_of(running: RunningTask, now: Snapshot) -> dict[str, str]:
    """Say where a model comes from and what was promised to the owners behind it."""
    task = running.live.task
    privacy = task.privacy.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        "crowdml": "1",
        "task": running.name,
        "objective": task.objective,
        "labels": json.dumps(task.data.labels),
        "version": str(now.version),
        "check-ins": str(now.check_ins),
        "sheet": running.sheet_hash,
        "privacy": json.dumps(privacy) if task.privacy.mode == "sound" else "no formal guarantee",
    }
