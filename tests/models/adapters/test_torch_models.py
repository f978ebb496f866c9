"""Modules of PyTorch against the same layers of ours; in simulation, private too. `make test-torch` runs these."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml import Task, simulate
from crowdml.core import NUMPY, BadInput, Batch, Number, trees
from crowdml.device import Device
from crowdml.models.adapters import TorchModel, adapt
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.task import parse
from crowdml.task.user_models import start_changes
from tests.device.conftest import TASK as LIVE
from tests.device.conftest import FakeServer
from tests.support import user_models as same
from tests.support.targets import some_labels

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
nn = torch.nn

ROOT = Path(__file__).parents[3]
ROWS = 7
TARGET = some_labels(same.CLASSES)
WEIGHTS = np.linspace(-1, 1, ROWS).astype(np.float32)
MLP = "model={ kind = 'mlp', layers = [30], activation = 'relu' }"
SOUND = "privacy={ mode = 'sound', mechanism = 'gaussian', clip = 1.0, epsilon = 60.0, delta = 1e-5, max-uses = 6 }"
PER_ROW = functools.partial(torch.nn.functional.cross_entropy, reduction="none")


def batch(rows: int = ROWS) -> Batch:
    rng = np.random.default_rng(4)
    made = rng.normal(0, 1, (rows, same.FEATURES)).astype(np.float32)
    return Batch(rows=made, targets=np.resize(np.arange(3), rows).astype(np.int32), mask=np.ones(rows, np.float32))


def close(found: Any, expected: Any) -> None:
    scale = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("loss", [None, PER_ROW], ids=["ours", "theirs"])
def test_the_same_mlp_has_the_same_gradients_norms_and_predictions(loss: Any) -> None:
    model = TorchModel(module=same.torch_mlp, loss=loss).build(same.FEATURES, TARGET, NUMPY)
    parameters, here = same.first(same.ours()), batch()
    at, expected = (same.torch_arrays(parameters),), same.ours().gradients(parameters, here)
    np.testing.assert_array_equal(model.predict(at, here.rows), same.ours().predict(parameters, here.rows))
    wanted = same.torch_arrays(expected.total(WEIGHTS))
    for asked in (False, True):
        found = model.gradients(at, here)
        if asked:
            close(found.norms(2, NUMPY), expected.norms(2, NUMPY))
            close(found.norms(1, NUMPY), expected.norms(1, NUMPY))
        (total,) = found.total(WEIGHTS)
        assert set(total) == set(wanted)
        for name, array in wanted.items():
            close(total[name], array)
    (rows,) = found.rows()
    for index in range(ROWS):
        one = tuple({name: leaf[index] for name, leaf in layer.items()} for layer in expected.rows())
        for name, array in same.torch_arrays(one).items():
            close(rows[name][index], array)
    close(model.losses(at, here.rows, here.targets), same.ours().losses(parameters, here.rows, here.targets))


def test_first_weights_are_the_modules_or_follow_the_coins() -> None:
    module = same.torch_mlp()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    given = adapt(module).build(same.FEATURES, TARGET, NUMPY)
    (begun,) = given.init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    given.gradients((begun,), batch()).total(WEIGHTS)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]) and np.array_equal(begun[name], tensor.numpy())
    made = TorchModel(module=same.torch_mlp).build(same.FEATURES, TARGET, NUMPY)
    state = torch.random.get_rng_state()
    one, two, again = (made.init(HashCoins(trial_seed(0, trial), 0, NUMPY))[0]["0.weight"] for trial in (0, 1, 0))
    assert np.array_equal(one, again) and np.abs(one - two).max() > 0.01
    assert torch.equal(state, torch.random.get_rng_state())


def task(*changes: str) -> Task:
    return Task.load(ROOT / "examples/digits.toml", ["crowd.passes=6", "crowd.curve=1", *changes])


LEARNT: dict[str, list[str]] = {
    "crowd-sgd": ["algorithm={ kind = 'crowd-sgd', batch = 10, rate = { kind = 'constant', c = 0.5 } }"],
    "fedavg": [
        "algorithm={ kind = 'fedavg', local-batch = 10, epochs = 2, per-round = 5, rate = { c = 0.5 } }",
        "algorithm.rate.kind=constant",
        "crowd.passes=12",
    ],
    "private fedsgd": ["algorithm={ kind = 'fedsgd', per-round = 4, rate = { kind = 'constant', c = 4.0 } }", SOUND],
}


@pytest.mark.parametrize("learnt", list(LEARNT))
def test_a_torch_mlp_learns_as_well_as_ours(learnt: str) -> None:
    start = same.torch_arrays(same.first(same.ours(features=64, hidden=30, classes=10)))
    model = TorchModel(module=same.torch_mlp(64, 30, 10), start=start)
    theirs = simulate(task(*LEARNT[learnt]), model=model, trials=3, engine="auto")
    ours = simulate(task(*LEARNT[learnt], MLP), trials=3)
    assert theirs.engine == "numpy"
    spread = max(np.std(ours.measured["test_error"][-1]), np.std(theirs.measured["test_error"][-1]), 0.01)
    assert ours.test_error < 0.25
    assert abs(theirs.test_error - ours.test_error) < 3 * spread
    assert theirs.privacy.get("sample") == ours.privacy.get("sample")


def test_it_is_not_compiled() -> None:
    with pytest.raises(BadInput, match="this model is not compiled"):
        simulate(task(), model=same.torch_mlp(64, 30, 10), engine="compiled")


# Batch normalisation.


def normed(features: int = same.FEATURES) -> Any:
    return nn.Sequential(nn.Linear(features, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, same.CLASSES))


def test_batch_normalisation_under_bounds_on_single_rows_is_refused() -> None:
    module = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    with pytest.raises(BadInput, match="batch normalisation mixes the rows of a batch"):
        simulate(task(SOUND), model=module, engine="numpy")


def test_batch_normalisation_learns_where_no_row_is_bounded() -> None:
    model = TorchModel(module=normed).build(same.FEATURES, TARGET, NUMPY)
    assert model.mixes
    parameters = model.init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    mask = np.array([1, 1, 1, 1, 1, 0, 0], np.float32)
    here = Batch(rows=batch().rows, targets=batch().targets, mask=mask)
    (found,) = model.gradients(parameters, here).total(mask / 5)
    module = normed()
    module.load_state_dict({name: torch.tensor(array) for name, array in parameters[0].items()}, strict=False)
    rows, targets = torch.tensor(here.rows[:5]), torch.tensor(here.targets[:5]).long()
    torch.nn.functional.cross_entropy(module.train()(rows), targets).backward()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(found[name], parameter.grad.numpy(), rtol=1e-4, atol=1e-6)
    hidden = torch.nn.functional.linear(rows, module[0].weight, module[0].bias)
    moved = parameters[0]["1.running_mean"] - found["1.running_mean"]
    np.testing.assert_allclose(moved, hidden.mean(dim=0).detach().numpy(), rtol=1e-4, atol=1e-6)
    learnt = simulate(
        task(
            "algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 10, rate = { kind = 'constant', c = 0.3 } }"
        ),
        model=lambda_module(),
        engine="numpy",
    )
    assert learnt.test_error < 0.3


def lambda_module() -> TorchModel:
    return TorchModel(module=lambda: nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10)))


# What does not fit.


class Mixing(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(same.FEATURES, same.CLASSES)

    def forward(self, x: Any) -> Any:
        return self.last(x - x.mean(dim=0))


def test_a_module_that_mixes_rows_is_refused_before_single_rows_are_bounded() -> None:
    model = TorchModel(module=Mixing).build(same.FEATURES, TARGET, NUMPY)
    parameters = model.init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    with pytest.raises(BadInput, match="a row other outputs when other rows stand beside it"):
        model.gradients(parameters, batch()).norms(2, NUMPY)


def test_a_long_row_does_not_hide_that_rows_are_mixed() -> None:
    """Beside outputs of a million, those of two thousand other rows seem to be what they are alone."""
    model = TorchModel(module=Mixing).build(same.FEATURES, TARGET, NUMPY)
    parameters, here = model.init(HashCoins(trial_seed(0, 0), 0, NUMPY)), batch(2000)
    here.rows[:] -= here.rows.mean(axis=0)
    here.rows[0] *= 1e6
    with pytest.raises(BadInput, match="a row other outputs when other rows stand beside it"):
        model.gradients(parameters, here).rows()


def _mixing_far_out(outputs: Any, targets: Any) -> Any:
    """Of usual outputs it is the log-loss; one row far out changes it for all."""
    return PER_ROW(outputs, targets) * (1 + torch.relu(outputs.abs().max() - 50))


def test_no_row_is_in_the_gradient_of_another_whatever_the_loss_does_with_a_batch() -> None:
    model = TorchModel(module=same.torch_mlp, loss=_mixing_far_out).build(same.FEATURES, TARGET, NUMPY)
    parameters, here, other = model.init(HashCoins(trial_seed(0, 0), 0, NUMPY)), batch(), batch()
    for row in (1e4, np.nan):
        other.rows[0] = row
        (one,), (two,) = model.gradients(parameters, here).rows(), model.gradients(parameters, other).rows()
        for name, array in one.items():
            np.testing.assert_array_equal(array[1:], two[name][1:])


def _unfinished() -> Any:
    module = same.torch_mlp()
    module[0].weight.data[0, 0] = float("nan")
    return module


MISTAKES: dict[str, tuple[Any, str]] = {
    "width": (lambda: TorchModel(module=same.torch_mlp(classes=4)), r"gives outputs of shape \(2, 4\) for 2 rows"),
    "rows": (lambda: TorchModel(module=same.torch_mlp(9)), "called with rows of shape .2, 6., fails: RuntimeError"),
    "loss": (
        lambda: TorchModel(module=same.torch_mlp, loss=torch.nn.functional.cross_entropy),
        r"the loss has shape \(\) for 2 rows; it must be one number for each row",
    ),
    "loss mixes": (
        lambda: TorchModel(module=same.torch_mlp, loss=lambda z, y: PER_ROW(z - z.mean(dim=0), y)),
        "the loss gives a row another number when another row stands beside it",
    ),
    "not finite": (lambda: TorchModel(module=_unfinished), 'first weights in "0.weight" are not all finite'),
    "double": (lambda: TorchModel(module=same.torch_mlp().double()), 'the array "0.bias" holds float64 numbers'),
    "dropout": (
        lambda: TorchModel(module=nn.Sequential(nn.Dropout(0.5), same.torch_mlp())),
        "is dropout, whose chance would not come from the device",
    ),
    "dropout between layers of its own": (
        lambda: TorchModel(module=nn.Sequential(nn.LSTM(same.FEATURES, 4, num_layers=2, dropout=0.5))),
        "is dropout, whose chance would not come from the device",
    ),
    "an average over all batches": (
        lambda: TorchModel(module=nn.Sequential(nn.BatchNorm1d(same.FEATURES, momentum=None))),
        "momentum=None, by which its statistics cannot move",
    ),
    "numbers of 16 bits": (lambda: TorchModel(module=same.torch_mlp().bfloat16()), "fails: TypeError: .*BFloat16"),
    "statistics": (
        lambda: TorchModel(module=nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False), same.torch_mlp())),
        "has no running statistics",
    ),
    "no module": (lambda: TorchModel(module=lambda: 3), "int is no PyTorch module"),
    "fails": (lambda: TorchModel(module=lambda: 1 / 0), "fails: ZeroDivisionError"),
    "start": (lambda: TorchModel(module=same.torch_mlp, start={"w": np.zeros(2, np.float32)}), 'the array "0.bias"'),
}


@pytest.mark.parametrize("case", list(MISTAKES))
def test_what_does_not_fit_is_refused_in_a_sentence(case: str) -> None:
    make, words = MISTAKES[case]
    with pytest.raises(BadInput, match=words):
        make().build(same.FEATURES, TARGET, NUMPY)


def test_pictures_and_numbers() -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 1))
    source = TorchModel(module=module, shape=(2, 4, 4))
    model = source.build(32, Number(name="°C", low=0.0, high=10.0), NUMPY)
    rows = np.random.default_rng(0).normal(0, 1, (3, 32)).astype(np.float32)
    here = Batch(rows=rows, targets=np.zeros(3, np.float32), mask=np.ones(3, np.float32))
    parameters = model.init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    (each,) = model.gradients(parameters, here).rows()
    (total,) = model.gradients(parameters, here).total(np.ones(3, np.float32))
    for name, array in each.items():
        np.testing.assert_allclose(total[name], array.sum(axis=0), rtol=1e-4, atol=1e-5)
    assert trees.size(total) == sum(tensor.numel() for tensor in module.parameters())


def test_it_is_public() -> None:
    assert crowdml.TorchModel is TorchModel


def test_a_device_learns_with_a_module(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = TorchModel(module=same.torch_mlp(3, 4, 2))
    crowdml.save_start(parse(LIVE), model, tmp_path / "net.safetensors")
    own = ("model={ kind = 'own', name = 'net' }", "privacy.clip=1.0")
    server = FakeServer(*own, *start_changes(tmp_path / "net.safetensors"))
    Device.join(server.invite(), tmp_path / "home", connect=server.connect, accept=lambda offer: True)
    begun = dict(server.server.parameters[0])
    rows = np.array([[0.1 * n, 0.5, -0.2 if n % 2 else 0.2] for n in range(8)], np.float32)
    labels = ["walking" if n % 2 else "standing" for n in range(8)]
    with crowdml.Device(tmp_path / "home", connect=server.connect, model=model) as device:
        summary = device.run((rows, labels))
    assert summary.used == summary.releases > 0 and summary.spent.epsilon <= 6.0
    assert all(np.abs(server.server.parameters[0][name] - begun[name]).max() > 0 for name in begun)
