"""What commands print and write: progress, tables, JSON, figures.

Every command imports this before it is known which one will run: what takes long to import is imported when it is used.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

FIGURE_KINDS = (".png", ".svg", ".pdf")
LINE_EVERY_S = 30.0
"""Where no terminal is attached, a line says so often how far something is."""


def check_paths(json_path: Path | None, plot_path: Path | None) -> None:
    """Refuse outputs that could not be written, before any work is done."""
    from crowdml.core import BadInput
    from crowdml.core.files import writable

    if json_path and json_path != Path("-"):
        writable(json_path)
    if plot_path:
        if plot_path.suffix not in FIGURE_KINDS:
            raise BadInput(f"{plot_path} has no known ending for a figure", hint="use " + ", ".join(FIGURE_KINDS))
        writable(plot_path)


def say(text: str) -> None:
    """Print a line for people; scripts read standard output or a file."""
    print(text, file=sys.stderr)


def write_json(content: dict[str, Any], path: Path | None) -> None:
    """Write a result for scripts: to a file, to standard output (`-`), or nowhere."""
    from crowdml.core.files import write_whole

    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if path == Path("-"):
        sys.stdout.write(text)
    elif path:
        write_whole(path, text.encode())
        say(f"result: {path}")


def draw(figure: Callable[[Path], object], path: Path | None) -> None:
    """Have a figure drawn where it was asked for."""
    if path:
        figure(path)
        say(f"figure: {path}")


def show(*things: Any, style: str | None = None) -> None:
    """Print lines and tables for people on standard output, as wide as the terminal; [words] in them stay words."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for thing in things:
        console.print(thing, style=style)


def strong(words: str, then: str = "") -> Text:
    """Make a line of which the first words stand out."""
    from rich.text import Text

    return Text.assemble((words, "bold"), then)


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> Table:
    """Make a table without lines; columns named in `right` are set to the right."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", box=None)
    for name in columns:
        # A word that is too long goes on below: its end may be what somebody wants to copy.
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    return made


def keep_words(made: Table, *columns: int) -> Table:
    """Where a terminal is too narrow for a table, have other columns give way before a word of these is broken."""
    from rich.console import Console

    for column in columns:
        if Console(width=1000, markup=False).measure(made).maximum <= Console().width:
            break
        shown = made.columns[column]
        shown.width = max(len(word) for cell in (shown.header, *shown.cells) for word in str(cell).split())
    return made


def promise_text(epsilon: float, delta: float) -> str:
    """Write a promise; δ is named where there is one."""
    return f"ε = {epsilon_text(epsilon)}" + (f", δ = {delta:g}" if delta else "")


def epsilon_text(epsilon: float) -> str:
    """Write what was spent, or may be, to four digits, rounded up: what is shown is never less than what is proven.

    The last digits of a sum of floating-point numbers are none: ε is lowered by a billionth first.

    >>> epsilon_text(2.0), epsilon_text(7.30712), epsilon_text(0.1 + 0.2)
    ('2', '7.308', '0.3')
    """
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(epsilon * (1 - 1e-9)))):g}"


class Progress:
    """A progress bar on standard error, with the error as it falls; a line now and then where there is no terminal.

    Args:
        name: What is going on.
        quiet: Whether nothing is shown.
        lines: Whether there is a line for every part and every tenth, however soon one follows the other.
        clock: Seconds.
    """

    def __init__(
        self, name: str, quiet: bool = False, lines: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        self._lines, self._every_s = not quiet and not console.is_terminal, 0.0 if lines else LINE_EVERY_S
        self._clock, self._said, self._said_at = clock, ("", -1), clock()
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[error]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=quiet or self._lines,
            transient=True,
        )
        self._row = self._bar.add_task(f"{name}: preparing", total=1.0, error="")
        self._name = name

    def __enter__(self) -> Progress:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Take the bar away. Ctrl-C ends the program with one line, before typer makes an empty one of it."""
        self._bar.stop()
        if isinstance(error, KeyboardInterrupt):
            say("; ".join(["interrupted", *getattr(error, "__notes__", [])]))
            raise SystemExit(130) from None

    def named(self, name: str, share: float, error: float) -> None:
        """Move on, and call the bar by the part that is going on."""
        self._name = name
        self.update(share, error)

    def update(self, share: float, error: float) -> None:
        """Move on; no error is shown before one was measured."""
        shown = "" if math.isnan(error) else f"error {error:.3f}"
        self._bar.update(self._row, completed=share, description=self._name, error=shown)
        now = (self._name, int((100 if self._every_s else 10) * share))
        if self._lines and now != self._said and self._clock() - self._said_at >= self._every_s:
            say(f"{share:4.0%}  {self._name}" + (f": {shown}" if shown else ""))
            self._said, self._said_at = now, self._clock()
