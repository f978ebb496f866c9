"""A sliced net has the gradients of the whole one, in float64 up to the order of additions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.core import Batch, trees
from crowdml.models import Model
from crowdml.simulation.slices.sliced import first_parameters
from crowdml.slicing import SlicedNet, batch_gradients, cost_graph, cut, sliced_net


def parameters_of(model: Model) -> Any:
    """First parameters in double precision, moved a little so that no scale is 1 and no shift 0."""
    generator = np.random.default_rng(1)
    return trees.map(
        lambda leaf: leaf.astype(np.float64) + 0.05 * generator.random(leaf.shape), first_parameters(model, 0, 0)
    )


def batch_of(model: Model, size: int) -> Batch:
    """A batch with padding at its end."""
    generator = np.random.default_rng(2)
    mask = np.ones(size)
    mask[-1] = 0
    labels = generator.integers(0, model.loss.width, size)
    return Batch(rows=generator.random((size, model.features)), targets=labels, mask=mask)


def whole(model: Model, parameters: Any, batch: Batch) -> Any:
    return model.gradients(parameters, batch).total(batch.mask / batch.mask.sum())


def assert_equal(left: Any, right: Any) -> None:
    """Equal to 1e-12 of the largest number of each layer; single numbers of a layer may be 0 by their nature."""
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        assert set(one) == set(other)
        scale = max((float(np.abs(leaf).max()) for leaf in other.values()), default=1.0)
        for name in other:
            assert np.abs(one[name] - other[name]).max() <= 1e-12 * scale, f"layer {number}, {name}"


def net_of(model: Model, pieces: int, slicer: str, balance: float = 1.05) -> SlicedNet:
    graph = cost_graph(model)
    return sliced_net(model, cut(graph, pieces, slicer, balance), graph)


@pytest.mark.parametrize("pieces", [5, 10, 15, 20])
@pytest.mark.parametrize("slicer", ["in-order", "metis"])
def test_the_mlp(mlp: Model, slicer: str, pieces: int) -> None:
    parameters, batch = parameters_of(mlp), batch_of(mlp, 8)
    made = net_of(mlp, pieces, slicer).gradients(parameters, batch)
    assert_equal(made.gradient, whole(mlp, parameters, batch))


@pytest.mark.parametrize("pieces", [5, 10, 15, 20])
@pytest.mark.parametrize("slicer", ["in-order", "metis"])
def test_the_cnn(cnn: Model, slicer: str, pieces: int) -> None:
    parameters, batch = parameters_of(cnn), batch_of(cnn, 2)
    made = net_of(cnn, pieces, slicer).gradients(parameters, batch)
    assert_equal(made.gradient, whole(cnn, parameters, batch))


@pytest.mark.parametrize("pieces", [0, 1, 2, 4])
def test_every_kind_of_layer(small: Model, pieces: int) -> None:
    parameters, batch = parameters_of(small), batch_of(small, 5)
    made = net_of(small, pieces, "in-order", 3.0).gradients(parameters, batch)
    assert_equal(made.gradient, whole(small, parameters, batch))
    np.testing.assert_allclose(made.outputs[:, :-1], small.gradients(parameters, batch).outputs[:, :-1], rtol=1e-12)


def test_an_owner_knows_the_weights_that_leave_its_neurons_and_no_others(small: Model) -> None:
    net, parameters = net_of(small, 4, "in-order", 3.0), parameters_of(small)
    for stage, pieces in zip(net.graph.stages, net.parts, strict=True):
        weights = parameters[stage.linear]
        held = np.zeros_like(weights["w"])
        for part in pieces:
            mine = np.zeros_like(weights["w"])
            mine.reshape(-1)[part.positions] = 1
            spoilt = {"w": np.where(mine > 0, weights["w"], 1e9)}
            taken = part.take(spoilt, 5)
            assert np.abs(taken["w"]).max() < 1e6
            assert np.array_equal(part.unpack(part.pack(taken))["w"], taken["w"])
            held += mine
        # Nobody's weights are missing. Channels are not split here, so none is held twice.
        assert (held == 1).all()


def without_batch_norm(model: Model) -> Model:
    from crowdml.models.layers.normalisation import BatchNorm
    from crowdml.models.model import build

    declared = tuple(layer for layer in model.declared if not isinstance(layer, BatchNorm))
    return build(declared, model.loss, model.features, model.ops, model.shape)


def test_micro_batches_change_nothing_without_batch_normalisation(small: Model) -> None:
    model = without_batch_norm(small)
    parameters, batch = parameters_of(model), batch_of(model, 7)
    net = net_of(model, 3, "in-order", 3.0)
    made = batch_gradients(net, parameters, batch, micro_batches=3, normalisation="pipelined")
    assert_equal(made.gradient, whole(model, parameters, batch))


def test_exact_normalisation_waits_for_the_whole_batch_and_pipelined_does_not(small: Model) -> None:
    parameters, batch = parameters_of(small), batch_of(small, 8)
    net = net_of(small, 3, "in-order", 3.0)
    exact = batch_gradients(net, parameters, batch, micro_batches=2, normalisation="exact")
    assert_equal(exact.gradient, whole(small, parameters, batch))
    pipelined = batch_gradients(net, parameters, batch, micro_batches=2, normalisation="pipelined")
    halves = [
        Batch(rows=batch.rows[part], targets=batch.targets[part], mask=batch.mask[part])
        for part in (slice(4), slice(4, 8))
    ]
    first, second = (whole(small, parameters, half) for half in halves)
    assert_equal(pipelined.gradient, trees.map(lambda a, b: (4 * a + 3 * b) / 7, first, second))
    with pytest.raises(AssertionError):
        assert_equal(pipelined.gradient, exact.gradient)
