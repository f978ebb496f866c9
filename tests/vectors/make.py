"""Writes the vectors of the browser device from the Python reference: python -m tests.vectors.make

Each case is a signed task with rows, parameters and words of entropy, and everything that follows: rows as the model
sees them, the entry that accepts the terms, the check-in and its bytes. `tests/web` compares them with the reference,
so that they cannot go stale, and the web tests compare the browser's engine with them.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.core import NUMPY, Batch, Broadcast, trees
from crowdml.core.keys import SigningKey, fingerprint
from crowdml.device import DeviceCoins
from crowdml.device.device_home import build, terms_of
from crowdml.privacy.ledger.entries import accepted
from crowdml.privacy.ledger.entry_bytes import canonical
from crowdml.privacy.ledger.ledger_chain import LedgerChain
from crowdml.privacy.ledger.spending import packed
from crowdml.privacy.noise.grid import Grid, make_fine_grid, make_grid, round_checked, to_levels
from crowdml.privacy.noise.samplers import GivenWords
from crowdml.server.tasks.browser_plan import browser_plan
from crowdml.task import parse
from crowdml.task.live_task import LiveTask, definition_of, fit_public, open_task
from crowdml.wire import TaskDocument, message, sign_task
from crowdml.wire.join_link import InviteLink

FOLDER = Path(__file__).parent
KEY = SigningKey(bytes(range(32)))
WORDS = 4000
OWN_PARTS = (0.125, 0.6, 3.0)
NONE = 'mode = "none"'
ARRIVAL = 'kind = "crowd-sgd"\nbatch = 4'
STEPS = 'kind = "local-sgd"\nlocal-steps = 2\nlocal-batch = 3\nserver-batch = 2'
ROUNDS = 'kind = "fedavg"\nper-round = 2\nepochs = 2\nlocal-batch = 4'
ROUND = 'kind = "fedsgd"\nper-round = 2\nmax-rows = 5'
SLOWLY = '\nrate = { kind = "inverse-sqrt", c = 0.5, counter = "local-steps" }'
NORM = '{ kind = "norm", order = 2, at-most = 1.0 }'
NUMBER = 'target = { name = "t", low = 5.0, high = 35.0, bins = 3 }'


def sound(more: str, unit: str = "sample", mechanism: str = "gaussian", epsilon: float = 40.0) -> str:
    """Write the terms of a sound task."""
    delta = 1e-5 if mechanism == "gaussian" else 0.0
    return f'unit = "{unit}"\nmechanism = "{mechanism}"\nepsilon = {epsilon}\ndelta = {delta}\n{more}'


TASKS: dict[str, tuple[str, str, str, str, str]] = {
    # name: target, model, algorithm, privacy, transforms; "" stands for three labels
    "softmax": ("", 'kind = "softmax"', ARRIVAL, NONE, NORM),
    "softmax-decay": ("", 'kind = "softmax"\nbias = true\nregularisation = 0.1', ARRIVAL, NONE, ""),
    "logistic": ("two", 'kind = "logistic"\nbias = true', ARRIVAL, NONE, ""),
    "svm": ("two", 'kind = "svm"\nregularisation = 0.01', ARRIVAL, NONE, ""),
    "huber": ("two", 'kind = "huber"', ARRIVAL, NONE, ""),
    "linear": (NUMBER, 'kind = "linear"', ARRIVAL, NONE, ""),
    "linear-huber": (NUMBER, 'kind = "linear"\nloss = "huber"\ndelta = 0.5', ROUND, NONE, ""),
    "mlp-relu": ("", 'kind = "mlp"\nlayers = [5, 4]', ARRIVAL, NONE, ""),
    "mlp-tanh": ("", 'kind = "mlp"\nlayers = [5]\nactivation = "tanh"\ntop = "squared"', STEPS + SLOWLY, NONE, ""),
    "mlp-sigmoid": ("two", 'kind = "mlp"\nlayers = [5]\nactivation = "sigmoid"\ntop = "hinge"', ROUNDS, NONE, ""),
    "mlp-number": (NUMBER, 'kind = "mlp"\nlayers = [3]\ntop = "huber"', ROUND, NONE, ""),
    "steps-falling": ("", 'kind = "softmax"\nregularisation = 0.1', STEPS, NONE, NORM),
    "steps-exponential": (
        "",
        'kind = "logistic"',
        STEPS + '\nrate = { kind = "exponential", c = 0.5, factor = 0.9, counter = "device-contacts" }',
        NONE,
        "",
    ),
    "sound-laplace": (
        "",
        'kind = "softmax"',
        ARRIVAL + "\nheld-out = 0.25",
        sound("max-uses = 2\nstatistics-epsilon = 10.0", mechanism="laplace"),
        NORM,
    ),
    "sound-gaussian": ("", 'kind = "softmax"', ARRIVAL, sound("max-uses = 3\nstatistics-epsilon = 4.0"), NORM),
    "sound-number": (
        NUMBER,
        'kind = "linear"',
        ARRIVAL,
        sound("clip = 1.0\nmax-uses = 3\nstatistics-epsilon = 4.0"),
        "",
    ),
    "sound-device": ("", 'kind = "softmax"', ROUND, sound("clip = 1.0", unit="device"), NORM),
    "sound-mlp": ("", 'kind = "mlp"\nlayers = [3]', ARRIVAL, sound("clip = 1.0\nmax-uses = 3"), ""),
    "sound-stable": (
        "",
        'kind = "softmax"\nregularisation = 0.01',
        STEPS + '\nrate = { kind = "inverse-sqrt", c = 1.5, counter = "local-steps" }',
        sound("clip = 4.0\nmax-uses = 3"),
        NORM,
    ),
    "sound-steps": (
        "",
        'kind = "mlp"\nlayers = [3]',
        STEPS + '\nrate = { kind = "step", c = 0.5, every = 2, factor = 0.5, counter = "versions" }',
        sound("clip = 2.0", unit="device"),
        "",
    ),
    "sound-rounds": (
        "",
        'kind = "softmax"',
        ROUNDS + '\nrate = { kind = "constant", c = 0.5 }',
        sound("clip = 2.0\nmax-uses = 4", unit="sample"),
        NORM,
    ),
    "pca": ("", 'kind = "softmax"', ARRIVAL, NONE, '{ kind = "standardise" }, { kind = "pca", components = 2 }'),
    "fft": ("", 'kind = "softmax"', ARRIVAL, NONE, '{ kind = "fft" }, { kind = "scale", by = 0.25, offset = 0.5 }'),
    "columns": (
        "",
        'kind = "softmax"',
        ARRIVAL,
        NONE,
        '{ kind = "one-hot", column = 1, size = 3 }, { kind = "intercept", value = 2.0 }, '
        '{ kind = "scale-columns", columns = [{ first = 0, last = 1, by = 3.0 }] }, '
        '{ kind = "norm", order = 1, exactly = 2.0, centre = true }',
    ),
}


def make_all() -> dict[str, Any]:
    """Make everything, by the name of its file."""
    return {
        "check_ins": [make_case(name, number) for number, name in enumerate(TASKS)],
        "rounding": [make_rounding(order, seed) for seed in range(3) for order in (1, 2, 3)],
        "link": make_link(),
        "owners": [make_owner(name, part) for name in TASKS if name.startswith("sound-") for part in OWN_PARTS],
        "cap": make_cap(),
    }


def make_document(name: str, more: str = "") -> TaskDocument:
    """Make what is signed of a task; `more` are further terms."""
    target, model, algorithm, privacy, transforms = TASKS[name]
    privacy += more
    wanted = {"": 'labels = ["a", "b", "c"]', "two": 'labels = ["no", "yes"]'}.get(target, target)
    if 'kind = "logistic"' in model:
        wanted = 'labels = ["no", "yes"]'
    stop = "[stop]\nmax-releases = 5\n" if 'unit = "device"' in privacy else ""
    text = (
        f'crowdml = 1\nname = "{name}"\n[data]\nfeatures = 4\n{wanted}\ntransform = [{transforms}]\n[model]\n{model}\n'
        f"[algorithm]\n{algorithm}\n[privacy]\n{privacy}\n{stop}"
    )
    task = parse(text, name, ())
    draws = np.random.default_rng(5)
    arrays: Any = tuple({} for _ in task.data.transform)
    if any(transform.learns for transform in task.data.transform):
        path = FOLDER / ".public.npz"
        np.savez(path, rows=draws.normal(size=(30, 4)).astype(np.float32))
        arrays = fit_public(task, path)
        path.unlink()
    plain = TaskDocument(task=name, incarnation=1, definition=definition_of(task), arrays=arrays)
    return dataclasses.replace(plain, browser=browser_plan(open_task(plain)))


def make_case(name: str, number: int) -> dict[str, Any]:
    """Make one contribution, from rows to bytes."""
    signed = sign_task(make_document(name), KEY)
    live = open_task(signed.open())
    draws = np.random.default_rng(100 + number)
    schedule = live.algorithm.schedule
    count = 5 if schedule.whole else schedule.batch
    rows = draws.normal(size=(count, 4)).astype(np.float32)
    if name == "columns":
        rows[:, 1] = draws.integers(0, 3, count)
    target = live.task.target
    labels = draws.integers(0, target.bins, count) if live.task.data.labels else draws.uniform(0, 40, count).round(3)
    targets = target.encode(labels)
    seen = live.transform(rows)
    order = (
        np.concatenate([draws.permutation(count) for _ in range(schedule.epochs)])
        if schedule.whole
        else np.arange(count)
    )
    width = -(-len(order) // schedule.multiple) * schedule.multiple
    at = np.zeros(width, np.int64)
    at[: len(order)] = order
    batch = Batch(rows=seen[at], targets=targets[at], mask=(np.arange(width) < len(order)).astype(np.float32))
    example = live.messages.check_out.example["content"]
    parameters = trees.map(lambda leaf: draws.normal(size=leaf.shape).astype(np.float32), example.parameters)
    version = int(draws.integers(1, 1000))
    counts = np.int32(draws.integers(1, 50)) if trees.leaves(example.count) else ()
    broadcast = Broadcast(parameters=parameters, count=counts)
    words = [int(word) for word in draws.integers(0, 1 << 64, WORDS, np.uint64)]
    given = GivenWords(words)
    phase = live.algorithm.last
    begun = phase.begin()
    check_in, after = phase.contribute(broadcast, begun, batch, DeviceCoins(given))
    body = live.messages.check_in.encode(message(version, check_in))
    check_out = live.messages.check_out.encode(message(version, broadcast))
    entry = accepted(name, signed.hash, terms_of(live))
    return {
        "name": name,
        "signed": signed.to_json(),
        "hash": signed.hash,
        "operator": fingerprint(KEY.public),
        "entry": canonical(entry).decode(),
        "epsilon": _spent(live),
        "rows": rows.tolist(),
        "labels": labels.tolist(),
        "targets": targets.tolist(),
        "seen": seen.tolist(),
        "order": order.tolist(),
        "width": width,
        "words": [str(word) for word in words[: given.taken]],
        "version": version,
        "check-out": base64.b64encode(check_out).decode(),
        "update": np.concatenate([np.ravel(leaf) for leaf in trees.leaves(check_in.update)]).tolist(),
        "check-in": base64.b64encode(body).decode(),
        "after": {name: int(value) for name, value in _remembered(after.work).items()},
    }


def _remembered(work: Any) -> dict[str, Any]:
    found = {name: getattr(work, name, ()) for name in ("contacts", "steps")}
    return {name: value for name, value in found.items() if not isinstance(value, tuple)}


def _spent(live: LiveTask) -> float | None:
    """Return ε after one use, as a ledger says it; None where nothing is promised."""
    terms = terms_of(live)
    return terms.event.promise(terms.filter.delta).epsilon if terms.promises else None


def make_rounding(order: int, seed: int) -> dict[str, Any]:
    """Round vectors at the limit, so that some are rounded again; the third kind is a fine grid in wide numbers."""
    draws = np.random.default_rng(seed)
    grid: Grid = make_fine_grid(12, 2.0) if order == 3 else make_grid(order, 12, 2.0, "example")
    if order != 3:
        grid = dataclasses.replace(grid, limit=grid.levels if order == 1 else grid.levels**2)
    kind = np.float64 if order == 3 else np.float32
    vectors = draws.normal(size=(6, 12)).astype(kind)
    vectors[0], vectors[1, 3] = 0.0, np.nan
    words = [int(word) for word in draws.integers(0, 1 << 64, WORDS, np.uint64)]
    given = GivenWords(words)
    levels = to_levels(grid, vectors, NUMPY)
    rounded = round_checked(grid, levels, DeviceCoins(given), "grid", NUMPY)
    return {
        "grid": {name: getattr(grid, name) for name in ("order", "size", "radius", "levels", "limit", "per")},
        "wide": order == 3,
        "vectors": [None if np.isnan(value) else float(value) for value in vectors.ravel()],
        "levels": base64.b64encode(levels.astype("<f8").tobytes()).decode(),
        "words": [str(word) for word in words[: given.taken]],
        "rounded": rounded.ravel().tolist(),
    }


def make_owner(name: str, part: float) -> dict[str, Any]:
    """Let an owner choose a part of a task's ε: what the ledger accepts, and the noise."""
    document = make_document(name, "\nowner-range = [2.0, 200.0]")
    live = build(document, epsilon=(epsilon := 40.0 * part))
    sanitiser = live.algorithm.last.sanitiser
    mechanism, counts = sanitiser.on_grid, sanitiser.counts
    assert mechanism is not None
    return {
        "name": name,
        "text": sign_task(document, KEY).text.decode(),
        "epsilon": epsilon,
        "entry": canonical(accepted(name, "", terms_of(live))).decode(),
        "scale": mechanism.scale,
        "counts": [counts.errors, counts.spread] if counts else None,
    }


