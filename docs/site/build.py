"""Build the documentation as a static site that asks nobody else for anything, and can be read from a folder.

python -m docs.site.build [FOLDER]    builds into FOLDER (site), and ends with 1 if a link or the navigation is broken
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from docs.site.check import problems
from docs.site.pages import ROOT, navigation, unlisted, write_sources

HERE = Path(__file__).parent

SETTINGS: dict[str, Any] = {
    "site_name": "crowdml",
    "site_description": "Federated learning with differential privacy, in simulation and for real.",
    "copyright": "Apache-2.0",
    "docs_dir": "docs",
    "site_dir": "site",
    "extra_css": ["assets/crowdml.css"],
    "theme": {
        # Fonts of the reader's own system.
        "font": False,
        "features": [
            "content.code.copy",
            "navigation.footer",
            "navigation.indexes",
            "navigation.sections",
            "navigation.tabs",
            "navigation.top",
            "search.highlight",
            "toc.follow",
        ],
        "palette": [
            {
                "media": "(prefers-color-scheme: light)",
                "scheme": "default",
                "toggle": {"icon": "lucide/sun", "name": "Switch to dark"},
            },
            {
                "media": "(prefers-color-scheme: dark)",
                "scheme": "slate",
                "toggle": {"icon": "lucide/moon", "name": "Switch to light"},
            },
        ],
    },
    "plugins": {
        "offline": {"enabled": True},
        # A name such as CROWDML_DATA is one word.
        "search": {"separator": r"""[\s\-,:!=$\[\]()\\"`/]+|\.(?!\d)"""},
    },
    # Searching from a folder needs a worker that is none. Its name keeps the generator from fetching one elsewhere.
    "extra": {
        "generator": False,
        "polyfills": [{"path": "assets/iframe-worker.js", "type": "text/javascript", "async": False, "defer": False}],
    },
    "markdown_extensions": {
        "admonition": {},
        "md_in_html": {},
        "tables": {},
        # Headings are spelt in links as code hosts spell them.
        "toc": {"permalink": True, "slugify": {"object": "pymdownx.slugs.slugify", "kwds": {"case": "lower"}}},
        "pymdownx.highlight": {},
        "pymdownx.superfences": {},
        "pymdownx.tabbed": {"alternate_style": True},
    },
}


def build(folder: Path) -> list[str]:
    """Build the site into a folder, replacing what is there; return what is wrong with it."""
    missing = [f"docs/index.md does not name {name}" for name in sorted(unlisted())]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        write_sources(work / "docs")
        (work / "docs" / "assets").mkdir()
        for file in ("crowdml.css", "iframe-worker.js"):
            shutil.copyfile(HERE / file, work / "docs" / "assets" / file)
        # JSON is YAML.
        (work / "mkdocs.yml").write_text(json.dumps({**SETTINGS, "nav": navigation()}), encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", "mkdocs.yml"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)  # noqa: S603 - our own arguments
        if done.returncode:
            return [*missing, done.stdout + done.stderr]
        found = problems(work / "site")
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(work / "site", folder)
    return missing + found


def main(arguments: list[str]) -> int:
    """Build, and say what is wrong."""
    if len(arguments) > 1 or arguments[:1] == ["--help"]:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve() if arguments else ROOT / "site"
    if folder.exists() and not (folder / "sitemap.xml").is_file() and any(folder.iterdir()):
        print(
            f"{folder} holds something else than a site; choose an empty folder, or one that does not exist",
            file=sys.stderr,
        )
        return 2
    found = build(folder)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(list(folder.rglob('*.html')))} pages in {folder}; open {folder / 'index.html'}" if not found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
