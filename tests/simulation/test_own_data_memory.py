"""Memory that rows of a Parquet file take: the table is there once, whichever way it was read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.own_data.bench import FEATURES, GOAL, TASK, write_rows
from tests.simulation.test_own_data import MOST_SETTINGS, settings_of

ROWS = 800_000
TABLE = ROWS * FEATURES * 4

MEASURE = """
import sys
import crowdml
from crowdml.simulation.own_data import bind
from crowdml.simulation.prepare import prepare
task = bind(crowdml.Task.load("large.toml"))
rows = prepare(task)[1].train_rows
copies = [rows.copy() for _ in range(int(sys.argv[1]))]
most = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(len(rows), int(most.split()[1]) * 1024)
"""


def most_memory(folder: Path, rows: int, copies: int = 0) -> int:
    """Return the largest memory, in bytes, of a process that makes such rows ready for a simulation."""
    folder.mkdir()
    write_rows(folder / "rows.parquet", rows)
    (folder / "large.toml").write_text(TASK, encoding="utf-8")
    told = subprocess.run(
        [sys.executable, "-c", MEASURE, str(copies)], cwd=folder, check=True, capture_output=True, text=True
    )
    count, most = map(int, told.stdout.split())
    assert count == rows * 4 // 5
    return most


def test_the_task_has_a_dozen_settings() -> None:
    assert settings_of(TASK) <= MOST_SETTINGS


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what a process had at most")
def test_rows_of_a_parquet_file_are_there_once(tmp_path: Path) -> None:
    few = most_memory(tmp_path / "few", 1_000)
    once = (most_memory(tmp_path / "once", ROWS) - few) / TABLE
    twice = (most_memory(tmp_path / "twice", ROWS, copies=1) - few) / TABLE
    print(f"{once:.2f} times the table, and {twice:.2f} with a copy")
    assert 0.9 < once <= GOAL, f"{once:.2f} times the table"
    assert twice > GOAL, "a copy of the table would be seen"
