"""What a tutorial types works, and what it shows is what is printed."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
TIMING = re.compile(r"in \S+ s, after \S+ s of compiling")
TOLERANCE = 0.04
"""A page shows what one machine printed. Elsewhere noisy runs may differ by this much and the page is still true."""


def steps(page: Any) -> list[tuple[str, str, str]]:
    """The page as a list of (kind, what, expected): files to write, commands to type, programs to run."""
    found = []
    for block in page.blocks():
        if block.marker.startswith("file: "):
            found.append(("file", block.marker.removeprefix("file: "), block.text))
        elif block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
                line, _, expected = re.sub(r"\\\n\s*", "", part).partition("\n")
                found.append(("command", line, expected))
        elif block.language == "python":
            found.append(("python", block.text, ""))
    return found


def same(expected: str, printed: str) -> str:
    """Compare ignoring space, timings and small differences in numbers; `...` stands for lines left out."""
    wanted, got = (" ".join(TIMING.sub("", text).split()) for text in (expected, printed))
    pattern = re.escape(NUMBER.sub("#", wanted)).replace(re.escape("..."), "(.*)")
    shape = NUMBER.sub("#", got)
    if not re.fullmatch(pattern, shape):
        return f"expected\n{expected}\nprinted\n{printed}"
    if "..." in expected:
        return ""
    pairs = zip(NUMBER.findall(wanted), NUMBER.findall(got), strict=True)
    apart = [(a, b) for a, b in pairs if abs(float(a) - float(b)) > max(TOLERANCE, TOLERANCE * abs(float(a)))]
    return f"numbers differ: {apart}" if apart else ""


def test_tutorial_runs(tutorial: Any, workshop: Path, type_command: Callable[[str], str]) -> None:
    typed = 0
    for kind, what, expected in steps(tutorial):
        if kind == "file":
            (workshop / what).write_text(expected, encoding="utf-8")
        elif kind == "python":
            script = workshop / "block.py"
            script.write_text(what, encoding="utf-8")
            runpy.run_path(str(script))
        elif what.startswith("crowdml"):
            problem = same(expected, type_command(what))
            assert not problem, f"{tutorial.name}: $ {what}\n{problem}"
            typed += 1
    assert typed, f"{tutorial.name} types no command"


def test_the_readme_shows_the_example(root: Path) -> None:
    readme, example = (root / "README.md").read_text(), (root / "examples" / "digits.toml").read_text()
    body = example[example.index("crowdml = 1") :]
    assert body.split() == next(part for part in readme.split("```toml\n")[1:]).split("```")[0].split()
