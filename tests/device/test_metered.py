"""Devices that wait for a network that costs nothing: nothing is sent before, and nobody's silence counts as free."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

import crowdml
from crowdml.core import BadInput
from crowdml.device.metered import ASK, is_metered


def answering(text: str) -> Any:
    def run(command: Any, **options: Any) -> Any:
        assert command == ASK and options["timeout"] > 0
        return SimpleNamespace(stdout=text)

    return run


@pytest.mark.parametrize(("said", "metered"), [("u 1", True), ("u 2", False), ("u 3", True), ("u 4\n", False)])
def test_network_managers_word_is_taken(said: str, metered: bool) -> None:
    assert is_metered(answering(said)) is metered


@pytest.mark.parametrize("said", ["u 0", "", "no"])
def test_what_nobody_knows_is_not_taken_for_free(said: str) -> None:
    with pytest.raises(BadInput, match="nothing here can tell") as refused:
        is_metered(answering(said))
    assert refused.value.where == "--unmetered"


@pytest.mark.parametrize("failure", [FileNotFoundError("busctl"), subprocess.TimeoutExpired("busctl", 20)])
def test_a_machine_without_network_manager_says_so(failure: Exception) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise failure

    with pytest.raises(BadInput, match="nothing here can tell"):
        is_metered(run)


def test_a_device_waits_before_every_contact(make_server: Any, join: Any, rows: Any) -> None:
    server, told = make_server(), list[str]()
    answers = iter([True, True, False, True, False, False])
    place, before = join(server), len(server.clock.slept)
    with crowdml.Device(place, connect=server.connect, metered=lambda: next(answers), tell=told.append) as device:
        assert device.run(rows, releases=2).used == 2
    assert len(server.clock.slept) - before == 3, "twice before it met the server, once before the first release"
    assert sum("the network is metered" in line for line in told) == 2
    assert list(answers) == [], "it was asked before every contact, and not after the last"


def test_nothing_is_sent_where_nobody_knows(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()

    def unknown() -> bool:
        raise BadInput("nothing here can tell whether the network is metered")

    with crowdml.Device(join(server), connect=server.connect, metered=unknown) as device:
        with pytest.raises(BadInput, match="nothing here can tell"):
            device.run(rows)
        assert device.releases == 0
