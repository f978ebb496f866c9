"""From `configuration.json` of the original Crowd-ML library (Hamm, Luken and Xie 2016) to a task file.

The old file names one experiment by some two dozen keys in one flat JSON object. They become a checked record first,
and then the text of a task file, in which each line says which old key it comes from. What the old file has and a task
file has not is listed at the top, with the reason; what the old file never said (the dataset, the simulated crowd) is
marked as chosen here.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from crowdml.core import BadInput, Settings
from crowdml.core.registry import nearest
from crowdml.data import DATASETS
from crowdml.data.sources import Source
from crowdml.task.task_file import parse

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

_ELSEWHERE = "the dataset, or the device, says where rows are"
_OWN_TEST = "the test error is measured on the dataset's own test rows"
_CREDENTIALS = "credentials have no place in a task file"


class LegacySettings(Settings):
    """The keys of the old file, in the words of its documentation. Those without a default must be given."""

    model_config = ConfigDict(alias_generator=None)

    loss: Literal["LogReg", "Hinge", "Softmax", "SoftmaxNN", "tf"] = Field(alias="lossFunction")
    descent: Literal["constant", "simple", "sqrt", "adagrad", "rmsProp", "tf"] = Field(alias="descentAlg")
    rate: float = Field(alias="naughtRate", gt=0)
    features: int = Field(alias="D", gt=0)
    classes: int = Field(alias="K", gt=1)
    regularisation: float = Field(0.0, alias="L", ge=0)
    hidden: int | None = Field(None, alias="nh", gt=0)
    floor: float = Field(1e-8, alias="eps", gt=0)
    local_steps: int = Field(alias="localUpdateNum", ge=0)
    local_batch: int = Field(alias="clientBatchSize", gt=0)
    weight_batch: int = Field(1, alias="maxWeightBatchSize", gt=0)
    gradient_batch: int = Field(1, alias="maxGradBatchSize", gt=0)
    releases: int = Field(0, alias="maxIter", ge=0)
    noise: Literal["NoNoise", "Gaussian", "Laplace"] = Field(alias="noiseDistribution")
    deviation: float | None = Field(None, alias="noiseScale", ge=0)
    # What has no counterpart, with the reason.
    rows: int | None = Field(None, alias="N", gt=0, description="devices bring their own rows")
    parameter_version: int | None = Field(None, alias="paramIter", description="a changed task is a new task")
    feature_file: str | None = Field(None, alias="featureSource", description=_ELSEWHERE)
    label_file: str | None = Field(None, alias="labelSource", description=_ELSEWHERE)
    test_feature_file: str | None = Field(None, alias="testFeatures", description=_OWN_TEST)
    test_label_file: str | None = Field(None, alias="testLabels", description=_OWN_TEST)
    test_rows: int | None = Field(None, alias="testN", ge=0, description="all test rows are used")
    test_kind: str | None = Field(None, alias="testType", description="follows from the model")
    test_frequency: int | None = Field(None, alias="testFrequency", ge=0, description="crowd.curve says how often")
    account: str | None = Field(None, alias="serviceAccount", description=_CREDENTIALS)
    database: str | None = Field(None, alias="databaseURL", description=_CREDENTIALS)

    @property
    def given(self) -> dict[str, Any]:
        """The keys that the file has, in its own spelling."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    @classmethod
    def names(cls) -> list[str]:
        """Every key that such a file may have."""
        return [str(field.alias) for field in cls.model_fields.values()]


DROPPED = {str(field.alias): field.description for field in LegacySettings.model_fields.values() if field.description}
"""Keys that have no line in a task file, and why."""


