"""A result that is kept and read again is the same; a damaged file is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from crowdml import JaxModel
from crowdml.core import BadInput, trees
from crowdml.simulation import Result, simulate
from crowdml.task import Task

Make = Callable[..., Task]
PUBLIC = ("data.public=200", "data.transform=[{ kind = 'standardise' }, { kind = 'norm', order = 2, at-most = 1.0 }]")


@pytest.fixture
def result(digits: Make) -> Result:
    noise = "privacy={ mode = 'paper', mechanism = 'gaussian', clip = 0.5, epsilon = 2.0, delta = 1e-6 }"
    return simulate(digits(noise, "crowd.measure=['loss', 'devices']", *PUBLIC), trials=2, engine="numpy")


def test_everything_is_there_again(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    result.save(path)
    again = Result.load(path)
    assert again.task == result.task and again.to_json() == result.to_json()
    assert again.to_pandas().equals(result.to_pandas())
    for one, other in zip(trees.leaves(again.parameters), trees.leaves(result.parameters), strict=True):
        assert np.array_equal(one, other)
    rows = np.random.default_rng(0).uniform(0, 16, (7, 64))
    assert again.model.predict(rows).tolist() == result.model.predict(rows).tolist()
    again.plot(tmp_path / "again.png", against="epsilon", measure="test_loss")
    assert again.task.structure() == result.task.structure()


@pytest.mark.parametrize(
    "changes",
    [
        ("algorithm={ kind = 'fedavg', averaging = 'inverse-variance' }",),
        ("algorithm={ kind = 'decentral' }",),
        ("algorithm={ kind = 'central-batch' }",),
    ],
)
def test_other_kinds_of_result_can_be_kept(digits: Make, tmp_path: Path, changes: tuple[str, ...]) -> None:
    result = simulate(digits(*changes, "crowd.passes=1", "crowd.curve=2"))
    result.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").to_json() == result.to_json()


def test_damage_is_refused(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    result.save(path)
    whole = path.read_bytes()
    for content, told in (
        (whole[: len(whole) // 2], "is damaged, or no result"),
        (b"", "is damaged, or no result"),
        (b"\x80\x04pickle", "is damaged, or no result"),
        (safetensors.numpy.save({"a": np.zeros(1)}), "is not the result of a simulation"),
        (_with_words(whole, lambda words: words.pop("privacy")), "is damaged, or no result"),
        (_with_words(whole, lambda words: words["task"].pop("model")), "model"),
        (_with_words(whole, lambda words: words.update(run_seconds="long")), "is damaged, or no result"),
        (_with_words(whole, lambda words: words.update(transforms=3)), "3 transforms, and its task 2"),
        (_with_words(whole, lambda words: words["task"].update(model=dict(kind="mlp", layers=[3]))), "its parameters"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadInput) as caught:
            Result.load(path)
        assert told in str(caught.value), str(caught.value)
    with pytest.raises(BadInput, match="there is no file"):
        Result.load(tmp_path / "none")
    with pytest.raises(BadInput, match="is a folder"):
        Result.load(tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        result.save(tmp_path / "none" / "kept")


def test_a_changed_byte_is_found_wherever_it_is(result: Result, tmp_path: Path) -> None:
    path, generator = tmp_path / "kept", np.random.default_rng(0)
    result.save(path)
    whole, known, refused = path.read_bytes(), result.to_json(), 0
    for place in generator.integers(len(whole), size=200):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged)
        try:
            assert Result.load(path).to_json() == known
        except BadInput as error:
            assert "is damaged, or no result" in str(error) or "is not the result of a simulation" in str(error)
            refused += 1
    assert refused > 180


def test_a_file_without_a_checksum_is_read(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    result.save(path)
    path.write_bytes(_with_words(path.read_bytes(), lambda words: None))
    assert Result.load(path).to_json() == result.to_json()


def _with_words(whole: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a file with other words, and without the checksum, which files of before have not."""
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    words = json.loads(header["__metadata__"]["words"])
    change(words)
    header["__metadata__"]["words"] = json.dumps(words)
    del header["__metadata__"]["sha256"]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + size :]


@pytest.mark.parametrize("name", ["parameters/0/w", "measured/test_error", "course/sent", "samples"])
def test_arrays_that_do_not_fit_are_refused(result: Result, tmp_path: Path, name: str) -> None:
    path = tmp_path / "kept"
    result.save(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata, arrays = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}
    del metadata["sha256"]
    safetensors.numpy.save_file(arrays | {name: np.zeros(3, np.float32)}, path, metadata)
    with pytest.raises(BadInput, match=r"kept is damaged, or no result: .* ha(s|ve) shape"):
        Result.load(path)
    del arrays[name]
    safetensors.numpy.save_file(arrays, path, metadata)
    with pytest.raises(BadInput, match="kept is damaged, or no result"):
        Result.load(path)


def test_a_model_of_your_own_is_handed_in_again(digits: Make, tmp_path: Path) -> None:
    def line(parameters: Any, x: Any) -> Any:
        return x @ parameters["w"]

    model = JaxModel(
        init=lambda key: {"w": np.zeros((64, 10), np.float32)},
        loss=lambda parameters, x, y: ((line(parameters, x) - (np.arange(10) == y)) ** 2).sum(),
        predict=lambda parameters, x: line(parameters, x).argmax(),
    )
    kept = simulate(digits("crowd.passes=1"), model=model, engine="numpy")
    kept.save(tmp_path / "kept")
    again, rows = Result.load(tmp_path / "kept"), np.ones((3, 64))
    assert again.to_json()["final"] == kept.to_json()["final"] and again.to_pandas().equals(kept.to_pandas())
    with pytest.raises(BadInput, match=r"this machine has no model .*\n  hand it in"):
        again.model.predict(rows)
    whole = Result.load(tmp_path / "kept", model=model)
    assert whole.model.predict(rows).tolist() == kept.model.predict(rows).tolist()
