"""Notebooks run from top to bottom, as stored, and are stored without outputs.

Their cells are executed in this process, one namespace per notebook; the last expression of a cell is shown as Jupyter
would show it. A kernel of Jupyter's own would do the same at several times the cost.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def shown(value: Any) -> str:
    """Return what a notebook shows of a value."""
    for name in ("_repr_html_", "_repr_png_"):
        if hasattr(value, name):
            return str(getattr(value, name)())
    return repr(value)


def execute(cells: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Run cells in one namespace; return what each shows, and the namespace."""
    space: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for number, source in enumerate(cells):
        body = ast.parse(source).body
        last = body[-1] if isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
        exec(compile(ast.Module(body=body[: len(body) - bool(last)], type_ignores=[]), f"cell {number}", "exec"), space)  # noqa: S102
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)  # noqa: S307
            found.append("" if value is None else shown(value))
    return found, space


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
    found, space = execute(["".join(cell["source"]) for cell in code])
    assert len(found) >= 3 and any("data:image/png" in each for each in found)
    assert not any(str(tmp_path) in each for each in found)
    if "table" in space:  # what the page says of passes and noise
        errors, spent = space["table"]["test_error"], space["table"]["epsilon"]
        assert errors[8.0, 3] < errors[0.5, 3] and spent[2.0, 3] > spent[2.0, 1]


def test_a_cell_that_fails_is_noticed() -> None:
    with pytest.raises(ZeroDivisionError):
        execute(["x = 1", "x / 0"])
