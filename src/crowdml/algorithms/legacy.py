"""Reading `configuration.json` of the original Crowd-ML library (Hamm, Luken and Xie 2016).

The file names one experiment by some two dozen keys in one flat JSON object. Here they become a checked record;
`legacy_task` turns that into a task file.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from crowdml.core import BadInput, Settings
from crowdml.core.registry import nearest


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
    rows: int | None = Field(None, alias="N", gt=0)
    parameter_version: int | None = Field(None, alias="paramIter")
    feature_file: str | None = Field(None, alias="featureSource")
    label_file: str | None = Field(None, alias="labelSource")
    test_feature_file: str | None = Field(None, alias="testFeatures")
    test_label_file: str | None = Field(None, alias="testLabels")
    test_rows: int | None = Field(None, alias="testN", ge=0)
    test_kind: str | None = Field(None, alias="testType")
    test_frequency: int | None = Field(None, alias="testFrequency", ge=0)
    account: str | None = Field(None, alias="serviceAccount")
    database: str | None = Field(None, alias="databaseURL")

    @property
    def given(self) -> dict[str, Any]:
        """The keys that the file has, in its own spelling."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    @classmethod
    def names(cls) -> list[str]:
        """Every key that such a file may have."""
        return [str(field.alias) for field in cls.model_fields.values()]


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
