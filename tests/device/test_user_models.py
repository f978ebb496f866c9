"""A live task that learns a model of its operator's own: the server knows its layout alone, the device brings it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import crowdml
from crowdml.core import BadInput, trees
from crowdml.models.adapters.start_files import read_start
from crowdml.task import parse
from crowdml.task.live_task import definition_of
from crowdml.task.user_models import start_changes
from tests.device.conftest import TASK, FakeServer
from tests.support import user_models as same

jax = pytest.importorskip("jax")
CLIP = "privacy.clip=1.0"
OWN = "model={ kind = 'own', name = 'net' }"


def net(hidden: int = 4) -> Any:
    import jax.numpy as jnp

    def init(key: Any) -> Any:
        return {"w": jax.random.normal(key, (hidden, 3)), "v": jax.random.normal(key, (2, hidden)), "b": jnp.zeros(2)}

    def scores(p: Any, x: Any) -> Any:
        return p["v"] @ jnp.tanh(p["w"] @ x) + p["b"]

    return crowdml.JaxModel(
        init=init,
        loss=lambda p, x, y: -jax.nn.log_softmax(scores(p, x))[y],
        predict=lambda p, x: jnp.argmax(scores(p, x)),
    )


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    crowdml.save_start(parse(TASK), net(), tmp_path / "net.safetensors", seed=1)
    return tmp_path / "net.safetensors"


@pytest.fixture
def server(weights: Path) -> FakeServer:
    return FakeServer(OWN, CLIP, *start_changes(weights))


def test_a_device_with_the_model_learns_from_the_signed_weights(
    server: FakeServer, join: Any, rows: Any, weights: Path
) -> None:
    begun = dict(server.server.parameters[0])
    for name, array in load_file(weights).items():
        np.testing.assert_array_equal(begun[name], array)
    with crowdml.Device(join(server), connect=server.connect, model=net()) as device:
        summary = device.run(rows)
        assert summary.used == summary.releases > 0 and summary.spent.epsilon <= 6.0
    assert server.version == summary.used
    assert all(np.abs(server.server.parameters[0][name] - begun[name]).max() > 0 for name in begun)


def test_a_device_learns_with_a_module_of_flax(join: Any, rows: Any, tmp_path: Path) -> None:
    model = crowdml.FlaxModel(module=same.linen_mlp(4, 2))
    crowdml.save_start(parse(TASK), model, tmp_path / "flax.safetensors", seed=1)
    server = FakeServer(OWN, CLIP, *start_changes(tmp_path / "flax.safetensors"))
    begun = dict(server.server.parameters[0])
    with crowdml.Device(join(server), connect=server.connect, model=model) as device:
        summary = device.run(rows)
        assert summary.used == summary.releases > 0 and summary.spent.epsilon <= 6.0
    learnt = server.server.parameters[0]
    assert set(begun) == {f"Dense_{layer}.{name}" for layer in (0, 1) for name in ("kernel", "bias")}
    assert all(np.abs(learnt[name] - begun[name]).max() > 0 for name in begun)


def test_a_device_without_the_model_sends_nothing(server: FakeServer, join: Any) -> None:
    place = join(server)
    asked = len(server.requests)
    with pytest.raises(BadInput, match='a model of its operator\'s own, "net", which this device does not have'):
        crowdml.Device(place, connect=server.connect)
    assert len(server.requests) == asked


def test_a_device_with_another_layout_sends_nothing(server: FakeServer, join: Any) -> None:
    place = join(server)
    asked = len(server.requests)
    with pytest.raises(BadInput, match=r'the array "v": the task has \[2, 4\], the model here has \[2, 5\]'):
        crowdml.Device(place, connect=server.connect, model=net(5))
    assert len(server.requests) == asked


def test_a_model_is_not_taken_where_the_task_has_one(make_server: Any, join: Any) -> None:
    other = make_server()
    with pytest.raises(BadInput, match='learns a model of kind "softmax"'):
        crowdml.Device(join(other), connect=other.connect, model=net())


def test_the_server_refuses_to_show_rows_to_what_it_does_not_have(server: FakeServer) -> None:
    phase = server.live.algorithm.last
    from crowdml.core import Batch
    from crowdml.core.ops import ZeroCoins

    batch = Batch(rows=np.ones((4, 3), np.float32), targets=np.zeros(4, np.int32), mask=np.ones(4, np.float32))
    with pytest.raises(BadInput, match='this machine has no model "net"'):
        phase.device.step(server.part.check_out(server.server), phase.begin().work, batch, ZeroCoins())


def test_a_live_task_needs_first_weights() -> None:
    with pytest.raises(BadInput, match="a server begins with first weights whose layout is signed"):
        FakeServer("model={ kind = 'own', name = 'net', layout = { w = [2, 3] } }", CLIP)


def test_what_is_signed_needs_no_library(weights: Path) -> None:
    """A fresh process opens the task, and neither JAX nor PyTorch nor flax is imported."""
    definition = definition_of(parse(TASK, changes=[OWN, CLIP, *start_changes(weights)]))
    program = (
        "import sys, json\n"
        "from crowdml.task.live_task import open_task\n"
        "from crowdml.wire import TaskDocument\n"
        "definition = json.load(sys.stdin)\n"
        "live = open_task(TaskDocument(task='walk', incarnation=1, definition=definition, arrays=({},)))\n"
        "assert live.server.last.server\n"
        "found = {'jax', 'torch', 'flax', 'equinox'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    import json

    ran = subprocess.run([sys.executable, "-c", program], input=json.dumps(definition), text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr


def test_onnx_files_are_first_weights_too(tmp_path: Path, weights: Path) -> None:
    onnx = pytest.importorskip("onnx")
    arrays = read_start(weights)
    numbers = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    indices = onnx.numpy_helper.from_array(np.arange(3), "indices")
    graph = onnx.helper.make_graph([], "net", [], [], initializer=[*numbers, indices])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "net.onnx")
    found = read_start(tmp_path / "net.onnx")
    assert list(found) == list(arrays)
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    assert trees.size(found) == 4 * 3 + 2 * 4 + 2


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"abc")
    (tmp_path / "broken.onnx").write_bytes(b"abc")
    for name, words in (
        ("broken.safetensors", "cannot be read"),
        ("broken.onnx", "cannot be read|holds no weights"),
        ("missing.safetensors", "there is no file"),
        ("weights.bin", "it ends in .safetensors or .onnx"),
    ):
        with pytest.raises(BadInput, match=words):
            read_start(tmp_path / name)
    with pytest.raises(BadInput, match="holds float64 numbers"):
        read_start({"w": np.zeros(3)})
