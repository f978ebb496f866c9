"""SliceNet's two nets, and small ones with everything that a slicer can meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdml.algorithms import load, parse
from crowdml.core import NUMPY
from crowdml.models import Model

TASKS = Path(__file__).parents[2] / "src" / "crowdml" / "studies" / "tasks"


@pytest.fixture(scope="session")
def mlp() -> Model:
    return load(TASKS / "slicenet-mlp.toml").model_for(NUMPY)


@pytest.fixture(scope="session")
def cnn() -> Model:
    return load(TASKS / "slicenet-cnn.toml").model_for(NUMPY)


SMALL = """
crowdml = 1
name = "small"
[data]
features = 108
labels = ["a", "b", "c"]
[model]
kind = "layers"
shape = [6, 6, 3]
layers = [
  { kind = "batch-norm" },
  { kind = "convolution", size = 8, kernel = 3, connections = 2 },
  { kind = "batch-norm" },
  { kind = "relu" },
  { kind = "pooling", size = 3, stride = 2, padding = "same" },
  { kind = "convolution", size = 6, kernel = 2 },
  { kind = "group-norm", groups = 3 },
  { kind = "tanh" },
  { kind = "pooling", of = "average", size = 3 },
  { kind = "flatten" },
  { kind = "dense", size = 12 },
  { kind = "batch-norm" },
  { kind = "relu" },
  { kind = "dense", size = 9 },
  { kind = "group-norm", groups = 3 },
  { kind = "sigmoid" },
  { kind = "dense", size = 3 },
]
[algorithm]
kind = "slicenet"
[privacy]
mode = "none"
"""


@pytest.fixture(scope="session")
def small() -> Model:
    """A net with every kind of layer: overlapping windows, both normalisations, dense and sparse convolutions."""
    return parse(SMALL).model_for(NUMPY)


PLAIN = """
crowdml = 1
name = "plain"
[data]
features = 12
labels = ["a", "b", "c"]
[model]
kind = "mlp"
layers = [8, 6]
[algorithm]
kind = "slicenet"
[privacy]
mode = "none"
"""


@pytest.fixture(scope="session")
def plain() -> Model:
    """Two hidden layers and nothing else."""
    return parse(PLAIN).model_for(NUMPY)
