"""Models of flax, equinox and plain JAX against the same layers of ours: outputs, gradients, norms, first weights."""

from __future__ import annotations

import importlib.util
from typing import Any, cast

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Batch, Number, trees
from crowdml.models.adapters import EquinoxModel, FlaxModel, JaxModel, TorchModel, UserModel, adapt
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX
from tests.support import user_models as same
from tests.support.targets import some_labels

# isort: split
import jax
import jax.numpy as jnp

ROWS = 7
TARGET = some_labels(same.CLASSES)
WEIGHTS = np.linspace(-1, 1, ROWS).astype(np.float32)


def _log_loss(outputs: Any, targets: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[:, None].astype(int), 1)[:, 0]


KINDS: dict[str, tuple[Any, Any]] = {
    "linen": (lambda: FlaxModel(module=same.linen_mlp()), same.linen_arrays),
    "linen with a loss": (lambda: FlaxModel(module=same.linen_mlp(), loss=_log_loss), same.linen_arrays),
    "nnx": (lambda: FlaxModel(module=same.nnx_mlp), same.nnx_arrays),
    "equinox": (lambda: EquinoxModel(module=same.equinox_mlp), same.equinox_arrays),
    "functions": (lambda: JaxModel(**same.jax_functions()), same.jax_arrays),
    "functions without predict": (
        lambda: JaxModel(**{k: v for k, v in same.jax_functions().items() if k != "predict"}),
        same.jax_arrays,
    ),
}


def batch() -> Batch:
    rng = np.random.default_rng(4)
    rows = rng.normal(0, 1, (ROWS, same.FEATURES)).astype(np.float32)
    return Batch(rows=rows, targets=np.resize(np.arange(3), ROWS).astype(np.int32), mask=np.ones(ROWS, np.float32))


def close(found: Any, expected: Any) -> None:
    scale = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5 * scale)


def looked_at(source: UserModel, ops: Any, named: Any) -> dict[str, Any]:
    """Everything that somebody may ask of a model, as one function; traced as a whole where it can be."""
    model, here = source.build(same.FEATURES, TARGET, ops), batch()

    def ask(at: Any) -> dict[str, Any]:
        plain, found = model.gradients(at, here), model.gradients(at, here)
        return {
            "predicted": model.predict(at, ops.xp.asarray(here.rows)),
            "counted": model.loss.predict(found.outputs),
            "total": plain.total(WEIGHTS)[0],
            "norms": [found.norms(order, ops) for order in (2, 1)],
            "rows": found.rows()[0],
            "total of rows": found.total(WEIGHTS)[0],  # norms were asked for: it is that of single rows
        }

    at = (named(same.first(same.ours())),)
    return (jax.jit(ask) if ops is JAX else ask)(at)


@pytest.mark.parametrize(
    ("kind", "ops"), [(kind, NUMPY) for kind in KINDS] + [(kind, JAX) for kind in ("linen", "equinox", "functions")]
)
def test_the_same_mlp_has_the_same_gradients_norms_and_predictions(kind: str, ops: Any) -> None:
    make, named = KINDS[kind]
    parameters, here = same.first(same.ours()), batch()
    expected = same.ours().gradients(parameters, here)
    found = looked_at(make(), ops, named)
    for name in ("predicted", "counted"):
        np.testing.assert_array_equal(found[name], same.ours().predict(parameters, here.rows))
    for norms, order in zip(found["norms"], (2, 1), strict=True):
        close(norms, expected.norms(order, NUMPY))
    wanted = named(expected.total(WEIGHTS))
    assert set(found["total"]) == set(found["total of rows"]) == set(wanted)
    for name, array in wanted.items():
        close(found["total"][name], array)
        close(found["total of rows"][name], array)
    for index in range(ROWS):
        one = tuple({name: leaf[index] for name, leaf in layer.items()} for layer in expected.rows())
        for name, array in named(one).items():
            close(found["rows"][name][index], array)


def test_losses_of_labels_are_measured_where_they_predict() -> None:
    parameters, here = same.first(same.ours()), batch()
    model, ours = KINDS["functions without predict"][0]().build(same.FEATURES, TARGET, NUMPY), same.ours()
    found = model.loss.values(model.outputs((same.jax_arrays(parameters),), here.rows), here.targets)
    close(found, ours.loss.values(ours.outputs(parameters, here.rows), here.targets))
    silent = KINDS["functions"][0]().build(same.FEATURES, TARGET, NUMPY)
    with pytest.raises(BadInput, match=r"does not follow from what it predicts\n  leave predict out, or loss out of"):
        silent.loss.values(np.zeros((1, ROWS), np.float32), here.targets)


