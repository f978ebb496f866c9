"""Result files: arrays as safetensors, words as JSON in their header. Nothing in them can run when they are read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import NUMPY, BadInput, Tally, trees
from crowdml.core.files import write_whole
from crowdml.core.ops import Tree
from crowdml.models import Own
from crowdml.models.adapters.start_files import layout_of
from crowdml.simulation.reporting.course import RunCourse
from crowdml.task import Task

FORMAT = "crowdml-result-1"

Arrays = Mapping[str, npt.NDArray[Any]]


def write_result(path: Path, words: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a file, whole or not at all."""
    from safetensors.numpy import save

    tables = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(words)
    metadata = {"format": FORMAT, "words": text, "sha256": _checksum(text, tables)}
    write_whole(path, save(tables, metadata=metadata))


def _checksum(words: str, arrays: Arrays) -> str:
    """Return what a changed byte anywhere in words or arrays would change."""
    found = hashlib.sha256(words.encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def read_result(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read what `write_result` wrote.

    Raises:
        BadInput: There is no such file, or it is damaged, or something else.
    """
    import safetensors

    if not path.is_file():
        what = f"{path} is a folder" if path.is_dir() else f"there is no file {path}"
        raise BadInput(what, hint="give a file that Result.save has written")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        if metadata.get("format") != FORMAT:
            raise BadInput(
                f"{path} is not the result of a simulation ({metadata.get('format', 'no format is named')})",
                hint=f"give a file that Result.save has written: {FORMAT}",
            )
        words: dict[str, Any] = json.loads(metadata["words"])
        if metadata.get("sha256", "") not in ("", _checksum(metadata["words"], arrays)):  # files of before have none
            raise ValueError("its checksum is another")
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise damaged(path, error) from None
    return words, arrays


def damaged(path: Path, error: Exception) -> BadInput:
    """Say that a file cannot be read as a result."""
    why = " ".join(str(error).split()) or type(error).__name__
    return BadInput(f"{path} is damaged, or no result: {why}", hint="save it again: Result.save(path)")


_WORDS: tuple[str, ...] = ("seed", "trials", "privacy", "updates", "engine", "processes", "notes", "warnings")
_WORDS += ("run_seconds", "compile_seconds", "relay")
_OPTIONAL = ("times", "device_errors")
_TALLY = tuple(field.name for field in dataclasses.fields(Tally))
_COURSE = ("versions", "sent", "uses", "releases", "seconds")


def result_parts(result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the words and the arrays of a `Result`, without its averages."""
    arrays: dict[str, Any] = {"samples": result.samples}
    arrays |= {f"measured/{name}": values for name, values in result.measured.items()}
    arrays |= {f"parameters/{name}": np.asarray(leaf) for name, leaf in trees.paths(result.parameters)}
    arrays |= {f"baselines/{name}": values for name, values in result.baselines.items()}
    for at, learnt in enumerate(result.transforms):
        arrays |= {f"transforms/{at}/{name}": values for name, values in learnt.items()}
    if isinstance(result.counts, Tally):
        arrays |= {f"counts/{name}": np.asarray(getattr(result.counts, name)) for name in _TALLY}
    arrays |= {name: getattr(result, name) for name in _OPTIONAL if getattr(result, name) is not None}
    task = result.task.model_dump(mode="json", by_alias=True)
    if isinstance(result.task.model, Own):  # who reads it may not have the model: its layout is enough for all figures
        task["model"]["layout"] = layout_of(result.task.model_for(NUMPY))
    words = {name: getattr(result, name) for name in _WORDS} | {"task": task}
    words["transforms"], words["measured"] = len(result.transforms), list(result.measured)  # a file sorts its arrays
    if result.course is not None:
        course = dataclasses.asdict(result.course)
        arrays |= {f"course/{name}": course.pop(name) for name in _COURSE}
        words["course"] = course
    return words, arrays


def restored_parts(words: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a result, without its averages, from what stood in a file."""

    def below(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}

    task = Task.model_validate(without_none(words.pop("task")))
    like, learnt = task.model_for(NUMPY).zeros(), below("parameters/")
    course, tally = words.pop("course", None), below("counts/")
    names = [name for name, _ in trees.paths(like)]
    if sorted(names) != sorted(learnt):
        raise ValueError("its parameters are not those of its model")
    _require_shapes(like, learnt, arrays, int(words["trials"]))
    if words["transforms"] != len(task.data.transform):
        raise ValueError(f"it has {words['transforms']} transforms, and its task {len(task.data.transform)}")
    return dict(
        task=task,
        samples=arrays["samples"],
        measured={name: arrays[f"measured/{name}"] for name in words.pop("measured", below("measured/"))},
        parameters=trees.fill(like, iter([learnt[name] for name in names])),
        baselines=below("baselines/"),
        transforms=tuple(below(f"transforms/{at}/") for at in range(words.pop("transforms"))),
        counts=Tally(**tally) if tally else (),
        course=RunCourse(**below("course/"), **course) if course else None,
        notes=tuple(words.pop("notes")),
        warnings=tuple(words.pop("warnings")),
        **{name: arrays[name] for name in _OPTIONAL if name in arrays},
        **words,
    )


def _require_shapes(like: Tree, learnt: Mapping[str, Any], arrays: Mapping[str, Any], trials: int) -> None:
    """Refuse arrays that do not fit the model, the points of the curve, or the number of trials."""
    if "measured/test_error" not in arrays:
        raise ValueError("no test errors are there")
    for name, leaf in trees.paths(like):
        shape = learnt[name].shape
        if shape[:1] != (trials,) or shape[len(shape) - np.ndim(leaf) :] != np.shape(leaf):
            raise ValueError(f"its parameters {name} have shape {shape}")
    for name, values in arrays.items():
        expected = (len(arrays["samples"]), trials)
        if name.startswith(("measured/", "course/")) and values.shape not in (expected, expected[:1]):
            raise ValueError(f"{name} has shape {values.shape}, and {expected} was expected")
    if "times" in arrays and arrays["times"].shape != (len(arrays["samples"]), trials):
        raise ValueError(f"times has shape {arrays['times'].shape}")
    missing = [name for name in _COURSE if f"course/{name}" not in arrays]
    if any(name.startswith("course/") for name in arrays) and missing:
        raise ValueError(f"there is no course/{missing[0]}")


def without_none(value: Any) -> Any:
    """Leave out what was not given: a section need not accept the absence it has as its default."""
    if isinstance(value, dict):
        return {name: without_none(each) for name, each in value.items() if each is not None}
    return [without_none(each) for each in value] if isinstance(value, list) else value
