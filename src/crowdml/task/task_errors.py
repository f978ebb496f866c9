"""What is wrong with a task, in words: which key, what was given, what would be right.

The same sentences serve a task file, a change on the command line, and `Task(...)` in Python; only the place differs.
Who comes from Flower, pfl, FedML or Opacus types what they are used to: a key of theirs is answered with ours. A test
requires that every key named in `WORDS` exists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import UnionType
from typing import Any, Self, get_args

from pydantic import BaseModel, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo

from crowdml.core import BadInput, Registry, Settings
from crowdml.core.registry import nearest, same_word
from crowdml.core.settings import OneOf

Location = tuple[str | int, ...]

_RATE = 'algorithm.rate, a table: rate = { kind = "constant", c = 0.1 }'
_ROUNDS = (
    "crowd.rounds (where devices are invited to them, as by fedavg), crowd.passes (times the crowd goes through its "
    "rows), or stop.max-versions (end after so many versions)"
)
_DEVICES = "crowd.devices: a participant is called device"
_COHORT = "algorithm.per-round, where devices are invited to rounds (fedavg, fedsgd)"
_BATCH = "algorithm.batch (crowd-sgd), or algorithm.local-batch (local-sgd, fedavg)"
_EPOCHS = "algorithm.epochs (of a round of fedavg), or crowd.passes (times the crowd goes through its rows)"
_CLIP = "privacy.clip"
_NOISE = (
    "privacy.epsilon: the noise follows from what is promised; or, without a total to keep, privacy.noise-multiplier "
    '(noise in steps, privacy.noise-at = "steps": in units of clip) or privacy.noise-scale (paper mode: its standard '
    "deviation)"
)
_PRIVATE = 'privacy.mode = "sound", with privacy.epsilon and privacy.max-uses'
_PRIVATE_STEPS = (
    'privacy.mode = "sound" with privacy.noise-at = "steps", privacy.clip, privacy.epsilon and privacy.max-uses '
    "(local-sgd, fedavg)"
)
_SERVER_RATE = (
    'algorithm.server, a table: server = { kind = "constant", c = 1.0 }, by which the mean change is taken (fedavg and '
    "its kin); where devices send gradients (crowd-sgd, fedsgd) it is algorithm.rate"
)
_SECURE = "secure-aggregation.enabled = true"
_KIND = 'algorithm.kind, such as "crowd-sgd" or "fedavg"'
_PARTITION = 'crowd.partition, a table: partition = { kind = "dirichlet", alpha = 0.5 }'
_DECAY = "model.regularisation"
_HIDDEN = 'model.layers (of kind = "mlp"), such as [75, 75]'
_CLASSES = "data.labels: the names of all labels"
_FEATURES = "data.features: numbers in a row"
_SEED = "no key of the task: seed and trials are given when it is simulated"

WORDS = {
    "lr eta learning-rate client-lr local-lr local-rate step-size client-learning-rate": _RATE,
    "server-rate server-lr server-learning-rate server-step-size global-lr global-learning-rate eta-server central-lr "
    "central-learning-rate": _SERVER_RATE,
    "momentum": 'algorithm.rate, a table: rate = { kind = "momentum", c = 0.1 }',
    "local-momentum client-momentum": 'algorithm.rate, a table: rate = { kind = "momentum", c = 0.1 }; '
    'algorithm.rate-memory = "keep" or "reset" says whether it lasts from round to round',
    "server-momentum global-momentum": 'algorithm.server, a table: server = { kind = "momentum", c = 1.0 }',
    "adaptive-clip adaptive-clipping clip-quantile target-quantile target-unclipped-quantile": "algorithm.quantile, of "
    'kind "dp-fedavg", whose clip follows the changes\' lengths',
    "proximal-mu prox-mu fedprox-mu": 'algorithm.mu, of kind "fedprox"',
    "rounds num-rounds n-rounds comm-round comm-rounds max-rounds total-rounds global-rounds num-server-rounds "
    "iterations central-num-iterations steps num-steps max-steps": _ROUNDS,
    "client clients num-clients n-clients client-num-in-total nodes num-nodes num-supernodes workers num-workers users "
    "num-users population participants num-devices": _DEVICES,
    "cohort cohort-size clients-per-round client-num-per-round devices-per-round fraction-fit fraction-train "
    "min-fit-clients sample-fraction": _COHORT,
    "bs batch-size minibatch mini-batch local-batch-size train-batch-size": _BATCH,
    "epochs epoch local-epochs num-epochs n-epochs client-epochs": _EPOCHS,
    "noise sigma noise-level noise-std noise-stddev": _NOISE,
    "max-grad-norm clip-norm clipping-norm clipping-bound clipping-threshold l2-norm-clip grad-clip sensitivity": _CLIP,
    "eps target-epsilon privacy-budget": "privacy.epsilon: the total over the task",
    "target-delta": "privacy.delta",
    "dp use-dp enable-dp ldp local-dp differential-privacy": _PRIVATE,
    "dp-sgd dpsgd": _PRIVATE_STEPS,
    "secagg sec-agg secaggplus secure-sum secure-sums masking": _SECURE,
    "strategy optimizer optimiser aggregator aggregation fl-algorithm federated-optimizer": _KIND,
    "non-iid noniid alpha dirichlet dirichlet-alpha partitioner partition-method partition-alpha": _PARTITION,
    "weight-decay l2 reg regularization lambda wd": _DECAY,
    "hidden hidden-layers hidden-sizes num-hidden units": _HIDDEN,
    "classes num-classes n-classes output-dim": _CLASSES,
    "num-features n-features input-dim input-size input-shape": _FEATURES,
    "dropout dropout-rate dropouts": "crowd.drop-out: part of the check-ins that never arrive",
    "delay latency": "crowd.delays, a table: delays = { request = 10.0 }",
    "staleness": "algorithm.max-staleness",
    "byzantine attackers malicious adversaries liars": 'crowd.attack, a table: attack = { kind = "sign" }',
    "seed random-seed trials repeats num-trials": _SEED,
}
"""Words of other frameworks, and what they are called here."""

_DEVICE_LEVEL = 'in crowdml that is unit = "device": all rows of a device together (user-level DP)'
_ROW_LEVEL = 'in crowdml that is unit = "sample": one row (example-level DP)'
VALUES: Mapping[tuple[str, str], str] = {
    **{("unit", word): _DEVICE_LEVEL for word in ("user", "client", "owner", "participant", "user-level")},
    **{("unit", word): _ROW_LEVEL for word in ("row", "record", "example", "instance")},
    ("kind", "fedadagrad"): 'in crowdml that is kind = "fedavg" with server = { kind = "adagrad", c = 0.1 }',
    ("kind", "fedopt"): 'in crowdml that is kind = "fedavgm", "fedadam" or "fedyogi", by what the server does',
    ("kind", "dp-sgd"): f"in crowdml that is {_PRIVATE_STEPS}",
}
"""The same of values, by key and value."""

RENAMED = {"sums": "secure-aggregation", "masked": "enabled", "weigh": "scale-columns"}
"""What had another name in earlier versions of crowdml."""

_OLD_NOISE = (
    "it adds the stored gradient of every device to each step, and with it old noise again and again",
    'use "dual-averaging", in which every update counts alike and noise averages out, or "momentum"',
)
REFUSED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("kind", "sag"): _OLD_NOISE,
    ("kind", "saga"): _OLD_NOISE,
    ("kind", "vsgd"): (
        "its rate follows from the variance of single gradients, which noise on each of them hides",
        'use "adagrad", "rmsprop", "adam" or "yogi", which remember the size of what was sent',
    ),
    ("kind", "dp-pca"): (
        "components with noise would spend ε before anything is learnt, and clip and norm of a row would rest on them",
        'use "pca" with data.public rows, of which nothing is promised; or "scattering" and "random-features", which '
        "learn nothing",
    ),
    ("mode", "trusted-server"): (
        "noise that a server adds once, after the average, protects nobody from that server, and no device could tell",
        'use mode = "sound" with secure-aggregation.honest = 1.0 and drop-out = 0.0: the average has the same noise, '
        "and the server sees nothing else",
    ),
    ("clip-elements", ""): (
        "d numbers within ±c may still be as long as c·√d together (in L1 c·d), and noise would have to follow that",
        "use clip, which bounds the length itself",
    ),
    ("weight-range", ""): (
        "weights in a range bound gradients only where activations are bounded, which ReLU is not, and then loosely",
        "use clip, which bounds the length of a gradient whatever the model; algorithm.radius keeps weights in a ball",
    ),
    ("frozen", ""): (
        "layers that do not learn are features: every device would compute them anew in each step, and clip them",
        'use data.transform: "random-features" and "scattering" are fixed convolutions, and a transform of your own '
        "may hold a net that somebody has trained",
    ),
    ("offline-steps", ""): (
        "a device without network would take as many steps as its outage lasts, on rows that no release counts",
        'use local-steps for steps between contacts; crowdml device personal, or kind = "ditto", for a model of '
        "its own that goes on improving",
    ),
    ("light", ""): (
        "masks from pairwise seeds alone fall when the server calls a device lost that is only late: it can be read",
        "leave it out: every sum is masked twice, and the survivors agree before anything is unmasked",
    ),
    ("replacement", ""): (
        "a row drawn twice would be on two devices, whose ledgers know nothing of each other: its ε would be theirs "
        "together",
        'leave it out: kind = "iid" deals every row to one device',
    ),
}
"""What the papers have and crowdml has not, on purpose, by key and value (empty: the key itself): why, and what there
is instead."""

_BY_WORD = {word: ours for words, ours in WORDS.items() for word in words.split()}


class BadKey(BadInput):
    """A key of a task is wrong.

    Attributes:
        path: The key, step by step: whoever has the file's text finds the line by it.
    """

    def __init__(self, what: str, path: Location, hint: str = "") -> None:
        """Name the key as files spell it."""
        super().__init__(what, where=spell(path), hint=hint)
        self.path = path


class InWords(Settings):
    """Settings that answer what does not fit with one of our errors instead of pydantic's."""

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, content: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(content)
        except ValidationError as error:
            raise _explain(error, content, cls) from None


