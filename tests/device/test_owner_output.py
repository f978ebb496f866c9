"""What an owner reads about a cap, a ledger and an end: only what is so, and nothing that teaches evasion."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from crowdml.cli import device_output
from crowdml.core import BadInput
from crowdml.device import Device
from crowdml.device.device_home import Home
from crowdml.device.joining import leave
from crowdml.device.owner_reports import cap_report, ledger_report, report

NONE = "privacy={ mode = 'none' }"
WHOLE = "privacy={ epsilon = 6.0, unit = 'device', clip = 1.0 }"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")


def advice(capsys: pytest.CaptureFixture[str], server: Any, join: Any, place: Path, given: Any = (None, None)) -> str:
    """Join, and return what was said about a cap before the owner decided."""

    def accept(offer: Any) -> bool:
        device_output.print_cap_advice(offer, place, given, "")
        return True

    join(server, accept=accept)
    return capsys.readouterr().out


def test_a_cap_is_suggested_until_one_is_set(make_server: Any, join: Any, tmp_path: Path, capsys: Any) -> None:
    place = tmp_path / "home"
    told = advice(capsys, make_server(), join, place)
    assert "no cap is set: nothing limits what all tasks of this device add up to" in told
    assert "crowdml device cap --epsilon 10 --delta 0.0001" in told and "--cap-epsilon 10" in told
    assert "no cap is set" in advice(capsys, make_server("name=run"), join, place)
    Home(place).limit(20.0, None)
    assert advice(capsys, make_server("name=swim"), join, place) == ""


def test_a_suggested_cap_leaves_room_for_the_task_at_hand(
    make_server: Any, join: Any, tmp_path: Path, capsys: Any
) -> None:
    server = make_server("privacy={ epsilon = 40.0, max-uses = 3 }")
    assert "--epsilon 40 " in advice(capsys, server, join, tmp_path / "home")
    given = advice(capsys, make_server("name=run"), join, tmp_path / "home", given=(50.0, None))
    assert given == "", "an owner who gives one needs no advice"


def test_a_suggested_cap_leaves_room_beside_the_tasks_that_count_already(
    make_server: Any, join: Any, tmp_path: Path, capsys: Any
) -> None:
    """Whoever takes the advice is not refused: what is printed is enough, rounded as it is."""
    place = tmp_path / "home"
    for name in ("walk", "run", "swim"):
        epsilon = 4.0000004 if name == "swim" else 4.0
        server = make_server(f"name={name}", f"privacy={{ epsilon = {epsilon}, max-uses = 3 }}")
        told = advice(capsys, server, join, place)
    suggested = float(told.split("--cap-epsilon ")[1].split()[0])
    assert 12.0000004 <= suggested < 12.2
    Home(place).limit(suggested, None)
    with Home(place).ledger() as ledger:
        assert ledger.chain.reserved().epsilon <= ledger.chain.cap.epsilon


def test_beside_a_task_without_a_guarantee_no_cap_is_suggested(
    make_server: Any, join: Any, tmp_path: Path, capsys: Any
) -> None:
    join(make_server(NONE))
    told = advice(capsys, make_server("name=run"), join, tmp_path / "home")
    assert "a task of this device has no ε" in told and "suggested" not in told


def test_a_task_without_a_guarantee_is_said_to_fit_no_cap(
    make_server: Any, join: Any, tmp_path: Path, capsys: Any
) -> None:
    told = advice(capsys, make_server(NONE), join, tmp_path / "home")
    assert "no cap is set" in told and "any cap would refuse it" in told and "suggested" not in told


def test_status_and_ledger_say_what_the_cap_is_and_what_counts(
    make_server: Any, join: Any, rows: Any, capsys: Any
) -> None:
    server = make_server()
    home = Home(join(server))
    device_output.print_status(report(home, ask=False), False)
    device_output.print_ledger(ledger_report(home, compare=False), False)
    assert capsys.readouterr().out.count("no cap is set") == 2
    home.limit(20.0, 1e-4)
    device_output.print_cap(cap_report(home), False)
    assert "ε = 20, δ = 0.0001; counted against it: ε = 6" in capsys.readouterr().out
    server.state = "stopped"
    with Device(home.path, connect=server.connect) as device:
        device.run(rows)
    device_output.print_ledger(ledger_report(home, compare=False), False)
    told = capsys.readouterr().out
    assert "nothing: closed, counts ε = 0 against a cap" in told and "counted against it: ε = 0" in told


def test_the_ledger_says_and_draws_what_is_left_and_what_was_given_back(
    make_server: Any, join: Any, rows: Any, capsys: Any, tmp_path: Path
) -> None:
    walk, run = make_server(), make_server("name=run")
    home = Home(join(walk))
    join(run)
    with Device(home.path, "walk", connect=walk.connect) as device:
        device.run(rows, releases=1)
    run.state = "stopped"
    with Device(home.path, "run", connect=run.connect) as device:
        device.run(rows)
    home.limit(20.0, None)
    found = ledger_report(home, compare=False)
    device_output.print_ledger(found, False)
    told = capsys.readouterr().out
    assert "open tasks may still spend ε = 4 of what was promised" in told
    assert "ended tasks gave back ε = 6: it no longer counts" in told
    device_output.draw_budget(found, tmp_path / "budget.svg")
    drawn = (tmp_path / "budget.svg").read_text(encoding="utf-8")
    assert all(
        f"<!-- {word} -->" in drawn for word in ("walk", "run", "spent", "given back", "your cap over all tasks")
    )


def test_a_ledger_without_a_promise_has_nothing_to_draw(make_server: Any, join: Any, tmp_path: Path) -> None:
    home = Home(join(make_server(NONE)))
    with pytest.raises(BadInput, match="no task of this device has an ε to draw"):
        device_output.draw_budget(ledger_report(home, compare=False), tmp_path / "budget.svg")


@pytest.mark.parametrize(("terms", "whom"), [((), "the sample that is worst off"), ((WHOLE,), "this device")])
def test_what_was_spent_is_said_of_the_unit_that_is_promised_something(
    terms: tuple[str, ...], whom: str, make_server: Any, join: Any, rows: Any, capsys: Any
) -> None:
    server = make_server(*terms)
    with Device(join(server), connect=server.connect) as device:
        device_output.Progress().end(device, device.run(rows, releases=1))
    assert capsys.readouterr().out.rstrip().endswith(f"for {whom}")


@pytest.mark.parametrize("terms", [None, WHOLE, NONE], ids=["sample", "device", "no guarantee"])
def test_no_uses_are_left_after_the_last_release(
    make_server: Any, join: Any, rows: Any, capsys: Any, terms: str | None
) -> None:
    server = make_server("stop.max-releases=2", *([terms] if terms else []))
    home = Home(join(server))
    with Device(home.path, connect=server.connect) as device:
        device.run(rows, releases=1)
        device_output.print_ledger(ledger_report(home, compare=False), False)
        before = capsys.readouterr().out
        device.run(rows, releases=1)
    found = ledger_report(home, compare=False)
    assert found["tasks"]["walk"]["closed"] and not found["tasks"]["walk"]["uses_left"]
    device_output.print_ledger(found, False)
    told = capsys.readouterr().out
    if terms == NONE:
        assert "no formal guarantee" in told and "not limited" not in told
        return
    assert ("3 uses of each in all" in before) == (terms is None)
    assert "uses of each" not in told and "nothing: closed" in told


def test_no_message_teaches_how_to_evade_a_ledger(make_server: Any, join: Any) -> None:
    server = make_server()
    home = Home(join(server))
    leave(home, home.member(), server.connect)
    with pytest.raises(BadInput, match="has withdrawn") as refused:
        join(server)
    assert "home" not in str(refused.value) and "another" not in str(refused.value)
    evasive = re.compile(r"(another|other|new|fresh|second) (--?home|--name|home|device folder|ledger)\b(?! than)")
    sources = Path(device_output.__file__).parents[1]
    texts = [path for folder in ("cli", "device", "privacy") for path in (sources / folder).rglob("*.py")]
    found = [f"{path.name}: {match[0]}" for path in texts for match in evasive.finditer(path.read_text())]
    assert len(texts) > 50 and not found
