"""Every recipe in every privacy mode ends with the recorded numbers. `python -m tests.golden.compare` shows bits."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
import pytest

from crowdml.core import record
from crowdml.data import locate
from tests.golden.cases import CASES, load_case
from tests.golden.numbers import compare, leaves, read_golden, run_case


@pytest.mark.parametrize("name", CASES)
def test_final_numbers_are_those_recorded(name: str) -> None:
    dataset = load_case(name).data.dataset or "digits"
    if dataset != "digits" and locate(dataset) is None and not os.environ.get("CROWDML_CI"):
        pytest.skip(f"the dataset {dataset} is not on this machine; set CROWDML_DATA to a folder that has it")
    assert not compare(read_golden()[name], run_case(name)).wrong


def test_nothing_is_recorded_that_is_no_case() -> None:
    assert list(read_golden()) == list(CASES)


@record
class Layer:
    """A record in place of a dict, its fields in another order."""

    w: Any
    b: Any


def test_a_record_is_walked_like_the_dict_it_replaces() -> None:
    layer = {"b": np.zeros(2), "w": np.ones((2, 3))}
    plain, recorded = (list(leaves((tree, {}))) for tree in (layer, Layer(**layer)))
    assert [path for path, _ in plain] == [path for path, _ in recorded] == ["0.b", "0.w"]
    assert all(one is other for (_, one), (_, other) in zip(plain, recorded, strict=True))


def test_a_small_change_is_seen() -> None:
    golden = read_golden()["crowd-sgd sound, counts"]
    assert compare(golden, golden).bits and not compare(golden, golden).wrong
    other = copy.deepcopy(golden)
    other["sha256"]["parameters"] = "other"
    other["parameters"][0]["projections"][1] *= 1.01
    other["measured"]["test_error"][0] += 1e-3
    other["counts"]["rows"]["mean"] = float("nan")
    other["privacy"].popitem()
    found = compare(golden, other)
    assert not found.bits
    assert [text.split(":")[0].split(".")[0] for text in found.wrong] == ["parameters", "counts", "measured", "privacy"]