def spell(path: Location) -> str:
    """Write a path as one key.

    >>> spell(("data", "transform", 0, "kind"))
    'data.transform[0].kind'
    """
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _explain(error: ValidationError, content: Any, root: type[BaseModel]) -> BadKey:
    """Turn the first of pydantic's complaints into one of ours."""
    first = min(error.errors(), key=lambda item: item["type"] == "missing")
    path, settings, field = _resolve(first["loc"], content, root)
    kind, context, given = first["type"], first.get("ctx", {}), first["input"]
    choice = _choice(field) if field else None
    if refused := _refused(kind, path, context, given):
        return refused
    if kind == "extra_forbidden":
        return BadKey("unknown key", path, _right_key(path, settings, content, root))
    if kind == "union_tag_invalid":
        choices = [choice.strip(" '") for choice in str(context["expected_tags"]).split(",")]
        tag = str(context["tag"])
        hint = VALUES.get(("kind", tag.lower())) or nearest(RENAMED.get(tag, tag), choices)
        return BadKey(f'unknown kind "{tag}"', (*path, "kind"), hint)
    if kind == "union_tag_not_found":
        kinds = choice.registry if choice else []
        return BadKey('the key "kind" is missing', path, "choose one of: " + ", ".join(kinds))
    if kind == "missing":
        return BadKey(f'the key "{path[-1]}" is missing', path[:-1], _described(field))
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in str(context["expected"]).replace(" or ", ",").split(",")]
        hint = VALUES.get((str(path[-1]), str(given).lower())) or nearest(str(given), choices)
        return BadKey(f"{given!r} is not possible here", path, hint)
    if kind == "value_error":
        return BadKey(str(context["error"]), path)
    if kind == "int_type" and isinstance(given, float) and given.is_integer():
        return BadKey(f"should be a whole number, not {given}", path, f"write {int(given)}")
    if kind in ("model_type", "model_attributes_type", "dict_type") and not isinstance(given, Mapping):
        key = path[-1] if path else ""
        if choice:
            return BadKey(f"should be a table, not {given!r}", path, table_form(key, choice.registry, given))
        keys = _keys(_section(field))
        hint = f"its keys are: {', '.join(keys)}" if keys else ""
        return BadKey(f"should be a section, not {given!r}", path, hint)
    return BadKey(f"{first['msg'].lower().replace('input ', '')}, not {given!r}", path, _described(field))