def read_legacy(source: str, name: str = "configuration.json") -> LegacySettings:
    """Read the text of such a file. `name` stands for it in messages."""
    content = _parse(source, name)
    try:
        found = LegacySettings.model_validate(content, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _explain(error, source, name) from None
    try:
        _check(found)
    except BadInput as error:
        raise BadInput(error.what, where=_place(source, name, error.where), hint=error.hint) from None
    return found


def _parse(source: str, name: str) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise BadInput("stands twice", where=_place(source, name, twice), hint="keep one of them")
        return dict(items)

    def constant(word: str) -> Any:
        raise BadInput(f"{word} is not a number of JSON", where=name, hint="give a finite number")

    try:
        content = json.loads(source, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        where = f"{name}, line {error.lineno}, column {error.colno}"
        raise BadInput(f"not valid JSON: {error.msg}", where=where) from None
    except (RecursionError, ValueError) as error:  # nested too deeply; a whole number of thousands of digits
        raise BadInput(f"cannot be read: {error}", where=name) from None
    if not isinstance(content, dict):
        raise BadInput("should be one JSON object", where=name, hint='such as { "lossFunction": "Softmax", ... }')
    return content


def _place(source: str, name: str, key: str) -> str:
    """Say where a key stands, by the last line that has it."""
    found = list(re.finditer(rf'"{re.escape(key)}"\s*:', source))
    return f"{name}, line {source.count(chr(10), 0, found[-1].start()) + 1}, {key}" if found else f"{name}, {key}"


def _explain(error: ValidationError, source: str, name: str) -> BadInput:
    """Turn the first of pydantic's complaints into one of ours."""
    first = min(error.errors(), key=lambda item: item["type"] == "missing")
    key, kind, given = str(first["loc"][0]), first["type"], first["input"]
    where = _place(source, name, key)
    if kind == "extra_forbidden":
        return BadInput("unknown key", where=where, hint=nearest(key, LegacySettings.names()))
    if kind == "missing":
        return BadInput(f'the key "{key}" is missing', where=name)
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in first["ctx"]["expected"].replace(" or ", ",").split(",")]
        return BadInput(f"{given!r} is not possible here", where=where, hint=nearest(str(given), choices))
    return BadInput(f"{first['msg'].lower().replace('input ', '')}, not {given!r}", where=where)


def _check(found: LegacySettings) -> None:
    """Refuse what has no counterpart, and what contradicts itself."""
    for key, value in (("lossFunction", found.loss), ("descentAlg", found.descent)):
        if value == "tf":
            raise BadInput(
                "a TensorFlow graph is a program of its own: it cannot be translated",
                where=key,
                hint='describe the model yourself: kind = "mlp" or kind = "layers" in a task file',
            )
    if found.loss in ("LogReg", "Hinge") and found.classes != 2:
        raise BadInput(f'"{found.loss}" separates two labels, K is {found.classes}', where="K", hint='use "Softmax"')
    if found.loss == "SoftmaxNN" and found.hidden is None:
        raise BadInput('"SoftmaxNN" needs nh, the size of its two hidden layers', where="lossFunction", hint='"nh": 75')
    if found.noise != "NoNoise" and not found.deviation:
        raise BadInput(
            f'"{found.noise}" noise needs a noiseScale above zero',
            where="noiseScale" if found.deviation is not None else "noiseDistribution",
            hint='give one, or write "noiseDistribution": "NoNoise"',
        )


def translate(source: str, name: str = "configuration.json", dataset: str | None = None, devices: int = 20) -> str:
    """Return the text of a task file for the text of an old configuration.

    Args:
        source: The old file.
        name: Stands for it in messages, and its first part names the task.
        dataset: What to simulate with; not given: the one whose rows have D numbers and K labels.
        devices: Devices of the simulated crowd; fewer where a device would not fill one contact.
    """
    old = read_legacy(source, name)
    data = _source(old, dataset)
    parts = [
        _head(old, name),
        _data(old, data),
        _model(old),
        _algorithm(old),
        _privacy(old),
        *([f"[stop]\nmax-releases = {old.releases}  # maxIter"] if old.releases else []),
        _crowd(old, data, devices),
    ]
    text = "\n\n".join(parts) + "\n"
    parse(text, f"the translation of {name}")
    return text


def _head(old: LegacySettings, name: str) -> str:
    file = re.split(r"[\\/]", name)[-1]
    slug = re.sub(r"[^a-z0-9]+", "-", file.rpartition(".")[0].lower())[:60].strip("-") or "legacy"
    left_out = []
    for key, why in _left_out(old).items():
        value = "" if why == _CREDENTIALS else f" = {_plain(json.dumps(old.given[key], ensure_ascii=False))}"
        left_out.append(f"#   {key}{value}: {why}")
    lines = [
        f"# Translated from {_plain(file)} of the Crowd-ML library (2016). Old keys stand behind what they became.",
        *(["# Not carried over:"] if left_out else []),
        *left_out,
        "crowdml = 1",
        f'name = "{slug}"',
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Make a text fit for a comment."""
    return "".join(each if each.isprintable() else "?" for each in text)


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


def _source(old: LegacySettings, wanted: str | None) -> Source | None:
    """Find the dataset to simulate with: rows of D numbers, or of more that a transform reduces to D."""
    if wanted is not None:
        source = DATASETS[wanted]
        if len(source.label_names) != old.classes or source.features < old.features:
            raise BadInput(
                f"rows of {wanted} have {source.features} numbers and {len(source.label_names)} labels; "
                f"the file says D = {old.features} and K = {old.classes}",
                where="--dataset",
                hint="choose a dataset with K labels and at least D numbers; see: crowdml data list",
            )
        return source
    shape, mnist = (old.features, old.classes), DATASETS["mnist"]
    exact = next((each for each in DATASETS.values() if (each.features, len(each.label_names)) == shape), None)
    if exact is None and old.classes == len(mnist.label_names) and old.features < mnist.features:
        return mnist  # the experiments of the paper: MNIST by PCA
    return exact


def _data(old: LegacySettings, source: Source | None) -> str:
    if source is None:
        chosen = f'# No known dataset has rows of D = {old.features} and K = {old.classes}: add dataset = "..."'
        labels: list[str] = [str(number) for number in range(old.classes)]
    else:
        chosen = f'dataset = "{source.name}"  # chosen here: the old file names files, not a dataset'
        labels = list(source.label_names)
    features = f"features = {old.features}  # D"
    steps = [f'{{ kind = "scale", by = {1 / LARGEST[source.name]!r} }}'] if source and source.name in LARGEST else []
    if source and source.features > old.features:
        features = f"features = {source.features}  # D = {old.features} of them are left after the transform"
        steps.append(f'{{ kind = "pca", components = {old.features} }}')
        steps.append('{ kind = "norm", order = 2, exactly = 1.0 }')
    lines = ["[data]", chosen, features, f"labels = {json.dumps(labels, ensure_ascii=False)}  # K = {old.classes}"]
    if steps:
        lines += ["# Chosen here: the old file does not say how rows were scaled.", "transform = ["]
        lines += [*(f"  {step}," for step in steps), "]"]
    return "\n".join(lines)


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


def _crowd(old: LegacySettings, source: Source | None, devices: int) -> str:
    lines = ["[crowd]", "# Chosen here: the old file describes no crowd."]
    needed, passes = max(old.local_steps, 1) * old.local_batch, 10
    if source is not None:
        available = source.rows[0]
        if needed > available:
            raise BadInput(
                f"one contact needs localUpdateNum times clientBatchSize = {needed} rows, "
                f"and {source.name} has {available}",
                where="clientBatchSize",
                hint="make it smaller, or choose another dataset with --dataset",
            )
        devices = min(devices, available // needed)
        if old.releases:
            passes = math.ceil(old.releases / (available // devices // needed))
    lines += [f"devices = {devices}"]
    return "\n".join([*lines, f"passes = {passes}" + ("  # enough for maxIter contacts" if old.releases else "")])
