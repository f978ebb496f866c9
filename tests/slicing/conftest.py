"""SliceNet's two nets, and small ones with everything that a slicer can meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdml.core import NUMPY
from crowdml.models import Model
from crowdml.task import load, parse

TASKS = Path(__file__).parents[2] / "src" / "crowdml" / "studies" / "tasks"


@pytest.fixture(scope="session")
def mlp() -> Model:
    return load(TASKS / "slicenet-mlp.toml").model_for(NUMPY)


@pytest.fixture(scope="session")
def cnn() -> Model:
    return load(TASKS / "slicenet-cnn.toml").model_for(NUMPY)


EVERYTHING = """
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
"""


def net(features: int, model: str) -> Model:
    """Build a model of three labels from the text of its section."""
    return parse(
        f'crowdml = 1\nname = "net"\n[data]\nfeatures = {features}\nlabels = ["a", "b", "c"]\n[model]\n{model}\n'
        '[algorithm]\nkind = "slicenet"\n[privacy]\nmode = "none"\n'
    ).model_for(NUMPY)


@pytest.fixture(scope="session")
def small() -> Model:
    """A net with every kind of layer: overlapping windows, both normalisations, dense and sparse convolutions."""
    return net(108, EVERYTHING)


@pytest.fixture(scope="session")
def plain() -> Model:
    """Two hidden layers and nothing else."""
    return net(12, 'kind = "mlp"\nlayers = [8, 6]')
