"""The documentation as data: pages, and the code blocks in them with the marker that stands before each."""

import contextlib
import dataclasses
import io
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:^<!-- (?P<marker>[^\n]*?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the HTML comment right before it."""

    language: str
    text: str
    marker: str

    def commands(self) -> list[tuple[str, str]]:
        """What is typed in a console, and what it prints."""
        parts = re.split(r"^\$ ", self.text, flags=re.M)[1:]
        pairs = (re.sub(r"\\\n\s*", "", part).partition("\n") for part in parts)
        return [(line, expected) for line, _, expected in pairs]


@dataclasses.dataclass(frozen=True)
class Page:
    """A Markdown page of the project."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self, language: str = "") -> list[Block]:
        found = [Block(each["language"], each["text"], each["marker"] or "") for each in BLOCK.finditer(self.text)]
        return [block for block in found if language in ("", block.language)]

    @property
    def machines(self) -> set[str]:
        """The machines on which its blocks are typed, where it takes more than one: `<!-- on: owner -->`."""
        markers = (block.marker.removeprefix("on: ") for block in self.blocks() if block.marker.startswith("on: "))
        return {marker.partition(",")[0] for marker in markers}

    def prose(self) -> str:
        """The text without code blocks and inline code."""
        return re.sub(r"`[^`]*`", "", BLOCK.sub("", self.text))


PAGES = [
    Page(path)
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "LICENSE"
]

TYPED = (
    "README.md",
    "docs/concepts/ledger.md",
    "docs/how-to/compare-algorithms.md",
    "docs/how-to/import-legacy.md",
    "docs/how-to/run-admm.md",
    "docs/how-to/secure-aggregation.md",
    "docs/how-to/use-your-own-data.md",
)
"""Pages outside `tutorials` that are typed as those are."""

SHOWN = (
    "docs/concepts/averaging.md",
    "docs/how-to/attack-a-task.md",
    "docs/how-to/train-a-convolution-privately.md",
    "docs/how-to/write-a-device.md",
)
"""Pages whose programs need a live server, a data set or minutes: there they are marked as fragments."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `page` for every page, and one that takes `tutorial` for the pages a newcomer types.

    One that takes `walk` gets those that are typed on several machines.
    """
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=lambda page: page.name)
    if "tutorial" in metafunc.fixturenames:
        folders = ("/tutorials/", "/coming-from/")
        typed = [page for page in PAGES if any(each in page.name for each in folders) or page.name in TYPED]
        alone = [page for page in typed if not page.machines]
        metafunc.parametrize("tutorial", alone, ids=lambda page: page.name)
    if "walk" in metafunc.fixturenames:
        together = [page for page in PAGES if page.machines]
        metafunc.parametrize("walk", together, ids=lambda page: page.name)


@pytest.fixture
def pages() -> list[Page]:
    return PAGES


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a tutorial can be typed: the examples are there, the user's cache is not."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
TIMING = re.compile(r"updates in \S+ s(?:, after \S+ s of compiling)?")
ADDRESS = re.compile(r"(?<=://)[\d.]+:\d+")
TOLERANCE = 0.04
"""A page shows what one machine printed. Elsewhere noisy runs may differ by this much and the page is still true."""

EXACT = 0.001
"""What is promised follows from the task alone, so ε is the same everywhere."""


@pytest.fixture
def compare() -> Callable[[str, str], str]:
    """Compare what a page shows with what is printed; return what is wrong, or nothing.

    Space, timings, addresses and small differences in numbers do not count, though an ε is the same everywhere; `...`
    stands for whatever is left out.
    """

    def same(expected: str, printed: str) -> str:
        wanted, got = (" ".join(ADDRESS.sub("", TIMING.sub("", text)).split()) for text in (expected, printed))
        rule = "".join(
            "(?:.*?)" if part == "..." else f"({NUMBER.pattern})" if NUMBER.fullmatch(part) else re.escape(part)
            for part in re.split(rf"(\.\.\.|{NUMBER.pattern})", wanted)
        )
        found = re.fullmatch(rule, got)
        if not found:
            return f"expected\n{expected}\nprinted\n{printed}"
        apart = [
            (shown[0], there)
            for shown, there in zip(NUMBER.finditer(wanted), found.groups(), strict=True)
            if abs(float(shown[0]) - float(there)) > _allowed(float(shown[0]), wanted[: shown.start()].endswith("ε = "))
        ]
        return f"numbers differ: {apart}" if apart else ""

    return same


def _allowed(shown: float, exact: bool) -> float:
    return EXACT * shown if exact else max(TOLERANCE, TOLERANCE * shown)


_ANSWERS: dict[str, str] = {}


@pytest.fixture
def type_command() -> Callable[[str], str]:
    """Run `crowdml …` in this process and return all it prints. Asked the same again, it remembers the answer."""

    def run(line: str) -> str:
        from crowdml.cli import main

        if line in _ANSWERS:
            return _ANSWERS[line]
        program, *arguments = shlex.split(line)
        assert program == "crowdml", f"a tutorial types crowdml commands only, not {line}"
        printed, before = io.StringIO(), sys.argv
        sys.argv = ["crowdml", *arguments]
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                main()
        except SystemExit:
            pass
        finally:
            sys.argv = before
        _ANSWERS[line] = printed.getvalue()
        return _ANSWERS[line]

    return run