def _refused(kind: str, path: Location, context: Mapping[str, Any], given: Any) -> BadKey | None:
    """Say why there is no such thing, where that was decided; None where it is only unknown."""
    if kind == "union_tag_invalid":
        path, value = (*path, "kind"), str(context["tag"])
    else:
        value = str(given) if kind == "literal_error" else ""
    if kind not in ("union_tag_invalid", "literal_error", "extra_forbidden") or not path:
        return None
    found = REFUSED.get((str(path[-1]), value))
    if found is None:
        return None
    why, hint = found
    return BadKey(f'there is no "{value or path[-1]}" on purpose: {why}', path, hint)


def table_form(key: str | int, registry: Registry[Any], given: Any) -> str:
    """Write the table that was probably meant: its kind by name, or a number in the first kind that takes one.

    >>> from crowdml.algorithms.rates import RATES
    >>> table_form("rate", RATES, 0.1)
    'write it as a table: rate = { kind = "constant", c = 0.1 }'
    """
    named = next((name for name in registry if isinstance(given, str) and same_word(name, given)), None)
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    for name in [named] if named else registry:
        required = _required(registry[name])
        numbers = [at for at, field in required.items() if field.annotation in (int, float)]
        if named or not is_number or (numbers and len(numbers) == len(required) == 1):
            filled = {at: given if is_number else (field.examples or ["…"])[0] for at, field in required.items()}
            inside = ", ".join([f'kind = "{name}"', *(f"{at} = {value}" for at, value in filled.items())])
            kinds = "" if named or is_number else f"; kinds are: {', '.join(registry)}"
            table = f"{{ {inside} }}" if isinstance(key, int) else f"{key} = {{ {inside} }}"
            return f"write it as a table: {table}{kinds}"
    return "write it as a table with a kind; kinds are: " + ", ".join(registry)


