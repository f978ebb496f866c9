"""A model as a file for other tools: its parameters as safetensors, or ONNX, which takes rows as owners have them.

An ONNX file has the task's transforms inside, one input and two outputs:

    rows    float32 (any, features)   before the task's transforms; those are part of the file
    scores  float32 (any, outputs)    what the model computes; one output where the sign decides between two labels
    label   int64   (any,)            class number; the metadata has the names, in order

Where the target is a number there is, instead of `label`,

    value   float32 (any,)            the number in its own unit, never beyond its bounds; the metadata has both
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from crowdml.core import NUMPY, BadInput, Graph, Value, trees
from crowdml.core.errors import install
from crowdml.models import Parameters
from crowdml.task.task import Task
from crowdml.version import __version__

if TYPE_CHECKING:
    from onnx import NodeProto

    from crowdml.core.graphs import Step

OPSET, IR = 17, 8
"""Of 2022: every present runtime reads them."""
INPUT = "rows as owners have them: the task's transforms are inside"
MODEL_KINDS = (".safetensors", ".onnx")
"""What a model can be saved as."""


def require_model_kind(path: Path) -> None:
    """Refuse a file whose ending says no format that a model can be written in."""
    if path.suffix not in MODEL_KINDS:
        raise BadInput(f"{path} has no known ending for a model", hint="use " + " or ".join(MODEL_KINDS))


def model_file(
    path: Path,
    task: Task,
    arrays: Sequence[Mapping[str, npt.NDArray[Any]]],
    parameters: Parameters,
    metadata: Mapping[str, str],
) -> bytes:
    """Return what is written into a file of that ending; takes what `to_onnx` takes."""
    require_model_kind(path)
    if path.suffix != ".onnx":
        return to_safetensors(parameters, metadata)
    try:
        return to_onnx(task, arrays, parameters, metadata)
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise BadInput("ONNX cannot be written here", hint=install("onnx")) from None


def to_safetensors(parameters: Parameters, metadata: Mapping[str, str]) -> bytes:
    """Write a model's parameters, each under its path, as a safetensors file."""
    leaves = {path: np.ascontiguousarray(leaf) for path, leaf in trees.paths(parameters)}
    return save(leaves, metadata=dict(metadata))


def to_onnx(
    task: Task,
    arrays: Sequence[Mapping[str, npt.NDArray[Any]]],
    parameters: Parameters,
    metadata: Mapping[str, str],
) -> bytes:
    """Write a task's transforms and model as an ONNX file.

    Args:
        task: The task.
        arrays: For every transform what it learnt; empty for fixed ones.
        parameters: The model's parameters, over NumPy.
        metadata: Goes into the file's properties.
    """
    graph, rows = Graph(), "rows"
    for transform, learnt in zip(task.data.transform, arrays, strict=True):
        rows = transform.write(graph, rows, learnt)
    model = task.model_for(NUMPY)
    _, predicted = model.write(graph, parameters, rows)
    return _assemble(graph, task.data.features, model.loss.width, predicted, {"input": INPUT} | dict(metadata))


def _assemble(graph: Graph, features: int, width: int, predicted: Value, metadata: dict[str, str]) -> bytes:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    inside = helper.make_graph(
        [_node(step) for step in graph.steps],
        "crowdml",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["any", features])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["any", width]),
            helper.make_tensor_value_info(
                predicted, TensorProto.INT64 if predicted == "label" else TensorProto.FLOAT, ["any"]
            ),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in graph.constants.items()],
    )
    model = helper.make_model(
        inside,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="crowdml",
        producer_version=__version__,
    )
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    raw: bytes = model.SerializeToString()
    return raw


def _node(step: Step) -> NodeProto:
    """Write a step; types have names in a graph and numbers in a file."""
    from onnx import TensorProto, helper

    attributes = dict(step.attributes)
    if "to" in attributes:
        attributes["to"] = TensorProto.DataType.Value(attributes["to"])
    return helper.make_node(step.operator, step.inputs, [step.output], name=step.output, **attributes)
