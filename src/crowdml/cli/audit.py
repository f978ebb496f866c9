"""crowdml audit: attack what a task promises, or show what one without a promise gives away."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import change_option


def audit(
    task: Annotated[Path, typer.Argument(help="The task file, of any algorithm.")],
    set_: Annotated[list[str] | None, change_option("privacy.epsilon=1.0")] = None,
    trials: Annotated[int, typer.Option(min=1000, max=10_000_000, help="Trials in each of two worlds.")] = 20_000,
    confidence: Annotated[float, typer.Option(help="Probability that all bounds shown hold together.")] = 0.99,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Also attack a device that adds half the noise.")
    ] = True,
    own_rows: Annotated[
        int, typer.Option(min=20, help="slicenet: rows that the reader has of its own, at most.")
    ] = 500,
    transcript: Annotated[
        Path | None,
        typer.Option(help="slicenet: read sums that a live follower has recorded (.npz), instead of simulated ones."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Where to look for neighbours, and which rows; never noise.")
    ] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw what was found here (.png, .svg or .pdf).")] = None,
) -> None:
    """Attack a task: try to disprove its promise, or show what can be read where nothing is promised.

    Where a task promises an ε, two worlds are searched that differ in one sample (or one device) as much as the
    algorithm allows. The device's own code works in both, with the operating system's entropy, and the best guess
    between them gives a lower bound on ε, beside the one that is proven. Half the noise is attacked beside, so that you
    see whether the attack could have found anything. Ends with exit code 1 if a bound exceeds its claim.

    In mode "paper" the paper's ε stands beside what its noise really gives and what the attack proves.

    Where nothing is promised, it shows what an honest but curious server reads from one check-in, and whether a model
    tells who was in its training data. For slicenet it measures what followers read.
    """
    from crowdml.audit import Options, run
    from crowdml.audit.bounds import Confidence
    from crowdml.slicing.attacks import Transcript
    from crowdml.task.task_file import load, located

    output.check_paths(json, plot)
    Confidence(level=confidence, family=1)
    loaded = load(task, set_ or [])
    with located(task, set_ or []), output.Progress(loaded.name, quiet=json == Path("-"), lines=True) as progress:
        options = Options(
            trials=trials,
            confidence=confidence,
            control=control,
            own_rows=own_rows,
            transcript=Transcript.load(transcript) if transcript else None,
            seed=seed,
            watch=lambda share, what: progress.named(f"{loaded.name}: {what}", share, math.nan),
        )
        found = run(loaded, options)
    if json != Path("-"):
        for table in found.tables():
            output.show(output.keep_words(output.table(table.title, table.columns, table.rows, right=table.right), 1))
        output.show(*found.words())
    output.write_json(found.to_json(), json)
    output.draw(found.draw, plot)
    if not found.holds:
        raise typer.Exit(1)