def test_arrays_that_are_no_biases_decay() -> None:
    model = FlaxModel(module=same.linen_mlp()).build(same.FEATURES, TARGET, NUMPY)
    (decay,) = model.regulariser(trees.map(np.ones_like, model.zeros()), 0.5)
    assert decay["Dense_0.kernel"].min() == 0.5 and decay["Dense_0.bias"].max() == 0.0


@pytest.mark.parametrize("kind", ["linen", "nnx", "functions"])
def test_first_weights_follow_the_coins_and_are_those_of_compiled_code(kind: str) -> None:
    source = KINDS[kind][0]()
    made = source.build(same.FEATURES, TARGET, NUMPY)
    (one,), (two,) = (made.init(HashCoins(trial_seed(0, trial), 0, NUMPY)) for trial in (0, 1))
    name = max(one, key=lambda name: one[name].ndim)
    assert np.abs(one[name] - two[name]).max() > 0.01
    traced = source.build(same.FEATURES, TARGET, JAX)
    (again,) = jax.jit(lambda words: traced.init(HashCoins(words, 0, JAX)))(trial_seed(0, 0))
    for name, array in one.items():
        np.testing.assert_allclose(array, again[name], rtol=1e-5, atol=1e-6)


def test_modules_are_known_without_being_wrapped() -> None:
    from flax import nnx

    assert isinstance(adapt(same.linen_mlp()), FlaxModel)
    assert isinstance(adapt(same.nnx_mlp(nnx.Rngs(0))), FlaxModel)
    assert isinstance(adapt(same.equinox_mlp(jax.random.key(0))), EquinoxModel)
    with pytest.raises(BadInput, match="dict is no model that crowdml knows"):
        adapt({})


def test_a_module_begins_with_the_weights_it_has_or_those_of_a_file() -> None:
    from flax import nnx

    module = same.nnx_mlp(nnx.Rngs(3))
    (begun,) = FlaxModel(module=module).build(same.FEATURES, TARGET, NUMPY).init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    np.testing.assert_array_equal(begun["first.kernel"], module.first.kernel[...])
    given = same.linen_arrays(same.first(same.ours()))
    source = FlaxModel(module=same.linen_mlp(), start=given)
    (begun,) = source.build(same.FEATURES, TARGET, NUMPY).init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    np.testing.assert_array_equal(begun["Dense_0.bias"], given["Dense_0.bias"])


def test_pictures_and_numbers() -> None:
    from flax import linen

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.relu(linen.Conv(3, (3, 3))(x))
            return linen.Dense(1)(x.reshape((x.shape[0], -1)))

    model = FlaxModel(module=Net(), shape=(4, 4, 2)).build(32, Number(name="°C", low=0.0, high=10.0), NUMPY)
    parameters = model.init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    rows = np.random.default_rng(0).normal(0, 1, (3, 32)).astype(np.float32)
    here = Batch(rows=rows, targets=np.zeros(3, np.float32), mask=np.ones(3, np.float32))
    found = model.gradients(parameters, here)
    (each,) = found.rows()
    (total,) = model.gradients(parameters, here).total(np.ones(3, np.float32))
    for name, array in each.items():
        np.testing.assert_allclose(total[name], array.sum(axis=0), rtol=1e-4, atol=1e-5)
    assert model.predict(parameters, rows).shape == (3,)


def _mixing_far_out(outputs: Any, targets: Any) -> Any:
    """Of usual outputs it is the log-loss; one row far out changes it for all."""
    return _log_loss(outputs, targets) * (1 + jax.nn.relu(jnp.abs(outputs).max() - 50))


@pytest.mark.parametrize("ops", [NUMPY, JAX], ids=["numpy", "jax"])
def test_no_row_is_in_the_gradient_of_another_whatever_the_loss_does_with_a_batch(ops: Any) -> None:
    model = FlaxModel(module=same.linen_mlp(), loss=_mixing_far_out).build(same.FEATURES, TARGET, ops)
    parameters, here, other = model.init(HashCoins(trial_seed(0, 0), 0, ops)), batch(), batch()
    for row in (1e4, np.nan):
        other.rows[0] = row
        (one,), (two,) = model.gradients(parameters, here).rows(), model.gradients(parameters, other).rows()
        for name, array in one.items():
            np.testing.assert_array_equal(np.asarray(array)[1:], np.asarray(two[name])[1:])


# What does not fit.


def _flax(build: Any) -> Any:
    from flax import linen

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            return build(linen, x)

    return Net()


def functions(**changes: Any) -> JaxModel:
    return JaxModel(**(same.jax_functions() | changes))


def _unfinished(key: Any) -> Any:
    return {"w": jnp.full((3, 6), jnp.nan)}


