"""Pages hang together: links resolve, task files parse, words are the glossary's, nothing private slips in."""

import functools
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as Markdown viewers spell them."""
    bare = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in HEADING.findall(bare)}


def test_links_resolve(page: Any) -> None:
    for target in LINK.findall(re.sub(r"^```.*?^```$", "", page.text, flags=re.M | re.S)):
        if target.startswith(("https://", "http://")):
            continue
        file, _, anchor = target.partition("#")
        path = (page.path.parent / file).resolve() if file else page.path
        assert path.exists(), f"{page.name} links to {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{page.name} links to {target}"


def test_every_page_is_reachable_from_the_index(pages: list[Any], root: Path) -> None:
    by_path = {page.path: page for page in pages}
    seen, waiting = set(), [root / "docs" / "index.md"]
    while waiting:
        path = waiting.pop()
        if path in seen or path not in by_path:
            continue
        seen.add(path)
        targets = [target.partition("#")[0] for target in LINK.findall(by_path[path].text)]
        waiting += [(path.parent / target).resolve() for target in targets if target.endswith(".md")]
    unreachable = {page.name for page in pages if page.path.is_relative_to(root / "docs") and page.path not in seen}
    assert not unreachable


def test_every_page_begins_with_one_title(page: Any) -> None:
    bare = re.sub(r"^```.*?^```$", "", page.text, flags=re.M | re.S)
    assert len(re.findall(r"^# ", bare, re.M)) == 1


def test_task_files_parse(page: Any) -> None:
    from crowdml.task import parse

    for block in page.blocks("toml"):
        if block.marker == "fragment":
            tomllib.loads(block.text)
        else:
            parse(block.text, page.name)


def test_languages_are_known(page: Any) -> None:
    known = {"toml", "console", "python", "text", "json", "bash", "bibtex"}
    assert {block.language for block in page.blocks()} <= known


def typed(page: Any) -> list[list[str]]:
    """Every crowdml command that a page tells to type, as words without the program."""
    lines = [command.removeprefix("crowdml ") for command in shown_by(page.text) if command.startswith("crowdml ")]
    for block in page.blocks():
        if block.language in ("bash", "console"):
            text = re.sub(r"\\\n\s*", "", block.text)
            lines += re.findall(r"^(?:\S+ )*(?:\S*/)?crowdml ([a-z].*)$", text, re.M)
    return [shlex.split(line, comments=True) for line in lines]


def shown_by(text: str) -> list[str]:
    """The commands of a table that says what shows a claim."""
    table = re.search(r"^\| claim \| see for yourself \|\n((?:\|.*\n)+)", text, re.M)
    rows = table[1].splitlines()[1:] if table else []
    assert all(re.search(r"\| `[^|]+` \|$", row) for row in rows), "a claim without a command"
    return [command for row in rows for command in re.findall(r"`([^`]+)`", row.split("|")[2])]


def test_every_claim_of_the_readme_has_a_command_that_shows_it(root: Path) -> None:
    """Commands of crowdml are checked with all others of the page; here what they read, and the verbs of make."""
    commands = shown_by((root / "README.md").read_text(encoding="utf-8"))
    verbs = set(re.findall(r"^([a-z-]+):.*## ", (root / "Makefile").read_text(encoding="utf-8"), re.M))
    assert len(commands) >= 10
    for program, *words in map(shlex.split, commands):
        assert program in ("make", "crowdml")
        assert program != "make" or set(words) <= verbs, f"there is no make {words}"
        assert all((root / word).is_file() for word in words if word.endswith(".toml"))


@functools.cache
def program() -> Any:
    """The commands as a tree, which takes longer to make than a page to read."""
    import typer

    from crowdml.cli.app import app

    return typer.main.get_command(app)


def test_commands_and_options_exist(page: Any) -> None:
    for words in typed(page):
        command, rest = program(), list(words)
        while getattr(command, "commands", None) and rest:
            name = rest.pop(0)
            assert name in command.commands, f"{page.name}: there is no crowdml {' '.join(words)}"
            command = command.commands[name]
        known = {spelling for option in command.params for spelling in (*option.opts, *option.secondary_opts)}
        given = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert given <= known | {"--help"}, f"{page.name}: crowdml {' '.join(words)}: {given - known}"


def test_commands_are_found(pages: list[Any]) -> None:
    found = {page.name: typed(page) for page in pages}
    assert sum(map(len, found.values())) > 30
    assert ["task", "list", "--home", "/var/lib/crowdml/server"] in found["docs/how-to/deploy.md"]
    assert any("--tls-key" in words for words in found["docs/how-to/deploy.md"])


FORBIDDEN = {
    r"\bclients?\b": "device",
    r"\bnodes?\b": "device",
    r"\bworkers?\b(?! process)": "device",
    r"\badmins?\b": "operator",
    r"\bpopulation\b": "crowd",
    r"\bfleet\b": "crowd",
    r"\bprivati[sz]e\w*": "sanitise",
    r"\bsaniti[z]\w*": "sanitise",
    r"\bhyperparameters?\b": "hyper-parameter",
    r"\bcheckins?\b": "check-in",
    r"\bcheckouts?\b": "check-out",
    r"\brngs?\b": "coins",
    r"\bbackends?\b": "driver",
    r"\bregulari[z]\w*": "regularise",
    r"\bnormali[z]\w*": "normalise",
    r"\bbehaviors?\b": "behaviour",
    r"\bcolors?\b": "colour",
    r"\binitiali[z]\w*": "initialise",
    r"\boptimi[z]\w*": "optimise",
    r"\blicense\b": "licence",
}
GLOSSARY = "docs/concepts/glossary.md"


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_words_are_the_glossarys(pattern: str, pages: list[Any]) -> None:
    for page in pages:
        if page.name == GLOSSARY:
            continue
        prose = re.sub(r"\]\([^)]*\)", "]", page.prose())
        found = re.search(pattern, prose, re.I)
        assert not found, f'{page.name} says "{found[0]}"; our word is "{FORBIDDEN[pattern]}"'


def test_every_glossary_word_is_in_use(pages: list[Any], root: Path) -> None:
    text = (root / GLOSSARY).read_text(encoding="utf-8")
    words = [word for row in re.findall(r"^\| (.+?) \|", text, re.M) for word in re.findall(r"\*\*(.+?)\*\*", row)]
    assert len(words) > 20
    others = "\n".join(page.text for page in pages if page.name != GLOSSARY).lower()
    code = "\n".join(path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py")).lower()
    for word in map(str.lower, words):
        assert word in others, f"{word} stands in the glossary, but no page uses it"
        assert word in code or word.replace("-", "_") in code, f"{word} stands in the glossary, but no code uses it"


FIELDS_WORDS = (
    r"FedAvg|federated averaging",
    r"FedProx",
    r"SCAFFOLD",
    r"Krum",
    r"trimmed mean",
    r"geometric median",
    r"poisoning",
    r"Byzantine",
    r"ADMM",
    r"consensus",
    r"stragglers?",
    r"bounded delay",
    r"momentum",
    r"learning rate",
    r"hyper-parameters?",
    r"non-IID",
    r"Dirichlet",
    r"DP-SGD",
    r"DP-FedAvg",
    r"user-level",
    r"clipping norm",
    r"sensitivity",
    r"Laplace",
    r"Gaussian",
    r"discrete Gaussian",
    r"Rényi",
    r"privacy loss",
    r"privacy budget",
    r"accountant",
    r"composition",
    r"amplification",
    r"Poisson sampling",
    r"post-processing",
    r"randomised response",
    r"local differential privacy",
    r"matrix factorisation",
    r"correlated noise",
    r"trade-off curve",
    r"canar(?:y|ies)",
    r"audit",
    r"secure aggregation",
    r"secret sharing",
    r"Shamir",
    r"split learning",
    r"scattering",
    r"validation",
    r"baseline",
    r"epochs?",
    r"staleness",
    r"test error",
)
"""Terms of art: whoever meets one of them on a page can look it up."""


def test_every_word_of_the_field_that_a_page_uses_is_in_the_glossary(pages: list[Any], root: Path) -> None:
    glossary = (root / GLOSSARY).read_text(encoding="utf-8")
    prose = {page.name: page.prose() for page in pages if page.name != GLOSSARY}
    used = 0
    for word in FIELDS_WORDS:
        where = [name for name, text in prose.items() if re.search(rf"\b(?:{word})\b", text, re.I)]
        used += bool(where)
        explained = re.search(rf"\b(?:{word})\b", glossary, re.I)
        assert explained or not where, f"{where[0]} says {word}, which the glossary does not have"
    assert used >= 40, "the list has words that no page uses any more"


def test_every_glossary_word_has_the_fields_word_beside_it(root: Path) -> None:
    text = (root / GLOSSARY).read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.*) \| (.*) \|$", text, re.M)
    assert len(rows) == text.count("| **") and all(meaning and field.strip() for _, meaning, field in rows)
    assert len({word for word, _, _ in rows}) == len(rows), "one word, one row"


def test_a_newcomer_finds_the_fields_words_at_the_door(root: Path) -> None:
    door = " ".join((root / "README.md").read_text(encoding="utf-8").lower().split())
    for word in ("federated learning", "differential privacy", "privacy budget", "secure aggregation", "byzantine"):
        assert word in door, f"README.md does not say {word}"
    for name in ("privacy-model", "ledger"):
        assert "privacy budget" in " ".join((root / f"docs/concepts/{name}.md").read_text(encoding="utf-8").split())


def test_no_place_of_work_in_any_page(page: Any) -> None:
    places = re.findall(r"(?<![\w.])/(?:work|home|root|Users)/[^\s`)]*", page.text)
    assert not places
    assert not re.search(r"pypi\.org|files\.pythonhosted|registry\.npmjs", page.text)
    assert page.text.endswith("\n") and "\t" not in page.text


def test_the_figure_is_there(root: Path) -> None:
    assert (root / "docs" / "images" / "demo.png").read_bytes().startswith(b"\x89PNG")
