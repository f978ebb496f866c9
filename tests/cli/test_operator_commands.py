"""crowdml operator: the token and the log, asked for by command."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crowdml.cli.operator import ADDRESS_FILE, ServerRefused
from crowdml.cli.serve import log, rotate
from crowdml.server.setup.serving import TOKEN_FILE
from tests.support.application import Makes
from tests.support.on_socket import OnSocket


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Any]:
    """A server on a socket whose folder commands find."""
    with contextlib.closing(Makes(tmp_path)) as make:
        made: Any = make(kind=OnSocket)
        (made.home / ADDRESS_FILE).write_text(made.address + "\n")
        made.create()
        yield made


def test_a_new_token_is_printed_once_and_used_from_then_on(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    old = served.token
    rotate(home=served.home)
    (token,) = capsys.readouterr().out.split()
    assert token == (served.home / TOKEN_FILE).read_text().strip() != old
    rotate(home=served.home, json=True)
    again = json.loads(capsys.readouterr().out)["token"]
    assert again == (served.home / TOKEN_FILE).read_text().strip() != token
    (served.home / TOKEN_FILE).write_text(old)
    with pytest.raises(ServerRefused, match="not valid"):
        rotate(home=served.home)


def test_the_log_is_printed(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for state in ("paused", "open") * 60:
        served.move(state)
    log(home=served.home, count=3)
    assert capsys.readouterr().out.count("walk") == 3
    log(home=served.home, task="walk", count=1000, json=True)
    found = json.loads(capsys.readouterr().out)["events"]
    assert len(found) == 121 and found[-1]["action"] == "created", "all pages"
    with pytest.raises(ServerRefused, match="no such task"):
        log(home=served.home, task="nobody")
