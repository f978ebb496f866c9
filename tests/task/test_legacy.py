"""The original library's configuration.json, and the task file it becomes."""

import json
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.simulation import simulate
from crowdml.task import Task, parse
from crowdml.task.legacy import DROPPED, LegacySettings, translate

SMALL: dict[str, Any] = {
    "lossFunction": "Softmax",
    "descentAlg": "sqrt",
    "naughtRate": 10,
    "D": 64,
    "K": 10,
    "clientBatchSize": 10,
    "localUpdateNum": 2,
    "noiseDistribution": "NoNoise",
}
"""The least that such a file must say; its rows have the shape of the small digits."""

FULL: dict[str, Any] = SMALL | {
    "maxIter": 6,
    "L": 1e-4,
    "N": 60000,
    "nh": 75,
    "eps": 1e-6,
    "maxWeightBatchSize": 3,
    "maxGradBatchSize": 2,
    "noiseScale": 0.5,
    "paramIter": 1,
    "featureSource": "MNISTTrainImages.dat",
    "labelSource": "MNISTTrainLabels.dat",
    "testFeatures": "MNISTTestImages.dat",
    "testLabels": "MNISTTestLabels.dat",
    "testN": 1000,
    "testType": "multiTest",
    "testFrequency": 1,
    "serviceAccount": "secret-account.json",
    "databaseURL": "https://secret.example",
}


def become(base: dict[str, Any] = SMALL, /, **changes: Any) -> Task:
    return parse(translate(json.dumps(base | changes)))


def test_every_documented_key_is_known() -> None:
    assert set(LegacySettings.names()) == set(FULL)


def test_names_of_the_paper_become_ours() -> None:
    task = become(FULL)
    algorithm = task.algorithm
    assert (algorithm.kind, algorithm.stale) == ("local-sgd", "drop")
    assert (algorithm.local_steps, algorithm.local_batch, algorithm.server_batch) == (2, 10, 3)
    assert (algorithm.rate.kind, algorithm.rate.c, algorithm.rate.counter) == ("inverse-sqrt", 10.0, "local-steps")
    assert (task.features, len(task.data.labels), task.data.dataset) == (64, 10, "digits")
    assert (task.model.kind, task.model.bias, task.model.regularisation) == ("softmax", False, 1e-4)
    assert (task.privacy.mode, task.stop.max_releases) == ("none", 6)


@pytest.mark.parametrize(
    ("descent", "kind"),
    [
        ("constant", "constant"),
        ("simple", "inverse"),
        ("sqrt", "inverse-sqrt"),
        ("adagrad", "adagrad"),
        ("rmsProp", "rmsprop"),
    ],
)
def test_rates(descent: str, kind: str) -> None:
    rate = become(descentAlg=descent, eps=1e-6).algorithm.rate
    assert rate.kind == kind
    if kind in ("adagrad", "rmsprop"):
        # c/√(G + eps) and c/(√G + floor) are the same where it matters, at G = 0.
        assert rate.floor == pytest.approx(1e-3)


@pytest.mark.parametrize(("loss", "kind"), [("LogReg", "logistic"), ("Hinge", "svm")])
def test_losses_for_two_labels(loss: str, kind: str) -> None:
    task = become(lossFunction=loss, K=2, D=104)
    assert (task.model.kind, task.model.bias, task.data.dataset) == (kind, False, "adult")


def test_the_net_has_two_hidden_layers() -> None:
    model = become(lossFunction="SoftmaxNN", nh=12).model
    assert (model.kind, model.layers, model.activation, model.top) == ("mlp", [12, 12], "relu", "softmax")


def test_gradients_are_averaged_over_both_batches() -> None:
    task = become(FULL, localUpdateNum=0)
    assert (task.algorithm.local_steps, task.algorithm.server_batch) == (0, 6)
    assert task.algorithm.rate.counter == "versions"


@pytest.mark.parametrize(("noise", "mechanism"), [("Gaussian", "gaussian"), ("Laplace", "laplace")])
def test_noise_has_a_scale_and_no_epsilon(noise: str, mechanism: str) -> None:
    text = translate(json.dumps(SMALL | {"noiseDistribution": noise, "noiseScale": 0.25}))
    terms = parse(text).privacy
    assert (terms.mode, terms.mechanism, terms.noise_scale, terms.epsilon) == ("paper", mechanism, 0.25, None)
    assert (terms.noise_unit, terms.noise_sequence) == ("coordinate", "iid")
    assert "no ε can be stated" in text


def test_what_is_left_out_is_named_with_a_reason() -> None:
    text = translate(json.dumps(FULL))
    for key in (*DROPPED, "nh", "eps", "noiseScale", "maxGradBatchSize"):
        assert f"#   {key}" in text, key
    assert "secret" not in text
    behind = translate(json.dumps(SMALL | {"maxIter": 0}))
    assert "#   maxIter = 0: 0 is no limit" in behind and "[stop]" not in behind


