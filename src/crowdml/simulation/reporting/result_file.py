"""Result files: arrays as safetensors, words as JSON in their header. Nothing in them can run when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput
from crowdml.core.files import write_whole

FORMAT = "crowdml-result-1"

Arrays = Mapping[str, npt.NDArray[Any]]


def write_result(path: Path, words: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a file, whole or not at all."""
    from safetensors.numpy import save

    tables = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_whole(path, save(tables, metadata={"format": FORMAT, "words": json.dumps(words)}))


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
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise damaged(path, error) from None
    return words, arrays


def damaged(path: Path, error: Exception) -> BadInput:
    """Say that a file cannot be read as a result."""
    why = " ".join(str(error).split()) or type(error).__name__
    return BadInput(f"{path} is damaged, or no result: {why}", hint="save it again: Result.save(path)")
