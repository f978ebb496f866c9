"""What is kept of a run: bits for this machine, fingerprints for every other, and how far two runs are apart."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crowdml import simulate
from crowdml.simulation import Result
from tests.golden.cases import TRIALS, load_case

GOLDEN = Path(__file__).with_name("golden.json")

RELATIVE, ABSOLUTE = 1e-4, 1e-6
PRIVACY_RELATIVE = 1e-8
PROJECTIONS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """How far a run is from what is kept.

    Attributes:
        bits: Parameters and counts are the same to the last bit.
        largest: The largest relative difference of any number that is kept, the report apart.
        wrong: What is outside the tolerance, in words.
    """

    bits: bool
    largest: float
    wrong: tuple[str, ...]


def run_case(name: str) -> dict[str, Any]:
    """Simulate a case and return what is to be kept of it."""
    return kept(simulate(load_case(name), trials=TRIALS, engine="compiled"))


def kept(result: Result) -> dict[str, Any]:
    """Return plain values, as JSON reads them back."""
    measured = {name: values[-1] for name, values in result.measured.items()} | {
        f"baseline {name}": values for name, values in result.baselines.items()
    }
    parameters, counts = dict(leaves(result.parameters)), dict(leaves(result.counts))
    content = {
        "sha256": {"parameters": _hash(parameters), "counts": _hash(counts)},
        "parameters": [_fingerprint(leaf) for leaf in parameters.values()],
        "counts": {name: _fingerprint(leaf) for name, leaf in counts.items()},
        "measured": {name: np.asarray(values, np.float64).tolist() for name, values in measured.items()},
        "updates": result.updates,
        # Odds follow from the same plan as ε, and have tests of their own.
        "privacy": {name: value for name, value in result.to_json()["privacy"].items() if name != "odds"},
    }
    return dict(json.loads(json.dumps(content)))


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Walk the arrays of a tree. Names are in alphabetical order, so that a record is walked like a dict."""
    if dataclasses.is_dataclass(tree):
        tree = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    if isinstance(tree, Mapping):
        for name in sorted(tree):
            yield from leaves(tree[name], f"{path}.{name}" if path else name)
    elif isinstance(tree, tuple | list):
        for at, part in enumerate(tree):
            yield from leaves(part, f"{path}.{at}" if path else str(at))
    elif tree is not None:
        leaf = np.asarray(tree)
        if leaf.dtype == object:
            raise TypeError(f"{path or 'the tree'} is a {type(tree).__name__}: no array, dict, tuple or record")
        yield path, leaf


def _hash(found: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return the SHA-256 of all bytes, whatever the leaves are called."""
    digest = hashlib.sha256()
    for leaf in found.values():
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _fingerprint(leaf: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return a few numbers that change with any number of the leaf, all about as large as its numbers are."""
    flat = leaf.astype(np.float64).ravel()
    directions = np.random.RandomState(0).standard_normal((PROJECTIONS, flat.size))
    return {
        "shape": list(leaf.shape),
        "dtype": str(leaf.dtype),
        "mean": float(flat.mean()),
        "norm": float(np.linalg.norm(flat)),
        "projections": (directions @ flat / math.sqrt(flat.size)).tolist(),
    }


def compare(golden: Mapping[str, Any], found: Mapping[str, Any]) -> Difference:
    """Say how far a run is from what is kept."""
    apart: dict[str, tuple[float, float]] = {}
    wrong = []
    if len(golden["parameters"]) != len(found["parameters"]):
        wrong.append(f"parameters: {len(golden['parameters'])} arrays are kept, {len(found['parameters'])} were learnt")
    for name in ("counts", "measured"):
        if golden[name].keys() != found[name].keys():
            wrong.append(f"{name}: {sorted(golden[name])} are kept, {sorted(found[name])} were found")
    if golden["updates"] != found["updates"]:
        wrong.append(f"updates: {golden['updates']} are kept, {found['updates']} were made")
    pairs = [
        *((f"parameters.{at}", *both) for at, both in enumerate(zip(golden["parameters"], found["parameters"]))),  # noqa: B905 - said above
        *((f"counts.{name}", golden["counts"][name], found["counts"].get(name)) for name in golden["counts"]),
    ]
    for where, one, other in pairs:
        if other is None:
            continue
        for what in ("shape", "dtype"):
            if one[what] != other[what]:
                wrong.append(f"{where}: {what} {one[what]} is kept, {other[what]} was found")
        apart |= _apart(where, one, other)
    for name, values in golden["measured"].items():
        others = found["measured"].get(name, values)
        apart |= {
            f"measured.{name}.{at}": (abs(one - other), abs(one))
            for at, (one, other) in enumerate(zip(values, others, strict=True))
        }
    wrong += [
        f"{where}: off by {off:.3g} where numbers are about {size:.3g}"
        for where, (off, size) in apart.items()
        if not off <= max(RELATIVE * size, ABSOLUTE)  # so that NaN is wrong
    ]
    wrong += [f"privacy{text}" for text in _privacy_differences(golden["privacy"], found["privacy"])]
    return Difference(
        bits=golden["sha256"] == found["sha256"],
        largest=max((off / size if size else off for off, size in apart.values()), default=0.0),
        wrong=tuple(wrong),
    )


def _apart(where: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return how far fingerprints are apart, and how large the leaf's numbers are: a mean may well be near zero."""
    typical = one["norm"] / math.sqrt(max(math.prod(one["shape"]), 1))
    found = {
        f"{where}.mean": (abs(one["mean"] - other["mean"]), typical),
        f"{where}.norm": (abs(one["norm"] - other["norm"]), one["norm"]),
    }
    for at, (ours, theirs) in enumerate(zip(one["projections"], other["projections"], strict=True)):
        found[f"{where}.projections.{at}"] = (abs(ours - theirs), typical)
    return found


def _privacy_differences(golden: Any, found: Any, path: str = "") -> Iterator[str]:
    if isinstance(golden, dict) and isinstance(found, dict):
        for name in sorted(golden.keys() | found.keys()):
            if name not in golden or name not in found:
                yield f"{path}.{name}: is {'kept' if name in golden else 'found'} only"
            else:
                yield from _privacy_differences(golden[name], found[name], f"{path}.{name}")
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for at, (one, other) in enumerate(zip(golden, found, strict=True)):
            yield from _privacy_differences(one, other, f"{path}.{at}")
    elif isinstance(golden, float) and isinstance(found, float):
        if not (math.isclose(golden, found, rel_tol=PRIVACY_RELATIVE) or (golden != golden and found != found)):
            yield f"{path}: {golden!r} is kept, {found!r} was found"
    elif type(golden) is not type(found) or golden != found:
        yield f"{path}: {golden!r} is kept, {found!r} was found"


def read_golden() -> dict[str, Any]:
    """Read what is kept, by case; nothing where nothing has been recorded."""
    return dict(json.loads(GOLDEN.read_text("utf-8"))) if GOLDEN.exists() else {}