def make_cap() -> list[dict[str, Any]]:
    """Make the course of a ledger over several tasks, and what all count for against a cap after each entry."""
    chain, course = LedgerChain(), list[dict[str, Any]]()

    def take(entry: Any, samples: list[int]) -> None:
        numbers = packed(np.array(samples, np.int64))
        raw = chain.append(entry, numbers).decode()
        now = chain.reserved()
        course.append({"raw": raw, "samples": samples, "epsilon": now.epsilon, "delta": now.delta})

    for name in ("sound-laplace", "sound-gaussian", "sound-device", "sound-stable"):
        terms = terms_of(open_task(make_document(name)))
        take(chain.accept(name, "ab", terms), [])
        samples = [0, 1] if terms.unit == "sample" else []
        entry = chain.charge(name, f"key-{name}", b"bytes", np.array(samples, np.int64), 1)
        take(entry, samples)
    for name, public in (("sound-laplace", True), ("sound-gaussian", True), ("sound-device", False)):
        take(chain.close(name, public=public), [])
    take(chain.accept("unused", "ab", terms_of(open_task(make_document("sound-rounds")))), [])
    take(chain.close("unused", public=True), [])
    return course


def make_link() -> dict[str, str]:
    """Make an invite."""
    link = InviteLink(
        server="https://crowd.example:8800", task="digits", code="c" * 32, key="k" * 32, task_hash="5" * 64
    )
    return {"url": link.to_url()} | vars(link)


def main() -> None:
    """Write all files."""
    for name, content in make_all().items():
        (FOLDER / f"browser_{name}.json").write_text(json.dumps(content, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
