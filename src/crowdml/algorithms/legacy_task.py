"""Writing a task file from `configuration.json` of the original Crowd-ML library.

Each line says which old key it comes from. What the old file has and a task file has not is listed at the top, with
the reason; what the old file never said (the dataset, the simulated crowd) is marked as chosen here.
"""

from __future__ import annotations

import json
import math
import re

from crowdml.algorithms.legacy import LegacySettings, read_legacy
from crowdml.algorithms.task_file import parse
from crowdml.core import BadInput, record
from crowdml.data import DATASETS
from crowdml.data.sources import Source

RATES = {
    "constant": "constant",
    "simple": "inverse",
    "sqrt": "inverse-sqrt",
    "adagrad": "adagrad",
    "rmsProp": "rmsprop",
}
ADAPTIVE = ("adagrad", "rmsProp")
LARGEST = {"mnist": 255, "fashion-mnist": 255, "cifar10": 255, "digits": 16}
"""The largest number in a row of each dataset that needs scaling."""

DROPPED = {
    "N": "devices bring their own rows",
    "paramIter": "a changed task is a new task",
    "featureSource": "the dataset, or the device, says where rows are",
    "labelSource": "the dataset, or the device, says where rows are",
    "testFeatures": "the test error is measured on the dataset's own test rows",
    "testLabels": "the test error is measured on the dataset's own test rows",
    "testN": "all test rows are used",
    "testType": "follows from the model",
    "testFrequency": "crowd.curve says how often",
    "serviceAccount": "credentials have no place in a task file",
    "databaseURL": "credentials have no place in a task file",
}
SECRET = ("serviceAccount", "databaseURL")


@record
class _Rows:
    """Which dataset a simulation learns from, and how its rows get D numbers."""

    source: Source | None
    reduced: bool


def translate(source: str, name: str = "configuration.json", dataset: str | None = None, devices: int = 20) -> str:
    """Return the text of a task file for the text of an old configuration.

    Args:
        source: The old file.
        name: Stands for it in messages, and its first part names the task.
        dataset: What to simulate with; not given: the one whose rows have D numbers and K labels.
        devices: Devices of the simulated crowd; fewer where a device would not fill one contact.
    """
    old = read_legacy(source, name)
    rows = _rows(old, dataset)
    parts = [
        _head(old, name),
        _data(old, rows),
        _model(old),
        _algorithm(old),
        _privacy(old),
        *([f"[stop]\nmax-releases = {old.releases}  # maxIter"] if old.releases else []),
        _crowd(old, rows, devices),
    ]
    text = "\n\n".join(parts) + "\n"
    parse(text, f"the translation of {name}")
    return text


