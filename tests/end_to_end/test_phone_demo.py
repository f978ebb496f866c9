"""crowdml demo --phone: prints a link that a browser can join by, keeps a crowd alive, and ends cleanly."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from crowdml.cli.demos import phone_demo
from crowdml.device.joining import join
from crowdml.task import load

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("kind", "ending"), [("digit", signal.SIGINT), ("activity", signal.SIGTERM)])
def test_the_demo_with_a_phone(kind: str, ending: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crowdml", "demo", "--phone", "--task", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        lines = iter(demo.stdout.readline, "")
        said = ""
        for line in lines:
            said += line
            if "/tasks/" in line:
                break
        try:
            links = re.findall(r"^http://127\.0\.0\.1:\d+/join/\S+#code=\S+$", said, re.M)
            assert len(links) == 3 and len(set(links)) == 3
            assert "█" in said, "a QR code"
            join(links[0], tmp_path / "device", accept=lambda _: True)
            address, _, task = links[0].partition("#")[0].partition("/join/")
            shown = httpx.get(f"{address}/v1/tasks/{task}").json()
            assert 1 <= shown["devices"] <= 1 + phone_demo.COMPANIONS and shown["state"] == "open"
            with httpx.stream("GET", f"{address}/v1/tasks/{task}/events", timeout=60.0) as events:
                # Companions contribute: somebody's check-in changes the state.
                counts = (re.search(r'"check_ins": ?(\d+)', line) for line in events.iter_lines())
                assert next(int(found[1]) for found in counts if found and int(found[1]) > 0)
        finally:
            demo.send_signal(ending)
            _, complaints = demo.communicate(timeout=60)
        assert demo.returncode == 128 + ending and "Traceback" not in complaints, complaints
        with pytest.raises(httpx.ConnectError):  # a demo that has ended leaves no server behind
            httpx.get(address)


@pytest.mark.parametrize("name", phone_demo.TASKS.values())
def test_the_demo_has_the_task_of_the_examples(name: str) -> None:
    packaged = Path(phone_demo.__file__).with_name(f"{name}.toml")
    assert packaged.read_bytes() == (EXAMPLES / f"{name}.toml").read_bytes()
    task = load(packaged)
    assert task.privacy.mode == "sound" and task.data.sensor is not None
    assert task.data.sensor.features == task.data.features == 64
