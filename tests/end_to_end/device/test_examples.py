"""What the documentation shows works: the example of a device, and the page that explains how to write one."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def test_the_example_takes_part(server: Any, tmp_path: Path) -> None:
    server.open()
    lines = [f"{0.1 * n},0.5,-0.2,{'walking' if n % 2 else 'standing'}" for n in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    arguments = (server.invite(), str(tmp_path / "device"), str(tmp_path / "rows.csv"))
    script = ROOT / "examples" / "custom_device.py"
    ran = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "promised ε = 20" in ran.stdout and "used=3" in ran.stdout
    assert server.ask(f"/v1/tasks/{server.task}")["check_ins"] == 3
    code = script.read_text().split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line and not line.startswith("import")]) <= 12


def test_the_page_takes_part(server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.open()
    page = (ROOT / "docs" / "how-to" / "write-a-device.md").read_text()
    found = re.search(r"<!-- file: my_device.py -->\n```python\n(.*?)```", page, re.S)
    assert found
    (tmp_path / "my_device.py").write_text(found[1])
    summary = runpy.run_path(str(tmp_path / "my_device.py"))["take_part"](server.invite(), tmp_path / "device")
    assert summary.used == 3 and "ε = 20" in capsys.readouterr().out
