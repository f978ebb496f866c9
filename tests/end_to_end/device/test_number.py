"""A crowd learns a number from files, by a real server: check-ins, pages, exports, a model of one's own."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]
PHONE = {"width": 360, "height": 740}
TASK = """
crowdml = 1
name = "NAME"
objective = "Predict how warm a room will be"
[data]
columns = ["outside", "sun", "heating"]
units = { outside = "°C", sun = "hours", heating = "kW" }
target = { name = "warmth", low = 10.0, high = 30.0, unit = "°C", bins = 5 }
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "linear"
loss = "huber"
[algorithm]
kind = "crowd-sgd"
batch = 10
rate = { kind = "constant", c = 0.5 }
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 500.0
delta = 1e-6
max-uses = 40
statistics-epsilon = 400.0
"""


@pytest.fixture
def numbered(server: Any) -> Any:
    """The server, with a task that predicts a number."""
    server.opened += 1
    server.task = f"warmth-{server.opened}"
    server.ask("/v1/tasks", {"file": TASK.replace("NAME", server.task)})
    return server


@pytest.fixture
def measured(tmp_path: Path) -> tuple[Path, Path]:
    """Warmth that follows from the rows, as CSV with columns in another order, and as NPZ."""
    generator = np.random.default_rng(5)
    rows = generator.uniform(-0.5, 0.5, (40, 3)).astype(np.float32)
    warmth = np.clip(20 + rows @ [12.0, 6.0, 3.0], 10, 30)
    with open(tmp_path / "rows.csv", "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["heating", "warmth", "outside", "sun"])
        writer.writerows([row[2], value, row[0], row[1]] for row, value in zip(rows, warmth, strict=True))
    names = np.array(["outside", "sun", "heating"])
    np.savez(tmp_path / "rows.npz", rows=rows, targets=warmth, columns=names)
    return tmp_path / "rows.csv", tmp_path / "rows.npz"


def joined(server: Any, crowdml: Run, home: Path) -> tuple[str, str]:
    found = crowdml("device", "join", server.invite(), "--home", str(home), "--yes")
    assert found.returncode == 0, found.stderr
    words = " ".join(found.stdout.split())
    assert "how the targets are" in words and "label" not in words  # a table may break the rest
    assert "predicts warmth in °C, from 10 to 30" in words
    return "--home", str(home)


def test_a_number_is_learnt_exported_and_made_ones_own(
    numbered: Any, crowdml: Run, measured: tuple[Path, Path], tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    for number, path in enumerate(measured):
        home = joined(numbered, crowdml, tmp_path / f"device-{number}")
        ran = crowdml("device", "run", "--rows", str(path), *home, "--releases", "40")
        assert ran.returncode == 0 and "40 releases, 40 used" in ran.stdout, ran.stderr
        assert "beyond" not in ran.stderr and "by position" not in ran.stderr
        assert "ε =" in crowdml("device", "status", *home).stdout
    shown = numbered.ask(f"/v1/tasks/{numbered.task}")
    # Guessing the middle is off by 0.14 of the range; the noise on the counts of 200 rows is small here.
    assert shown["check_ins"] == 80 and shown["recent_error"]["estimate"] < 0.12

    operator = ("--home", str(numbered.folder))
    words = " ".join(crowdml("task", "show", numbered.task, *operator).stdout.split())
    assert "predicts warmth in °C, from 10 to 30" in words and "0.1 is 2 °C" in words
    for ending in ("safetensors", "onnx"):
        model = tmp_path / f"model.{ending}"
        assert crowdml("task", "export", numbered.task, "-o", str(model), *operator).returncode == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    kept = np.load(measured[1])
    _, values = session.run(None, {"rows": kept["rows"]})
    assert np.abs(values - kept["targets"]).mean() < 1.5, "in the target's own unit"
    said = json.loads(session.get_modelmeta().custom_metadata_map["target"])
    assert said == {"name": "warmth", "unit": "°C", "low": 10.0, "high": 30.0}

    out = ("-o", str(tmp_path / "mine.onnx"), "--held-out", "0.25")
    found = crowdml("device", "personal", "--rows", str(measured[0]), *out, *home)
    assert found.returncode == 0, found.stderr
    assert "on 10 rows kept back: off by" in found.stdout and "°C with yours, in the mean" in found.stdout
    _, values = onnxruntime.InferenceSession(str(tmp_path / "mine.onnx")).run(None, {"rows": kept["rows"]})
    assert np.abs(values - kept["targets"]).mean() < 1.5


def test_numbers_beyond_their_bounds_are_said_once_and_text_is_refused(
    numbered: Any, crowdml: Run, measured: tuple[Path, Path], tmp_path: Path
) -> None:
    home = joined(numbered, crowdml, tmp_path / "device")
    text = measured[0].read_text().splitlines()
    kelvin = [line.split(",") for line in text[1:]]
    for fields in kelvin[:7]:
        fields[1] = str(float(fields[1]) + 273.15)
    path = tmp_path / "kelvin.csv"
    path.write_text("\n".join([text[0], *(",".join(fields) for fields in kelvin)]) + "\n")
    ran = crowdml("device", "run", "--rows", str(path), *home, "--releases", "3")
    assert ran.returncode == 0 and " ".join(ran.stderr.split()).count("7 of 40 targets lie beyond") == 1, ran.stderr
    stream = "".join(json.dumps({"row": [0.1, 0.2, n / 100], "target": 55 if n else 20}) + "\n" for n in range(20))
    ran = crowdml("device", "run", "--rows", "-", *home, "--rows-changed", "accept", stdin=stream)
    assert ran.returncode == 0 and ran.stderr.count("beyond the task's bounds") == 1, ran.stderr

    path.write_text(text[0] + "\n1,warm,2,3\n")
    refused = crowdml("device", "run", "--rows", str(path), *home)
    assert refused.returncode == 2 and "line 2, column warmth: 'warm' is not a number" in refused.stderr
    path.write_text("heating,heat,outside,sun\n1,20,2,3\n")
    refused = crowdml("device", "run", "--rows", str(path), *home)
    assert refused.returncode == 2 and 'no column is called "warmth"' in refused.stderr
    assert "Traceback" not in refused.stderr and "which one holds the targets" in " ".join(refused.stderr.split())
    path.write_text("heating,heat,outside,sun\n1,20,2,3\n" * 1)
    found = crowdml("device", "run", "--rows", str(path), *home, "--label-column", "heat", "--rows-changed", "stop")
    assert "no column is called" not in found.stderr


@pytest.mark.browser
def test_pages_say_target_unit_and_range(
    numbered: Any, crowdml: Run, measured: tuple[Path, Path], tmp_path: Path, browser: Any
) -> None:
    home = joined(numbered, crowdml, tmp_path / "device")
    assert crowdml("device", "run", "--rows", str(measured[0]), *home, "--releases", "30").returncode == 0
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport=PHONE, color_scheme=scheme)
        page = context.new_page()
        page.goto(f"{numbered.address}/tasks/{numbered.task}")
        page.wait_for_selector("#curve path.line", state="attached")
        words = page.locator("main").inner_text()
        assert "warmth in °C, from 10 to 30" in words and "0.1 is 2 °C" in words and "label" not in words
        _keep(page, f"task-{scheme}")
        page.goto(numbered.invite())
        page.locator("#about > summary").click()
        words = page.locator("main").inner_text()
        assert "outside (°C), sun (hours), heating (kW)" in words and "warmth in °C, from 10 to 30" in words
        assert "label" not in words
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], "nothing sticks out sideways"
        _keep(page, f"join-{scheme}")
        context.close()


def _keep(page: Any, name: str) -> None:
    """Save what was seen, where somebody wants to look at it."""
    if folder := os.environ.get("CROWDML_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
