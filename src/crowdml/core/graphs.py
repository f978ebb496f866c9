"""Graph: a calculation written down step by step, in the words of ONNX.

Layers and transforms write themselves into a graph, so that a model can leave crowdml as a file that other tools run.
Nothing here needs the onnx package: a graph is a list of steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core.records import record

Value = str
"""The name of something that a graph computes: whatever comes out of one step and goes into others."""


@record
class Step:
    """One operation.

    Attributes:
        operator: Its name in ONNX.
        inputs: What goes in.
        output: What comes out.
        attributes: Whatever else the operator wants to know.
    """

    operator: str
    inputs: tuple[Value, ...]
    output: Value
    attributes: dict[str, Any]


class Graph:
    """Steps in order, and the arrays they use.

    >>> graph = Graph()
    >>> graph.add("Mul", "rows", graph.constant(np.float32(2.0)), name="doubled")
    'doubled'
    >>> [step.operator for step in graph.steps]
    ['Mul']
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.constants: dict[Value, npt.NDArray[Any]] = {}

    def constant(self, value: Any) -> Value:
        """Keep an array and return its name. Arrays of floats are float32 unless they come as float64 arrays."""
        array = np.asarray(value)
        name = f"constant/{len(self.constants)}"
        self.constants[name] = array.astype(np.int64) if array.dtype.kind in "iu" else array
        return name

    def add(self, operator: str, *inputs: Value, name: Value = "", **attributes: Any) -> Value:
        """Add a step and return the name of its output."""
        output = name or f"step/{len(self.steps)}"
        self.steps.append(Step(operator=operator, inputs=inputs, output=output, attributes=attributes))
        return output
