"""crowdml task leak: from the meter's file to the page that owners read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crowdml.cli.operator import ADDRESS_FILE
from tests.support.application import Makes
from tests.support.live_slices import TASK
from tests.support.on_socket import OnSocket

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Any]:
    """A server on a socket, with a sliced task, whose folder commands find."""
    with contextlib.closing(Makes(tmp_path)) as make:
        made: Any = make(kind=OnSocket)
        (made.home / ADDRESS_FILE).write_text(made.address + "\n")
        assert made.as_operator("POST", "/v1/tasks", {"file": TASK}).status_code == 201
        yield made


def test_what_the_audit_wrote_stands_in_the_task(run: Run, served: Any, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples/sliced-digits.toml"
    code, _, said = run("audit", str(example), "--own-rows", "40", "--json", "leak.json")
    assert code == 0, said
    readings = [each for each in json.loads((tmp_path / "leak.json").read_text())["readings"] if each["right"]]
    best = max(each["right"] for each in readings if each["what"].startswith("sums"))
    code, told, said = run("task", "leak", "pieces", "leak.json", "--home", str(served.home))
    assert code == 0 and f"{best:.0%} of labels read" in told + said
    shown = served.send("GET", "/v1/tasks/pieces/groups").json()["leak"]
    assert shown["right"] == pytest.approx(best, abs=0.001) and shown["own_rows"] == 40


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "cannot be read"),
        ("{", "says nothing about sums"),
        ("[]", "says nothing about sums"),
        ('{"own_rows": 40, "readings": [{"what": "sums", "right": null, "chance": 0.1}]}', "says nothing about sums"),
        ('{"own_rows": 40, "readings": [{"what": "pictures", "right": 0.5, "chance": 0.1}]}', "says nothing about"),
        ('{"own_rows": 40, "readings": [{"what": "sums", "right": 1.5, "chance": 0.1}]}', "says nothing about sums"),
        ('{"own_rows": 0, "readings": [{"what": "sums", "right": 0.5, "chance": 0.1}]}', "says nothing about sums"),
        ('{"own_rows": 40, "readings": [{"what": "sums", "right": NaN, "chance": 0.1}]}', "says nothing about sums"),
    ],
)
def test_a_file_of_something_else_is_refused(
    run: Run, served: Any, tmp_path: Path, written: str | None, words: str
) -> None:
    if written is not None:
        (tmp_path / "leak.json").write_text(written)
    code, told, said = run("task", "leak", "pieces", "leak.json", "--home", str(served.home))
    assert code == 2 and words in said and "Traceback" not in said and not told
    assert served.send("GET", "/v1/tasks/pieces/groups").json()["leak"] is None
