"""Notebooks as pages: executed when the site is built, so that a reader sees the tables and figures of this version.

They are stored without outputs. Cells run in one namespace; the last expression of a cell is shown as Jupyter would
show it. A kernel of Jupyter's own would do the same at several times the cost.
"""

from __future__ import annotations

import ast
import base64
import html
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def shown(value: Any) -> str:
    """Return what a notebook shows of a value, as HTML."""
    written = value._repr_html_() if hasattr(value, "_repr_html_") else None
    if written is not None:
        return str(written)
    if hasattr(value, "savefig"):  # a figure
        drawn = io.BytesIO()
        value.savefig(drawn, format="png", dpi=100, bbox_inches="tight")
        return f'<img alt="figure" src="data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}">'
    return f"<pre>{html.escape(repr(value))}</pre>"


def execute(cells: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Run cells in one namespace; return what each shows, nothing where it shows nothing, and the namespace."""
    space: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for number, source in enumerate(cells):
        body = ast.parse(source).body
        last = body[-1] if isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
        exec(compile(ast.Module(body=body[: len(body) - bool(last)], type_ignores=[]), f"cell {number}", "exec"), space)  # noqa: S102
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)  # noqa: S307
        found.append("" if value is None else shown(value))
    return found, space


def code_of(path: Path) -> list[str]:
    """Return the cells of a notebook that hold code."""
    return ["".join(cell["source"]) for cell in _cells(path) if cell["cell_type"] == "code"]


def page_of(path: Path) -> str:
    """Execute a notebook, in a process and a folder of its own, and return it as Markdown with what its cells show."""
    with tempfile.TemporaryDirectory() as name:
        outputs = Path(name) / "outputs.json"
        command = [sys.executable, "-m", "docs.site.notebooks", str(path), str(outputs)]
        # This checkout's code, whatever is installed.
        places = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        environment = {**os.environ, "PYTHONPATH": places, "CROWDML_ENGINE": "auto", "XDG_CACHE_HOME": name}
        done = subprocess.run(command, cwd=name, env=environment, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            raise RuntimeError(f"{path.name} does not run:\n{done.stderr}")
        found = iter(json.loads(outputs.read_text(encoding="utf-8")))
    parts = []
    for cell in _cells(path):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if output := next(found):
            # An empty line would end the block.
            lines = "\n".join(line.strip() for line in output.splitlines() if line.strip())
            parts.append(f'<div class="output">\n{lines}\n</div>')
    return "\n\n".join(parts)


def _cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(execute(code_of(Path(sys.argv[1])))[0]), encoding="utf-8")
