"""Notebooks run from top to bottom, as stored, and are stored without outputs: the site executes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.site.notebooks import code_of, execute

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"first-simulation", "comparison-with-privacy"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CROWDML_ENGINE", "auto")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4 and len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code), "store it without outputs"
    found, space = execute(code_of(path))
    assert len(found) >= 3 and any("data:image/png" in each for each in found)
    assert "None" not in found, "every cell shows something or nothing"
    assert not any(str(tmp_path) in each for each in found)
    if "table" in space:  # what the page says of passes and noise
        errors, spent = space["table"]["test_error"], space["table"]["epsilon"]
        assert errors[8.0, 3] < errors[0.5, 3] and spent[2.0, 3] > spent[2.0, 1]


def test_a_cell_that_fails_is_noticed() -> None:
    with pytest.raises(ZeroDivisionError):
        execute(["x = 1", "x / 0"])
