"""What is a sample and what is a column, as an owner meets them: the commands against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.cli.device_output import _left

Run = Callable[..., Any]
FEW = (("max-uses = 40", "max-uses = 2"), ("passes = 40", "passes = 2"))
NAMED = ("features = 3", 'columns = ["mean", "deviation", "steps"]\nunits = { steps = "per second" }')


def csv(path: Path, rows: Any, digits: int, header: str = "mean,deviation,steps,label") -> Path:
    lines = [",".join(f"{x:.{digits}f}" for x in row) + f",{'walking' if n % 2 else 'standing'}" for n, row in rows]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.fixture
def values() -> list[tuple[int, Any]]:
    return list(enumerate(np.random.default_rng(5).normal(size=(20, 3))))


@pytest.fixture
def joined(server: Any, crowdml: Run, tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Open a task and join it; return the option that names the device."""

    def join(*changes: tuple[str, str]) -> tuple[str, str]:
        server.open(*changes)
        home = ("--home", str(tmp_path / "device"))
        assert crowdml("device", "join", server.invite(), *home, "--yes", "--quiet").returncode == 0
        return home

    return join


def releases(crowdml: Run, home: tuple[str, str]) -> int:
    return len(json.loads(crowdml("device", "ledger", *home, "--json").stdout)["releases"])


def test_a_stream_piped_in_again_and_again_ends_with_the_promise(crowdml: Run, joined: Any, values: Any) -> None:
    home = joined(*FEW)
    stream = "".join(json.dumps({"row": row.tolist(), "label": n % 2}) + "\n" for n, row in values)
    ends = []
    for _ in range(3):
        ran = crowdml("device", "run", "--rows", "-", *home, "--json", stdin=stream)
        assert ran.returncode == 0, ran.stderr
        ends.append(json.loads(ran.stdout.splitlines()[-1]))
    assert [end["releases"] for end in ends] == [2, 2, 0] and "20 were left out" in ends[2]["reason"]
    assert "warning: a row of the stream is left out" in ran.stderr
    assert crowdml("device", "run", "--rows", "-", *home, stdin=stream * 3).returncode == 0
    assert releases(crowdml, home) == 4


def test_a_file_written_with_one_more_digit_is_a_question(
    crowdml: Run, joined: Any, values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = joined(*FEW)
    path = csv(tmp_path / "rows.csv", values, 4)
    options = ("device", "run", "--rows", str(path), *home)
    assert crowdml(*options).returncode == 0 and releases(crowdml, home) == 4
    csv(path, values, 5)
    for more in ((), ("--rows-changed", "stop"), ("--rows-changed", "ask")):
        refused = crowdml(*options, *more)
        assert refused.returncode == 2 and "20 of 20 rows were never seen before, and 20 of the 20" in refused.stderr
        assert "put the file back as it was" in refused.stderr and "--rows-changed accept" in refused.stderr
    monkeypatch.setattr("crowdml.cli.device_output.can_ask", lambda: True)
    asked = crowdml(*options, stdin="n\n")
    assert asked.returncode == 2 and "Are they other samples? [y/N]" in asked.stderr
    assert releases(crowdml, home) == 4, "nothing was sent"
    assert crowdml(*options, "--once", stdin="y\n").returncode == 0 and releases(crowdml, home) == 5
    monkeypatch.undo()
    assert crowdml(*options, "--once").returncode == 0, "answered once"
    csv(path, values, 6)
    assert crowdml(*options, "--once", "--rows-changed", "accept").returncode == 0


def test_with_an_id_another_digit_is_no_other_sample(crowdml: Run, joined: Any, values: Any, tmp_path: Path) -> None:
    home = joined(*FEW, ("features = 3", 'features = 3\nid = "patient"'))
    path = tmp_path / "rows.csv"
    for digits, expected in ((4, 2), (5, 4), (6, 4)):
        csv(path, values, digits)
        header, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"patient,{header}", *(f"p{n},{row}" for n, row in enumerate(rows))]) + "\n")
        ran = crowdml("device", "run", "--rows", str(path), *home, "--releases", "2")
        assert ran.returncode == 0, ran.stderr
        assert releases(crowdml, home) == expected


def test_a_lost_memory_stops_the_command_until_the_owner_decides(
    crowdml: Run, joined: Any, values: Any, tmp_path: Path, server: Any
) -> None:
    home = joined(*FEW)
    path = csv(tmp_path / "rows.csv", values, 4)
    options = ("device", "run", "--rows", str(path), *home)
    assert crowdml(*options, "--releases", "2").returncode == 0
    for file in (tmp_path / "device" / "tasks" / server.task).glob("memory.sqlite*"):
        file.unlink()
    refused = crowdml(*options)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    assert "0 samples are known in it, 20 were counted" in refused.stderr
    assert "crowdml device renumber; every sample then counts as used 1 of 2 times" in refused.stderr
    assert crowdml("device", "renumber", *home).returncode == 2, "nobody is there to be asked"
    done = crowdml("device", "renumber", *home, "--yes")
    assert done.returncode == 0 and "every sample counts as used 1 times from now on" in done.stdout
    left = json.loads(crowdml("device", "ledger", *home, "--json").stdout)["tasks"][server.task]
    assert _left(left).endswith("; 1 uses of each in all")
    assert crowdml(*options).returncode == 0 and releases(crowdml, home) == 4, "one use was left for each row"
    shown = json.loads(crowdml("device", "status", *home, "--offline", "--json").stdout)["tasks"][0]["spending"]
    assert shown["uses_left"] == 0 and shown["samples"] == {"used": 20, "used_up": 20, "most": 2, "floor": 1}


def test_named_columns_from_the_task_file_to_the_rows(
    crowdml: Run, server: Any, joined: Any, values: Any, tmp_path: Path
) -> None:
    home = joined(NAMED)
    path, options = tmp_path / "rows.csv", ("device", "run", "--rows", str(tmp_path / "rows.csv"), *home, "--once")
    csv(path, values, 4, "steps,mean,deviation,label")
    assert crowdml(*options).returncode == 0
    csv(path, values, 4, "mean,dviation,steps,label")
    refused = crowdml(*options)
    assert refused.returncode == 2 and releases(crowdml, home) == 1
    assert refused.stderr.splitlines()[1:] == [
        "  missing: deviation",
        '  unknown: dviation (did you mean "deviation"?)',
        "  the columns of the task, in any order: mean, deviation, steps (per second)",
    ]
    np.savez(tmp_path / "rows.npz", rows=np.ones((10, 3)) * np.arange(10)[:, None], labels=np.zeros(10, int))
    by_position = crowdml(
        "device", "run", "--rows", str(tmp_path / "rows.npz"), *home, "--once", "--rows-changed", "accept"
    )
    assert by_position.returncode == 0 and "warning: " in by_position.stderr
    assert "taken by position, as mean, deviation, steps (per second)" in by_position.stderr
    offer = crowdml("device", "join", server.invite(), "--home", str(tmp_path / "other"), "--yes")
    assert "a row        mean, deviation, steps (per second)\n" in offer.stdout
    shown = crowdml("task", "show", server.task, "--home", str(server.folder))
    assert shown.returncode == 0 and "a row              mean, deviation, steps (per second)" in shown.stdout
    for page in (f"/tasks/{server.task}", f"/join/{server.task}"):
        assert "mean, deviation, steps (per second)" in server.fetch(page).decode()