def _required(settings: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys without which a section of this kind says nothing."""
    fields = {field.alias or name: field for name, field in settings.model_fields.items()}
    return {key: field for key, field in fields.items() if field.is_required() and key != "kind"}


def _right_key(path: Location, settings: type[BaseModel] | None, content: Any, root: type[BaseModel]) -> str:
    """Suggest what an unknown key should be: spelt otherwise, elsewhere, another kind's, another framework's."""
    word, keys = RENAMED.get(str(path[-1]), str(path[-1])), _keys(settings)
    if meant := next((key for key in keys if same_word(key, word)), ""):
        return f'did you mean "{meant}"?'
    found = []
    for section in root.model_fields.values():
        kind = _step_into(_step_into(content, str(section.alias)), "kind")
        if choice := _choice(section):
            kinds = [name for name, entry in choice.registry.items() if _has(entry, word)]
            found += [f'"{section.alias}.{word}", of kind {" or ".join(kinds)}'] if kinds and kind not in kinds else []
        here = _section(section) or (choice.registry.get(str(kind)) if choice else None)
        found += [f'"{section.alias}.{key}"' for key in _keys(here) if same_word(key, word)]
    if ours := ours_for(word):
        return f"in crowdml that is {ours}"
    return f"did you mean {'; or '.join(found)}?" if found else nearest(word, keys)


def _has(settings: type[BaseModel], word: str) -> bool:
    return any(same_word(key, word) for key in _keys(settings))


def _keys(settings: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in settings.model_fields.items()] if settings else []


def _described(field: FieldInfo | None) -> str:
    """Say what a key is for."""
    return str(field.description) if field is not None and field.description else ""


def _resolve(
    location: Location, content: Any, root: type[BaseModel]
) -> tuple[Location, type[BaseModel] | None, FieldInfo | None]:
    """Drop the tags that pydantic puts into a location, and find settings class and field that were reading there."""
    path: list[str | int] = []
    settings: type[BaseModel] | None = root
    field: FieldInfo | None = None
    at: Any = content
    for step in location:
        if isinstance(at, dict) and at.get("kind") == step and field is not None and (choice := _choice(field)):
            settings, field = choice.registry[str(step)], None
            continue
        if field is not None and isinstance(step, str):
            settings = _section(field)
        path.append(step)
        if isinstance(step, str) and settings is not None:
            field = next((entry for entry in settings.model_fields.values() if entry.alias == step), None)
        at = _step_into(at, step)
    return tuple(path), settings, field


def _choice(field: FieldInfo) -> OneOf | None:
    """Find the registry behind a field, whether it holds one entry or a list of them."""
    inner = (part for argument in get_args(field.annotation) for part in getattr(argument, "__metadata__", ()))
    return next((part for part in (*field.metadata, *inner) if isinstance(part, OneOf)), None)


def _section(field: FieldInfo | None) -> type[BaseModel] | None:
    """Return the settings class of a field that holds a table, one that may be left out too."""
    annotation: Any = field.annotation if field else None
    choices = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return next((each for each in choices if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _step_into(at: Any, step: str | int) -> Any:
    if isinstance(at, list) and isinstance(step, int):
        return at[step]
    return at.get(step) if isinstance(at, dict) else None


def ours_for(word: str) -> str:
    """Return what a word of another framework is here; empty where it is none.

    >>> ours_for("num_clients")
    'crowd.devices: a participant is called device'
    """
    hyphens = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", word).lower().replace("_", "-")
    return _BY_WORD.get(hyphens, "")