def _head(old: LegacySettings, name: str) -> str:
    file = re.split(r"[\\/]", name)[-1]
    slug = re.sub(r"[^a-z0-9]+", "-", file.rpartition(".")[0].lower())[:60].strip("-") or "legacy"
    left_out = _left_out(old)
    lines = [
        f"# Translated from {_plain(file)} of the Crowd-ML library (2016). Old keys stand behind what they became.",
        *(["# Not carried over:"] if left_out else []),
        *(f"#   {_told(old, key)}: {why}" for key, why in left_out.items()),
        "crowdml = 1",
        f'name = "{slug}"',
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Make a text fit for a comment."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _told(old: LegacySettings, key: str) -> str:
    return key if key in SECRET else f"{key} = {_plain(json.dumps(old.given[key], ensure_ascii=False))}"


def _left_out(old: LegacySettings) -> dict[str, str]:
    """Say why keys of this file have no line in the task file."""
    reasons = dict(DROPPED)
    if old.loss != "SoftmaxNN":
        reasons["nh"] = f"{old.loss} has no hidden layers"
    if old.descent not in ADAPTIVE:
        reasons["eps"] = f'the rate "{old.descent}" does not use it'
    if old.noise == "NoNoise":
        reasons["noiseScale"] = "there is no noise"
    if old.local_steps:
        reasons["maxGradBatchSize"] = "devices send weights, not gradients"
    if not old.releases:
        reasons["maxIter"] = "0 is no limit"
    return {key: reasons[key] for key in old.given if key in reasons}


def _rows(old: LegacySettings, wanted: str | None) -> _Rows:
    if wanted is not None:
        source = DATASETS[wanted]
        if len(source.label_names) != old.classes or source.features < old.features:
            raise BadInput(
                f"rows of {wanted} have {source.features} numbers and {len(source.label_names)} labels; "
                f"the file says D = {old.features} and K = {old.classes}",
                where="--dataset",
                hint="choose a dataset with K labels and at least D numbers; see: crowdml data list",
            )
        return _Rows(source=source, reduced=source.features > old.features)
    shape = (old.features, old.classes)
    exact = next((each for each in DATASETS.values() if (each.features, len(each.label_names)) == shape), None)
    mnist = DATASETS["mnist"]
    if exact is None and old.classes == len(mnist.label_names) and old.features < mnist.features:
        return _Rows(source=mnist, reduced=True)  # the experiments of the paper: MNIST by PCA
    return _Rows(source=exact, reduced=False)


def _data(old: LegacySettings, rows: _Rows) -> str:
    source, lines = rows.source, ["[data]"]
    if source is None:
        lines.append(f'# No known dataset has rows of D = {old.features} and K = {old.classes}: add dataset = "..."')
        labels: list[str] = [str(number) for number in range(old.classes)]
    else:
        lines.append(f'dataset = "{source.name}"  # chosen here: the old file names files, not a dataset')
        labels = list(source.label_names)
    if source is not None and rows.reduced:
        lines.append(f"features = {source.features}  # D = {old.features} of them are left after the transform")
    else:
        lines.append(f"features = {old.features}  # D")
    lines.append(f"labels = {json.dumps(labels, ensure_ascii=False)}  # K = {old.classes}")
    steps = _transform(old, rows)
    if steps:
        lines += ["# Chosen here: the old file does not say how rows were scaled.", "transform = ["]
        lines += [*(f"  {step}," for step in steps), "]"]
    return "\n".join(lines)


def _transform(old: LegacySettings, rows: _Rows) -> list[str]:
    largest = LARGEST.get(rows.source.name) if rows.source else None
    steps = [f'{{ kind = "scale", by = {1 / largest!r} }}'] if largest else []
    if rows.reduced:
        steps.append(f'{{ kind = "pca", components = {old.features} }}')
        steps.append('{ kind = "norm", order = 2, exactly = 1.0 }')
    return steps


def _model(old: LegacySettings) -> str:
    lines = ["[model]"]
    if old.loss == "SoftmaxNN":
        lines += ['kind = "mlp"  # lossFunction = "SoftmaxNN"', f"layers = [{old.hidden}, {old.hidden}]  # nh"]
        lines += ['activation = "relu"', 'top = "softmax"']
    else:
        kind = {"LogReg": "logistic", "Hinge": "svm", "Softmax": "softmax"}[old.loss]
        lines += [f'kind = "{kind}"  # lossFunction = "{old.loss}"']
        lines += ["bias = false  # the library's weights have length D, so a constant is one of the D features"]
    return "\n".join([*lines, f"regularisation = {old.regularisation!r}  # L"])


def _algorithm(old: LegacySettings) -> str:
    together, source = old.weight_batch, "maxWeightBatchSize"
    if not old.local_steps:
        # The library averages gradients first and the weights they lead to next: one mean over both.
        together, source = together * old.gradient_batch, "maxWeightBatchSize times maxGradBatchSize"
    floor = f", floor = {math.sqrt(old.floor)!r}" if old.descent in ADAPTIVE else ""
    counter = "local-steps" if old.local_steps else "versions"
    lines = [
        "[algorithm]",
        'kind = "local-sgd"',
        f"local-steps = {old.local_steps}  # localUpdateNum",
        f"local-batch = {old.local_batch}  # clientBatchSize",
        f"server-batch = {together}  # {source}",
        f'# descentAlg = "{old.descent}", naughtRate'
        + (", eps inside the root: its root is the floor" if floor else ""),
        f'rate = {{ kind = "{RATES[old.descent]}", c = {old.rate!r}{floor}, counter = "{counter}" }}',
        "radius = 1e15  # the library keeps no ball",
        'stale = "drop"  # as the library does',
    ]
    return "\n".join(lines)


def _privacy(old: LegacySettings) -> str:
    if old.noise == "NoNoise":
        return '[privacy]\nmode = "none"  # noiseDistribution = "NoNoise": no noise, no promise'
    return "\n".join(
        [
            "[privacy]",
            "# The noise is given by its scale alone, so no ε can be stated: simulation only. A live task needs",
            '# mode = "sound" and an ε.',
            'mode = "paper"',
            f'mechanism = "{old.noise.lower()}"  # noiseDistribution',
            f"noise-scale = {old.deviation!r}  # noiseScale, as the standard deviation of each number",
        ]
    )


def _crowd(old: LegacySettings, rows: _Rows, devices: int) -> str:
    lines = ["[crowd]", "# Chosen here: the old file describes no crowd."]
    needed, passes = max(old.local_steps, 1) * old.local_batch, 10
    if rows.source is not None:
        available = rows.source.rows[0]
        if needed > available:
            raise BadInput(
                f"one contact needs localUpdateNum times clientBatchSize = {needed} rows, "
                f"and {rows.source.name} has {available}",
                where="clientBatchSize",
                hint="make it smaller, or choose another dataset with --dataset",
            )
        devices = min(devices, available // needed)
        if old.releases:
            passes = math.ceil(old.releases / (available // devices // needed))
    lines += [f"devices = {devices}"]
    return "\n".join([*lines, f"passes = {passes}" + ("  # enough for maxIter contacts" if old.releases else "")])