MISTAKES: dict[str, tuple[Any, str]] = {
    "width": (
        lambda: FlaxModel(module=same.linen_mlp(classes=4)),
        r"gives outputs of shape \(2, 4\) for 2 rows; the loss over .* needs \(2, 3\)",
    ),
    "rows": (lambda: FlaxModel(module=lambda rngs: same.nnx_mlp(rngs, 9)), "called with a row of shape .6., fails"),
    "batch norm": (
        lambda: FlaxModel(module=_flax(lambda linen, x: linen.BatchNorm(use_running_average=True)(x)[:, :3])),
        "has batch_stats beside its parameters",
    ),
    "mixes": (
        lambda: FlaxModel(module=_flax(lambda linen, x: linen.Dense(3)(x - x.mean(axis=0)))),
        "other outputs when another row stands beside it",
    ),
    "loss": (
        lambda: FlaxModel(module=same.linen_mlp(), loss=lambda outputs, targets: _log_loss(outputs, targets).mean()),
        r"the loss has shape \(\) for 2 rows; it must be one number for each row",
    ),
    "loss mixes": (
        lambda: FlaxModel(module=same.linen_mlp(), loss=lambda z, y: _log_loss(z - z.mean(axis=0), y)),
        "the loss gives a row another number when another row stands beside it",
    ),
    "loss of equinox mixes": (
        lambda: EquinoxModel(module=same.equinox_mlp, loss=lambda z, y: _log_loss(z, y) * jnp.abs(z).max()),
        "the loss gives a row another number when another row stands beside it",
    ),
    "loss of functions": (
        lambda: functions(loss=lambda parameters, x, y: parameters[0]["w"] @ x),
        r"the loss of the JAX model has shape \(2, 5\) for 2 rows",
    ),
    "loss by name": (lambda: FlaxModel(module=same.linen_mlp(), loss="sofmax"), 'did you mean "softmax"'),
    "no loss": (lambda: FlaxModel(module=same.linen_mlp(), loss=3), "neither a name nor a function"),
    "not finite": (lambda: functions(init=_unfinished), 'the first weights in "w" are not all finite'),
    "integers": (lambda: functions(init=lambda key: {"w": jnp.ones((3, 6), int)}), 'the array "w" holds int32 numbers'),
    "nothing to learn": (lambda: functions(init=lambda key: {}), "has nothing to learn|fails"),
    "init fails": (lambda: functions(init=lambda key: 1 / 0), "init fails: ZeroDivisionError"),
    "zeros": (
        lambda: functions(loss=lambda parameters, x, y: jnp.sum(parameters[0]["w"] @ (x / jnp.linalg.norm(x)))),
        "for a row of zeros the gradient of .* is not finite",
    ),
    "shape": (lambda: FlaxModel(module=same.linen_mlp(), shape=(2, 2)), "holds 4 numbers, a row has 6"),
    "shape below zero": (
        lambda: FlaxModel(module=same.linen_mlp(), shape=(-2, -3)),
        "-2, -3. is no shape of an example",
    ),
    "shape of one number": (
        lambda: FlaxModel(module=same.linen_mlp(), shape=cast("Any", 6)),
        "6 is no shape of an example",
    ),
    "shape in words": (
        lambda: EquinoxModel(module=same.equinox_mlp, shape=cast("Any", "six")),
        "'six' is no shape of an example",
    ),
    "a class": (lambda: FlaxModel(module=type(same.linen_mlp())), "is a class of flax modules"),
    "start": (
        lambda: FlaxModel(module=same.linen_mlp(), start={"Dense_0.kernel": np.zeros((6, 4), np.float32)}),
        r'the array "Dense_0.bias": the task has \[5\], the file has no such array',
    ),
    "no module": (lambda: EquinoxModel(module=lambda key: 3), "int is no equinox module"),
}


@pytest.mark.parametrize(
    ("library", "make", "command"),
    [
        ("flax", lambda: FlaxModel(module=same.linen_mlp()), "pip install flax"),
        ("equinox", lambda: EquinoxModel(module=same.equinox_mlp), "pip install equinox"),
        ("jax", functions, r"pip install .*\[simulation\]"),
        ("torch", lambda: TorchModel(module=lambda: 1), r"pip install .*\[torch\]"),
    ],
)
def test_a_library_that_is_not_installed_is_named(
    library: str, make: Any, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == library else find(name))
    with pytest.raises(BadInput, match=f"this model needs {library}, which is not installed here\n  {command}"):
        make().build(same.FEATURES, TARGET, NUMPY)


@pytest.mark.parametrize("case", list(MISTAKES))
def test_what_does_not_fit_is_refused_in_a_sentence(case: str) -> None:
    make, words = MISTAKES[case]
    with pytest.raises(BadInput, match=words):
        make().build(same.FEATURES, TARGET, NUMPY)


def test_a_number_needs_predict() -> None:
    with pytest.raises(BadInput, match="does not follow from the loss"):
        functions(predict=None).build(same.FEATURES, Number(name="°C", low=0.0, high=10.0), NUMPY)
