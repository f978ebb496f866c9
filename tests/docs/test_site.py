"""The site is whole: every page in its navigation, every link and anchor leads somewhere, nothing is fetched."""

import re
from pathlib import Path
from typing import Any

import pytest

from docs.site import build, check, pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    assert build.build(folder) == []
    return folder


def test_every_page_of_the_docs_is_built_and_in_the_navigation(site: Path, root: Path) -> None:
    assert pages.unlisted() == set()
    documents = {path for path in (root / "docs").rglob("*") if path.suffix in (".md", ".ipynb")}
    built = {path.relative_to(root / "docs").with_suffix(".html") for path in documents}
    assert len(built) > 70 and all((site / path).is_file() for path in built)


def test_what_a_page_links_to_outside_the_docs_is_in_the_site(site: Path) -> None:
    assert "Keep a Changelog" in (site / "project" / "changelog.html").read_text(encoding="utf-8")
    listing = (site / "files" / "src" / "crowdml" / "cli" / "digits.toml.html").read_text(encoding="utf-8")
    assert "crowd-sgd" in re.sub(r"<[^>]*>", "", listing)
    notebook = (site / "notebooks" / "first-simulation.html").read_text(encoding="utf-8")
    assert "to_pandas" in notebook and "nbformat" not in notebook
    for name in ("first-simulation", "comparison-with-privacy"):
        shown = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert shown.count("data:image/png;base64,") == 2 and "None" not in shown and "<table" in shown, (
            "a reader sees what the cells show"
        )


def test_braces_at_the_end_of_a_cell_are_shown(site: Path) -> None:
    shown = re.sub(r"<[^>]*>", "", (site / "reference" / "task-file.html").read_text(encoding="utf-8"))
    for sentence in ("such as { age = &quot;years&quot; }", "such as { name = &quot;temperature&quot;, low = 5.0"):
        assert sentence in shown or sentence.replace("&quot;", '"') in shown


def test_a_page_outside_the_navigation_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Welcome\n\n[late](late.md)\n\n## Start\n\n- [first](first.md)\n")
    (docs / "first.md").write_text("# First\n\n```text\n[none](none.md)\n```\n")
    (docs / "late.md").write_text("# Late\n")
    for name, value in {"ROOT": tmp_path, "DOCS": docs, "INDEX": docs / "index.md"}.items():
        monkeypatch.setattr(pages, name, value)
    assert pages.navigation() == [{"Home": "index.md"}, {"Start": [{"First": "first.md"}]}]
    assert pages.unlisted() == {"late.md"}


def test_what_is_broken_or_fetched_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "@import 'https://example.org/font.css'; p { background: url(data:image/png;base64,x) }"
    )
    (tmp_path / "b.html").write_text("<h1 id='here'>B</h1>")
    (tmp_path / "index.html").write_text(
        "<link rel=stylesheet href=a.css><link rel=canonical href=https://example.org/>"
        "<script src=//example.org/x.js></script><img src=none.png><img src=data:image/png;base64,x>"
        "<a href=https://example.org/>out</a><a href=b.html#here>right</a><a href=b.html#there>wrong</a>"
        "<a href=c.html>none</a>"
    )
    assert sorted(check.problems(tmp_path)) == [
        "a.css fetches https://example.org/font.css from elsewhere",
        "index.html fetches //example.org/x.js from elsewhere",
        "index.html fetches none.png, which is not in the site",
        "index.html links to b.html#there: b.html has no such heading",
        "index.html links to c.html, which is not in the site",
    ]


def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert build.main([str(tmp_path)]) == 2
    assert "something else" in capsys.readouterr().err and (tmp_path / "letter.txt").exists()


@pytest.mark.browser
def test_search_works_from_the_folder_and_nobody_else_is_asked(site: Path, browser: Any) -> None:
    page = browser.new_page()
    elsewhere: list[str] = []
    page.on("request", lambda request: elsewhere.append(request.url) if request.url.startswith("http") else None)
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("staleness")
    page.wait_for_selector("a[href*='local-updates.html']:has-text('staleness')")
    assert elsewhere == []


@pytest.mark.browser
def test_a_copy_of_a_console_block_is_what_is_typed(site: Path, browser: Any, root: Path) -> None:
    page = browser.new_page()
    for name in ("tutorials/first-task", "tutorials/two-machines", "how-to/import-legacy", "how-to/deploy"):
        source = (root / "docs" / f"{name}.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```console\n(.*?)^```$", source, re.M | re.S)
        page.goto((site / f"{name}.html").as_uri())
        # What the theme's button does.
        copies = page.evaluate(
            """() => [...document.querySelectorAll("pre code:has(.gp)")].map((code) => {
                code.setAttribute("data-md-copying", "");
                return code.innerText.trimEnd();
            })"""
        )
        typed = ["\n".join(re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.M)) for block in blocks]
        assert copies == typed and blocks


def test_a_command_over_several_lines_is_typed_and_its_answer_is_not() -> None:
    shown = pages.console("$ crowdml compare \\\n  a.toml & b\nhttp://host/#code=1\n$ ls\n")
    assert re.sub(r'<span class="g[po]">.*?</span>', "", shown, flags=re.S) == (
        '<div class="highlight"><pre><span></span><code>crowdml compare \\\n  a.toml &amp; b\nls\n</code></pre></div>'
    )
    assert re.sub(r"<[^>]*>", "", shown).startswith("$ crowdml compare") and "#code=1" in shown
