"""What a tutorial types works, and what it shows is what is printed."""

import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.docs.conftest import SHOWN
from tests.support.extensions import forgotten


def steps(page: Any) -> list[tuple[str, str, str]]:
    """The page as a list of (kind, what, expected): files to write, commands to type, programs to run."""
    found = []
    for block in page.blocks():
        if block.marker.startswith("file: "):
            found.append(("file", block.marker.removeprefix("file: "), block.text))
        elif block.language == "console" and block.marker != "fragment":
            found += [("command", line, expected) for line, expected in block.commands()]
        elif block.language == "python" and block.marker != "fragment":
            found.append(("python", block.text, ""))
    return found


def in_its_own_process(line: str, exported: Mapping[str, str]) -> str:
    """Type a command as a shell would that has exported something: the program knows nothing of what went before."""
    command = [sys.executable, "-m", *shlex.split(line)]
    environment = os.environ | exported
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False
    ).stdout


def test_tutorial_runs(
    tutorial: Any, workshop: Path, type_command: Callable[[str], str], compare: Callable[[str, str], str]
) -> None:
    typed, known, exported = 0, dict[str, Any](), dict[str, str]()
    with forgotten():
        for kind, what, expected in steps(tutorial):
            if kind == "file":
                (workshop / what).write_text(expected, encoding="utf-8")
            elif kind == "python":
                script = workshop / "block.py"
                script.write_text(what, encoding="utf-8")
                # Blocks of a page go on from each other.
                found = runpy.run_path(str(script), init_globals=known)
                known = {name: value for name, value in found.items() if not name.startswith("__")}
                typed += 1
            elif what.startswith("export "):
                name, _, value = what.removeprefix("export ").partition("=")
                exported[name] = value
            elif what.startswith("crowdml"):
                printed = in_its_own_process(what, exported) if exported else type_command(what)
                problem = compare(expected, printed)
                assert not problem, f"{tutorial.name}: $ {what}\n{problem}"
                typed += 1
    assert typed, f"{tutorial.name} types and runs nothing"


def test_what_a_page_shows_and_nobody_types_is_marked(pages: list[Any]) -> None:
    shown = [page for page in pages if page.name in SHOWN]
    assert len(shown) == len(SHOWN)
    for page in shown:
        blocks = [block for language in ("bash", "console", "python") for block in page.blocks(language)]
        assert blocks, page.name
        assert [block.text for block in blocks if block.marker != "fragment" and "file: " not in block.marker] == []


def test_the_readme_shows_the_example(root: Path) -> None:
    readme, example = (root / "README.md").read_text(), (root / "examples" / "digits.toml").read_text()
    body = example[example.index("crowdml = 1") :]
    assert body.split() == next(part for part in readme.split("```toml\n")[1:]).split("```")[0].split()
