"""Write what comes from code and records: task file, commands, HTTP, Python, papers and their figures, speed, layers.

python -m docs.generate            writes the pages
python -m docs.generate --check    writes nothing, ends with 1 if a page differs from the code, and says which
"""

from __future__ import annotations

import sys
from pathlib import Path

from docs.writers.benchmarks import benchmarks_page
from docs.writers.capacity import capacity_page
from docs.writers.commands import cli_page
from docs.writers.http import http_page
from docs.writers.layer_map import draw_layers
from docs.writers.measured import measured_page
from docs.writers.messages import messages_page
from docs.writers.others import others_page
from docs.writers.paper_figures import orphans, pictures
from docs.writers.papers import RESULTS, papers_page
from docs.writers.python_api import python_page
from docs.writers.soak import soak_page
from docs.writers.speed import speed_page
from docs.writers.task_file import task_file_page

REFERENCE = Path(__file__).parent / "reference"

PAGES = {
    REFERENCE / "task-file.md": task_file_page,
    REFERENCE / "cli.md": cli_page,
    REFERENCE / "http.md": http_page,
    REFERENCE / "python.md": python_page,
    REFERENCE / "messages.md": messages_page,
    REFERENCE / "soak.md": soak_page,
    REFERENCE.parent / "papers.md": papers_page,
    REFERENCE.parent / "reproduce-others.md": others_page,
    REFERENCE.parent / "benchmarks.md": benchmarks_page,
    REFERENCE.parent / "concepts" / "what-we-measured.md": measured_page,
    REFERENCE.parent / "concepts" / "speed.md": speed_page,
    REFERENCE.parent / "concepts" / "capacity.md": capacity_page,
    REFERENCE.parent / "images" / "layer-map.svg": draw_layers,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them with the code."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    folder = REFERENCE.parent / "images" / "papers"
    drawn = pictures(RESULTS, folder)
    stale = 0
    for path, text in [*((path, make()) for path, make in PAGES.items()), *drawn.items()]:
        if arguments:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                print(f"{path.relative_to(REFERENCE.parent.parent)} differs from the code; run: make docs")
                stale = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in orphans(drawn, folder):
        if arguments:
            print(f"{path.relative_to(REFERENCE.parent.parent)} belongs to no record; run: make docs")
            stale = 1
        else:
            path.unlink()
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
