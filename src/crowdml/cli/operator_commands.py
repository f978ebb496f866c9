"""crowdml operator: look after the operator's own access to a server: its token, and the log of who did what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import command_group
from crowdml.cli.task import Ca, Home, Json, Server

app = command_group("Look after the operator's access to a server: its token, and the log of who did what.")

_COLUMNS = ("time (UTC)", "who", "what", "count", "task", "device", "more")


@app.command()
def rotate(
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
    json: Json = False,
) -> None:
    """Change the operator's token for a new one, and print it: it is shown this once.

    The old token is dead at once, and every browser in which somebody has signed in is signed out. The server writes
    the new token to operator.token in its folder.
    """
    from crowdml.cli.operator import Operator

    token = Operator(server, home, ca).ask("POST", "/v1/operator/token")["token"]
    output.say("the old token opens nothing any more, and all browsers are signed out; this is the new one:")
    if json:
        output.write_json({"token": token}, Path("-"))
    else:
        print(token)


@app.command()
def log(
    task: Annotated[str | None, typer.Option(help="Only what was done to this task.")] = None,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="How many entries at most, latest first.")] = 50,
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
    json: Json = False,
) -> None:
    """Print who did what, and when: the operator by token or by portal, devices, the server, strangers.

    It holds no secrets. A device stands in it by its number, and no longer after its owner has withdrawn.
    """
    from crowdml.cli.operator import Operator

    operator, found = Operator(server, home, ca), list[dict[str, object]]()
    wanted: dict[str, object] = {} if task is None else {"task": task}
    while len(found) < count:
        page = operator.ask("GET", f"/v1/operator/log?{urlencode(wanted)}")
        found += page["events"]
        if page["next"] is None:
            break
        wanted["before"] = page["next"]
    _print(found[:count], json)


def _print(events: list[dict[str, object]], as_json: bool) -> None:
    if as_json:
        output.write_json({"events": events}, Path("-"))
        return
    import time

    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(float(str(event["time"])))),
            *(event["actor"], event["action"], event["count"], event["task"] or ""),
            "" if event["slot"] is None else event["slot"],
            event["detail"],
        )
        for event in events
    ]
    output.show(output.table(None, _COLUMNS, rows))
