"""crowdml import-legacy: make a task file of the original Crowd-ML library's configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def import_legacy(
    configuration: Annotated[Path, typer.Argument(help="The configuration.json of the Crowd-ML library (2016).")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="TASK.toml", help="Write here, not to standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there already.")] = False,
    dataset: Annotated[
        str | None, typer.Option(help="Simulate with this dataset; otherwise one whose rows fit is taken.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Devices of the simulated crowd, at most.")] = 20,
) -> None:
    """Translate a configuration of the original Crowd-ML library into a task file.

    The task file says in comments what each line comes from, and what could not be carried over. Noise was given by
    its scale alone there, so no ε can be stated for it.
    """
    from crowdml.algorithms.legacy_task import translate
    from crowdml.cli import output
    from crowdml.core.validation import read_text

    if out is not None:
        _check_free(out, force)
    text = translate(
        read_text(configuration, "give the path of a configuration.json"), configuration.name, dataset, devices
    )
    if out is None:
        sys.stdout.write(text)
        return
    from crowdml.core.validation import write_whole

    write_whole(out, text.encode())
    output.say(f"task file: {out}\n  try: crowdml simulate {out} --trials 1")


def _check_free(path: Path, force: bool) -> None:
    from crowdml.core import BadInput
    from crowdml.core.validation import writable

    writable(path)
    if path.exists() and not force:
        raise BadInput(f"{path} is there already", where="--out", hint="choose another name, or add --force")
