"""The command line as a user meets it: a process, its output, its exit code. Most mistakes are made in this one."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from crowdml.cli.app import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"
HEAVY = ("numpy", "jax", "pydantic", "scipy", "pandas", "matplotlib", "rich")
Run = Callable[..., tuple[int, str, str]]


def crowdml(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from crowdml.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
    )


def test_help_teaches_and_is_quick() -> None:
    shown = crowdml("--help")
    assert shown.returncode == 0
    names = [line.split()[0] for line in shown.stdout.splitlines() if re.match("  [a-z]", line)]
    command = typer.main.get_command(app)
    assert set(getattr(command, "commands")) <= set(names), "every command stands under a heading"  # noqa: B009
    assert "..." not in shown.stdout.partition("Options")[2], "no sentence is cut short"
    code = "import sys; from crowdml.cli.app import app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & set(loaded), "the start loads what only commands need"


def test_the_help_of_commands_is_quick_too() -> None:
    code = (
        "import sys; from crowdml.cli import main; sys.argv = ['crowdml', 'device', 'run', '--help']\n"
        "try: main()\nexcept SystemExit: print('loaded:', *sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("Usage: crowdml device run [OPTIONS]") and "--accept-restored" in shown
    assert not set(HEAVY) & set(shown.rpartition("loaded:")[2].split())


def test_a_device_starts_without_what_it_does_not_need() -> None:
    code = "import sys, crowdml.device.device; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unneeded = ("jax", "scipy", "dp_accounting", "rich", "pygments", "typer", "fastapi", "sqlalchemy")
    assert not {*unneeded, "httpx._main", "crowdml.data.catalogue"} & set(loaded)
    assert "httpx" in loaded


def test_simulate_writes_json_and_figure(tmp_path: Path) -> None:
    ran = crowdml(
        *("simulate", str(EXAMPLE), "--trials", "2", "--set", "crowd.passes=2"),
        *("--json", "out.json", "--plot", "out.png"),
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert "test accuracy" in ran.stdout and "no formal guarantee" in ran.stdout
    assert json.loads((tmp_path / "out.json").read_text())["trials"] == 2
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "out.png"]


def test_json_on_standard_output_is_nothing_but_json() -> None:
    ran = crowdml("simulate", str(EXAMPLE), "--trials", "1", "--set", "crowd.passes=1", "--json", "-")
    assert json.loads(ran.stdout)["task"] == "digits"


def test_debug_agrees_with_compiled() -> None:
    short = ("--trials", "2", "--set", "crowd.passes=1", "--json", "-")
    results = [json.loads(crowdml("simulate", str(EXAMPLE), *short, *extra).stdout) for extra in ((), ("--debug",))]
    errors = [result["final"]["test_error"]["mean"] for result in results]
    assert abs(errors[0] - errors[1]) <= 1 / 397 + 1e-6  # at most one test row may fall on the other side


BAD = {
    "no such file": ("simulate", "nowhere.toml"),
    "unknown key": ("simulate", str(EXAMPLE), "--set", "algorithm.bach=3"),
    "unknown kind": ("simulate", str(EXAMPLE), "--set", "algorithm.kind=crowd-sdg"),
    "wrong type": ("simulate", str(EXAMPLE), "--set", "algorithm.batch=many"),
    "not a number": ("simulate", str(EXAMPLE), "--set", "algorithm.radius=nan"),
    "negative": ("simulate", str(EXAMPLE), "--set", "algorithm.rate.c=-1.0"),
    "no devices": ("simulate", str(EXAMPLE), "--set", "crowd.devices=0"),
    "empty devices": ("simulate", str(EXAMPLE), "--set", "crowd.devices=1401"),
    "batch beyond buffer": ("simulate", str(EXAMPLE), "--set", "algorithm.buffer=10"),
    "batch beyond rows": ("simulate", str(EXAMPLE), "--set", "algorithm.batch=71"),
    "too few labels": ("simulate", str(EXAMPLE), "--set", 'data.labels=["0", "1", "2"]'),
    "no dataset of that name": ("simulate", str(EXAMPLE), "--set", "data.dataset=digit"),
    "sound mode": ("simulate", str(EXAMPLE), "--set", "privacy.mode=sound"),
    "folder does not exist": ("simulate", str(EXAMPLE), "--json", "nowhere/out.json"),
    "not a figure": ("simulate", str(EXAMPLE), "--plot", "out.gif"),
    "no trials": ("simulate", str(EXAMPLE), "--trials", "0"),
    "not a change": ("simulate", str(EXAMPLE), "--set", "batch"),
    "unknown command": ("simulat",),
    "unknown option": ("simulate", str(EXAMPLE), "--trial", "3"),
    "unknown dataset": ("data", "verify", "mnistt"),
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_clear_message(arguments: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    code, printed, said = run(*arguments)
    assert code == 2, said
    assert "Traceback" not in said and printed == ""
    assert len(said.strip()) > 20
    assert list(tmp_path.iterdir()) == [], "something was written"


def test_a_corrupt_task_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"crowdml = \xff")
    ran = crowdml("simulate", "bad.toml", cwd=tmp_path)
    assert ran.returncode == 2 and "bad.toml" in ran.stderr and "Traceback" not in ran.stderr


def test_an_error_found_late_still_names_line_and_key(run: Run, tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(EXAMPLE.read_text().replace("batch = 20", "batch = 71"))
    _, _, said = run("simulate", "task.toml")
    line = EXAMPLE.read_text().splitlines().index("batch = 20") + 1
    assert f"task.toml, line {line}, algorithm.batch" in said


def test_a_read_only_place_is_refused_before_the_work(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out.json").mkdir()
    code, _, said = run("simulate", str(EXAMPLE), "--json", "out.json")
    assert code == 2 and "is a folder" in said
