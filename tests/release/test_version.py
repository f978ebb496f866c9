"""One version: what the code says, the changelog, the citation and the front page agree."""

import re
from pathlib import Path

import crowdml

ROOT = Path(__file__).parents[2]
RELEASED = re.compile(r"^## \[(\d+\.\d+\.\d+)\](?: - (\d{4}-\d\d-\d\d))?$", re.M)


def test_changelog_citation_and_readme_name_the_version_of_the_code() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest, date = RELEASED.findall(changelog)[0]
    assert newest == crowdml.__version__ and date
    assert changelog.index("## [Unreleased]") < changelog.index(f"## [{newest}]")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {newest}\n" in citation and f"\ndate-released: {date}\n" in citation
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"**Honest state**: version {newest.rpartition('.')[0]}," in readme


def test_versions_in_the_changelog_go_down() -> None:
    found = [
        tuple(map(int, version.split("."))) for version, _ in RELEASED.findall((ROOT / "CHANGELOG.md").read_text())
    ]
    assert len(found) > 1 and found == sorted(found, reverse=True)


def test_the_environment_is_made_anew_when_the_version_changes() -> None:
    """What is installed knows its version from when it was installed."""
    rule = re.search(r"^\$\(STAMP\): (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert rule and "src/crowdml/version.py" in rule[1].split()


def test_a_version_has_each_kind_of_change_once() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for version in changelog.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.+)$", version, re.M)
        assert kinds == [kind for kind in ("Added", "Changed", "Fixed") if kind in kinds], version.partition("\n")[0]
