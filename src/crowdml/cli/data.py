"""`crowdml data`: which datasets there are, whether they are whole, how to get them; words of a file of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import command_group

app = command_group("List, check and fetch the datasets that task files can name.")


@app.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array instead of a table.")] = False,
) -> None:
    """List all datasets and whether they are on this machine.

    A dataset is looked for in $CROWDML_DATA/NAME and then in the user's cache. Use the name in a task file:
    dataset = "mnist" under [data].
    """
    from crowdml.data.catalogue import DATASETS
    from crowdml.task.plugins import load_plugins

    load_plugins()
    entries = [_entry(name) for name in DATASETS]
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
    else:
        _print(entries)


def _entry(name: str) -> dict[str, Any]:
    from crowdml.data import DATASETS, locate

    source, folder = DATASETS[name], locate(name)
    return {
        "name": name,
        "description": source.description,
        "train_rows": source.rows[0],
        "test_rows": source.rows[1],
        "features": source.features,
        "classes": source.target.bins if source.label_names else None,
        "target": source.target.described,
        "licence": source.licence,
        "citation": source.citation,
        "homepage": source.homepage,
        "present": folder is not None,
        "folder": None if folder is None else str(folder),
    }


def _print(entries: list[dict[str, Any]]) -> None:
    rows = []
    for entry in entries:
        counted, predicted = f"{entry['train_rows']} + {entry['test_rows']}", entry["classes"] or "a number"
        here = "present" if entry["present"] else "missing"
        rows.append((entry["name"], counted, entry["features"], predicted, entry["licence"], here))
    columns = ("name", "rows", "features", "classes", "licence", "here")
    made = output.table(None, columns, rows, right=("rows", "features", "classes"))
    made.columns[0].no_wrap = made.columns[1].no_wrap = True  # a name is copied from here
    output.show(made)


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="A dataset; without it, all that are present.")] = None,
) -> None:
    """Compare the files of a dataset with their published checksums.

    Ends with exit code 2 if a file is corrupt, or if the dataset that was asked for is incomplete.
    """
    from crowdml.core.errors import BadInput
    from crowdml.data import DATASETS, locate
    from crowdml.data import verify as check

    chosen = [DATASETS[name].name] if name else [each for each in DATASETS if locate(each) is not None]
    wrong = []
    for each in chosen:
        for file in check(each):
            typer.echo(f"{file.status:9} {file.path}")
            if file.status == "corrupt" or (file.status == "missing" and not file.optional):
                wrong.append(file)
    if wrong:
        raise BadInput(
            f"{wrong[0].path} is {wrong[0].status}" + (f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""),
            hint=f"fetch again with: crowdml data get {name or 'NAME'}",
        )


@app.command()
def get(name: Annotated[str, typer.Argument(help="A dataset, as `crowdml data list` names it.")]) -> None:
    """Fetch a dataset from its public source into the user's cache.

    Every file is compared with its published checksum before it gets its name. Without a network the message says
    which files to put where.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from crowdml.data import get as fetch

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        lines: dict[str, Any] = {}

        def tell(file: str, done: int, total: int) -> None:
            if file not in lines:
                lines[file] = bar.add_task(file, total=total)
            bar.update(lines[file], completed=done)

        folder = fetch(name, tell)
    typer.echo(f"{name} is in {folder}")


@app.command()
def words(
    file: Annotated[Path, typer.Argument(help="A .csv or .parquet file with a header.")],
    columns: Annotated[
        list[str] | None, typer.Argument(help="Which columns; not given: all in which something is no number.")
    ] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option("--except", help="A column to leave out, such as that of the labels.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write them here instead of printing them.")
    ] = None,
) -> None:
    """List the words of a file's columns, as data.words of a task takes them.

    Words are signed with a task, for everybody to read: take them from rows that are public or your own, and read what
    was written before a task opens. Missing values are no words; add one, such as ?, where it should be a word.
    """
    from crowdml.core.files import write_whole
    from crowdml.data.rows.listed_words import list_words, words_toml

    text = words_toml(list_words(file, tuple(columns or ()), tuple(leave_out or ())))
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text.encode())
        typer.echo(f"{out}: words of {text.count(chr(10))} columns")
