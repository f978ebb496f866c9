"""crowdml backup, crowdml restore: copies of everything a server keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[Path | None, typer.Option(help="The server's folder. Not given: the user's data folder.")]
Db = Annotated[
    str | None, typer.Option(help="Database: sqlite:///FILE or postgresql://…  Not given: a file in --home.")
]


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write the backup; must not exist yet.")],
    home: Home = None,
    db: Db = None,
) -> None:
    """Copy everything a server keeps into one file; the server may go on working.

    The file holds the operator's secret key: keep it as safe as the database itself.
    """
    from crowdml.cli import output
    from crowdml.cli.homes import database_url
    from crowdml.server.store.backup import backup as run

    run(database_url(home, db), file)
    output.say(f"backup: {file} ({file.stat().st_size} bytes)")


def restore(
    file: Annotated[Path, typer.Argument(help="The backup.")],
    home: Home = None,
    db: Db = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is in the database.")] = False,
) -> None:
    """Bring a backup into the database of a server that is not running.

    Every task gets a new incarnation, signed with the operator's key. Devices whose owners accepted that in advance go
    on; other owners are asked.
    """
    from crowdml.cli import output
    from crowdml.cli.homes import database_url
    from crowdml.server.store.restore import restore as run

    for task, incarnation in run(file, database_url(home, db, make=True), force=force).items():
        output.say(f"restored: {task}, incarnation {incarnation}")
    output.say("Devices go on whose owners accepted restores in advance; the others wait for their owners.")
    if not force:
        # There was nothing to overwrite, or this would have been refused.
        output.say("The database was empty, so whoever was revoked or withdrew since the backup is back: revoke again.")
    output.say("Invites made before do not fit the new sheets: make new ones with `crowdml invite`.")
