"""The page of commands: what each prints with --help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docs.writers.phrases import GENERATED

CLI_INTRODUCTION = """\
What each command prints with `--help`.

| exit code | means |
|---|---|
| 0 | done |
| 1 | the answer is no: `audit` found more than is promised, `portal verify` other files, or you declined a question |
| 2 | bad input, or something that is needed is not there; the message says what would be right |
| 70 | `serve` could not write what it has to keep, and ended so that only a new start tells what was kept |
| 128 and more | a signal: 130 is Ctrl-C |

Code 1 also ends a command whose output nobody reads any more, and one with a traceback: a mistake of ours, which please
report."""

EXIT_CODES = (0, 1, 2, 70, 128, 130)
"""Those in the table above, where 128 stands for itself and a signal's number."""


def cli_page() -> str:
    """Show the help of every command."""
    parts = [GENERATED, "# Commands", CLI_INTRODUCTION]
    for path, text in helps():
        parts += [f"## `{' '.join(('crowdml', *path))}`", f"```text\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


def helps() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of every command, and its help."""
    import typer
    from typer.testing import CliRunner

    from crowdml.cli.app import app

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*path, name))

    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    for path in walk(typer.main.get_command(app), ()):
        result = runner.invoke(app, [*path, "--help"], prog_name="crowdml")
        yield path, "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())
