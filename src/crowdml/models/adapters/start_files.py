"""Layout and first weights of a model of the user's own: read from a safetensors or an ONNX file, written, and as text.

As text they stand in the signed task: float32 numbers, little-endian, one array after the other in the order of their
names, in base64.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput
from crowdml.core.errors import install
from crowdml.core.ops import Coins
from crowdml.core.trees import Tree
from crowdml.models.layers import Shape
from crowdml.models.model import Model

Arrays = dict[str, npt.NDArray[np.float32]]

Layout = dict[str, Shape]
"""Shapes of a model's arrays, by name."""


def read_start(given: Path | str | Mapping[str, Any]) -> Arrays:
    """Return arrays by name, sorted.

    Args:
        given: A file that ends in .safetensors or .onnx, of which the initialisers are taken; or the arrays themselves.

    Raises:
        BadInput: There is no such file, it is of another kind, or its numbers are no finite float32 numbers.
    """
    if isinstance(given, Mapping):
        return _checked({name: np.asarray(array) for name, array in given.items()}, "the first weights")
    path = Path(given)
    readers = {".safetensors": _read_safetensors, ".onnx": _read_onnx}
    if path.suffix not in readers:
        raise BadInput(f"{path} is no file of weights", where="start", hint="it ends in .safetensors or .onnx")
    if not path.is_file():
        raise BadInput(f"there is no file {path}", where="start")
    return _checked(readers[path.suffix](path), str(path))


def _read_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found: dict[str, npt.NDArray[Any]] = load_file(path)
    except (SafetensorError, OSError, TypeError, KeyError) as error:
        raise BadInput(f"{path} cannot be read: {error}", where="start") from None
    return found


def _read_onnx(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        import onnx
        from onnx import numpy_helper
    except ModuleNotFoundError:
        raise BadInput(f"{path} needs the package onnx", where="start", hint=install("onnx")) from None
    try:
        graph = onnx.load(path).graph
    except Exception as error:  # its reader raises what protobuf raises
        raise BadInput(f"{path} cannot be read: {error}", where="start") from None
    arrays = {tensor.name: np.asarray(numpy_helper.to_array(tensor)) for tensor in graph.initializer}
    # Integers are shapes and indices of the graph, not weights.
    return {name: array for name, array in arrays.items() if np.issubdtype(array.dtype, np.floating)}


def _checked(arrays: Mapping[str, npt.NDArray[Any]], whose: str) -> Arrays:
    if not arrays:
        raise BadInput(f"{whose} holds no weights", where="start")
    for name, array in arrays.items():
        if array.dtype != np.float32:
            raise BadInput(f'{whose}: the array "{name}" holds {array.dtype} numbers, not float32', where="start")
        if not np.isfinite(array).all():
            raise BadInput(f'{whose}: not every number of the array "{name}" is finite', where="start")
    return {name: arrays[name] for name in sorted(arrays)}


def write_start(path: Path | str, arrays: Mapping[str, Any]) -> None:
    """Write arrays as a safetensors file."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}, path)


def to_text(arrays: Arrays) -> str:
    """Write arrays, whose layout is known, as text.

    >>> to_text({"b": np.ones(1, np.float32)})
    'AACAPw=='
    """
    joined = b"".join(np.ascontiguousarray(arrays[name], "<f4").tobytes() for name in sorted(arrays))
    return base64.b64encode(joined).decode("ascii")


def from_text(text: str, layout: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Read what `to_text` wrote.

    >>> from_text("AACAPw==", {"b": (1,)})
    {'b': array([1.], dtype=float32)}
    """
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise BadInput("the first weights are not written in base64", where="model.start") from None
    sizes = {name: int(np.prod(layout[name], dtype=np.int64)) for name in sorted(layout)}
    if len(raw) != 4 * sum(sizes.values()):
        raise BadInput(
            f"the first weights are {len(raw)} bytes, and the layout has {sum(sizes.values())} numbers of 4 bytes",
            where="model.start",
            hint="crowdml task create --start FILE writes both",
        )
    numbers, found, at = np.frombuffer(raw, "<f4").astype(np.float32), {}, 0
    for name, size in sizes.items():
        found[name] = numbers[at : at + size].reshape(layout[name])
        at += size
    return _checked(found, "model.start")


def require_layout(wanted: Layout, found: Layout, whose: str) -> None:
    """Refuse a layout that is not the one of the task; name the first difference."""
    for name in sorted({*wanted, *found}):
        if wanted.get(name) == found.get(name):
            continue
        said = {
            "the task": list(wanted[name]) if name in wanted else "no such array",
            whose: list(found[name]) if name in found else "no such array",
        }
        raise BadInput(
            f'the array "{name}": ' + ", ".join(f"{who} has {what}" for who, what in said.items()),
            where="model.layout",
            hint="both must be the same model, written in the same way",
        )


def layout_of(model: Model) -> Layout:
    """Return the shapes of a model of the user's own."""
    (arrays,) = model.zeros()
    return {name: tuple(np.shape(array)) for name, array in sorted(arrays.items())}


def begun_with(model: Model, arrays: Mapping[str, Any]) -> Model:
    """Return the same model, which begins with given weights."""

    def init(coins: Coins, stage: str) -> Tree:
        return {name: model.ops.xp.asarray(array) for name, array in arrays.items()}

    (layer,) = model.layers
    return dataclasses.replace(model, layers=(dataclasses.replace(layer, init=init),))


def begun_at(model: Model, start: Path | str | Mapping[str, Any] | None) -> Model:
    """Return the same model, which begins with the weights of a file where one is named; refuse those of another."""
    if start is None:
        return model
    arrays = read_start(start)
    require_layout(layout_of(model), {name: tuple(array.shape) for name, array in arrays.items()}, "the file")
    return begun_with(model, arrays)