def test_every_key_is_named_in_the_file() -> None:
    text = translate(json.dumps(FULL | {"noiseDistribution": "Gaussian", "lossFunction": "SoftmaxNN"}))
    assert all(key in text for key in FULL)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"localUpdateNum": 0, "maxGradBatchSize": 2},
        {"lossFunction": "SoftmaxNN", "nh": 20, "descentAlg": "adagrad", "naughtRate": 0.05},
        {"noiseDistribution": "Laplace", "noiseScale": 0.01, "descentAlg": "rmsProp", "naughtRate": 0.05},
        {"clientBatchSize": 700, "naughtRate": 30},
    ],
)
def test_the_task_runs(changes: dict[str, Any]) -> None:
    task = become(FULL, **{"maxWeightBatchSize": 1, **changes})
    result = simulate(task, trials=1)
    assert result.test_error < 0.85  # ten labels: chance is 0.9
    needed = task.algorithm.local_batch * max(task.algorithm.local_steps, 1)
    assert task.crowd.devices == min(20, 1400 // needed)
    assert result.updates == 6 * task.crowd.devices, "passes are enough for maxIter contacts, and no more happen"


def test_rows_of_fifty_are_mnist_by_pca() -> None:
    task = become(D=50)
    assert (task.data.dataset, task.data.features, task.features) == ("mnist", 784, 50)
    assert [step.kind for step in task.data.transform] == ["scale", "pca", "norm"]


def test_the_dataset_can_be_chosen() -> None:
    task = parse(translate(json.dumps(SMALL | {"D": 784}), dataset="fashion-mnist"))
    assert (task.data.dataset, task.features) == ("fashion-mnist", 784)
    with pytest.raises(BadInput, match="64 numbers and 10 labels"):
        translate(json.dumps(SMALL | {"D": 784}), dataset="digits")
    with pytest.raises(BadInput, match="did you mean"):
        translate(json.dumps(SMALL), dataset="digit")


def test_without_a_dataset_the_file_says_what_to_add() -> None:
    text = translate(json.dumps(SMALL | {"D": 785, "K": 2, "lossFunction": "Hinge"}), "old/binary data.json")
    task = parse(text)
    assert (task.data.dataset, task.data.features, task.data.labels) == (None, 785, ["0", "1"])
    assert 'add dataset = "..."' in text and task.name == "binary-data"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown key": ({"localUpdateNumber": 3}, "line 1, localUpdateNumber", 'did you mean "localUpdateNum"?'),
    "unknown loss": ({"lossFunction": "Sofmax"}, "lossFunction", 'did you mean "Softmax"?'),
    "a graph": ({"lossFunction": "tf"}, "lossFunction", "layers"),
    "a graph's descent": ({"descentAlg": "tf"}, "descentAlg", "layers"),
    "unknown noise": ({"noiseDistribution": "None"}, "noiseDistribution", "NoNoise"),
    "three labels for a margin": ({"lossFunction": "Hinge"}, "line 1, K", "Softmax"),
    "a net without its size": ({"lossFunction": "SoftmaxNN"}, "lossFunction", "nh"),
    "noise without a scale": ({"noiseDistribution": "Gaussian"}, "noiseDistribution", "NoNoise"),
    "noise of scale zero": ({"noiseDistribution": "Gaussian", "noiseScale": 0}, "noiseScale", "NoNoise"),
    "no features": ({"D": 0}, "line 1, D", "greater than 0"),
    "a text for a number": ({"K": "10"}, "line 1, K", "integer"),
    "a fraction of a row": ({"clientBatchSize": 1.5}, "clientBatchSize", "integer"),
    "a negative rate": ({"naughtRate": -1}, "naughtRate", "greater than 0"),
    "a rate beyond numbers": ({"naughtRate": 1e999}, "configuration.json", "finite"),
    "a contact beyond the rows": ({"clientBatchSize": 1401}, "clientBatchSize", "--dataset"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_translated_is_an_error(case: str) -> None:
    changes, where, hint = BAD[case]
    with pytest.raises(BadInput) as caught:
        translate(json.dumps(SMALL | changes))
    assert where in str(caught.value) and hint in str(caught.value)


@pytest.mark.parametrize("key", SMALL)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(BadInput, match=f'the key "{key}" is missing'):
        translate(json.dumps({name: value for name, value in SMALL.items() if name != key}))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{\n  "D": 50,\n  "K" 10\n}', "line 3, column 7: not valid JSON"),
        ("", "line 1, column 1"),
        ("[1, 2]", "one JSON object"),
        ('{\n"D": 50,\n"D": 51}', "line 3, D: stands twice"),
        ('{"D": ' + "[" * 100_000, "configuration.json"),
        ('{"D": ' + "1" * 5000 + "}", "configuration.json"),
    ],
)
def test_broken_json_says_where(source: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        translate(source)


def test_names_from_outside_stay_inside_comments() -> None:
    text = translate(json.dumps(SMALL | {"featureSource": 'a\nmode = "evil"\u2028\x85b'}), 'x"\n[y].json')
    assert parse(text).name == "x-y"
    assert all("evil" not in line or line.startswith("#") for line in text.splitlines())
