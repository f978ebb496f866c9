"""crowdml task: make, watch and end tasks on a server. crowdml invite: let devices join."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdml.cli.words import Commands

app = typer.Typer(
    cls=Commands,
    help="Make, watch and end tasks on a server.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
Server = Annotated[str | None, typer.Option(help="Address of the server. Not given: the one of --home.")]
Home = Annotated[Path | None, typer.Option(help="Folder of the server, for its address and operator's token.")]
Ca = Annotated[Path | None, typer.Option(help="Certificate authority of the server, PEM.")]
Name = Annotated[str, typer.Argument(help="Name of the task.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(
    file: Annotated[Path, typer.Argument(help="Task file, TOML.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the file.")
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            help="NPZ file with public rows: transforms are fitted on them; with labels, the server learns on them."
        ),
    ] = None,
    draft: Annotated[bool, typer.Option(help="Do not open it yet: crowdml task resume does.")] = False,
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """Make a task of a file and open it to devices."""
    from crowdml.algorithms import load
    from crowdml.algorithms.averaging_terms import warnings
    from crowdml.algorithms.live import fit_public, require_live
    from crowdml.algorithms.public_file import public_set
    from crowdml.algorithms.task_file import located
    from crowdml.cli import output
    from crowdml.protocol.sheet import write_arrays

    changes = set_ or []
    with located(file, changes):
        task = load(file, changes)
        require_live(task)
        arrays = fit_public(task, public)
        kept = public_set(task, public, arrays)
    for warning in warnings(task):
        output.say(f"note: {warning}")
    request = {"file": file.read_text(), "changes": changes, "arrays": write_arrays(arrays), "draft": draft}
    if kept is not None:
        request["public"] = write_arrays([kept])[0]
    made = _operator(server, home, ca).ask("POST", "/v1/tasks", request)
    output.say(f"{made['task']} is {made['state']}; sheet {made['sheet_hash'][:16]}…")
    if made["state"] == "draft":
        output.say(f"devices can join, and wait until you open it with: crowdml task resume {made['task']}")
    output.say(f"invite devices with: crowdml invite {made['task']} --count 10")


@app.command("list")
def list_(server: Server = None, home: Home = None, ca: Ca = None, json: Json = False) -> None:
    """List the tasks of a server."""
    from crowdml.cli.task_output import print_table

    tasks = _operator(server, home, ca, public=True).ask("GET", "/v1/tasks")["tasks"]
    print_table(tasks, ("task", "state", "version", "devices", "check_ins", "objective"), json)


@app.command()
def show(name: Name, server: Server = None, home: Home = None, ca: Ca = None, json: Json = False) -> None:
    """Show how a task stands."""
    from crowdml.cli.task_output import print_task

    print_task(_operator(server, home, ca, public=True).ask("GET", f"/v1/tasks/{name}"), json)


@app.command()
def pause(name: Name, server: Server = None, home: Home = None, ca: Ca = None) -> None:
    """Take no check-ins for a while; devices keep theirs and wait."""
    _move(name, "paused", server, home, ca)


@app.command()
def resume(name: Name, server: Server = None, home: Home = None, ca: Ca = None) -> None:
    """Open a draft or a paused task."""
    _move(name, "open", server, home, ca)


@app.command()
def stop(name: Name, server: Server = None, home: Home = None, ca: Ca = None) -> None:
    """End a task for good; its model can still be exported."""
    _move(name, "stopped", server, home, ca)


@app.command()
def export(
    name: Name,
    to: Annotated[Path, typer.Option("--output", "-o", help="File: .safetensors or .onnx.")],
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """Save the model, with terms and ε in its metadata."""
    from crowdml.cli import output
    from crowdml.core import BadInput
    from crowdml.core.validation import writable, write_whole

    kind = to.suffix.removeprefix(".")
    if kind not in ("safetensors", "onnx"):
        raise BadInput(f"{to} has no known ending for a model", hint="use .safetensors or .onnx")
    writable(to)
    write_whole(to, _operator(server, home, ca).fetch("GET", f"/v1/tasks/{name}/model?format={kind}").content)
    output.say(f"model: {to}")


@app.command()
def devices(name: Name, server: Server = None, home: Home = None, ca: Ca = None, json: Json = False) -> None:
    """List the devices of a task: names given by the server, nothing about owners."""
    from crowdml.cli.task_output import print_table

    found = _operator(server, home, ca).ask("GET", f"/v1/tasks/{name}/devices")["devices"]
    print_table(found, ("device", "slot", "check_ins"), json)


@app.command()
def revoke(
    name: Name,
    device: Annotated[str, typer.Argument(help="Name of the device, as `crowdml task devices` lists it.")],
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """Take a device's token away, at once."""
    from crowdml.cli import output

    _operator(server, home, ca).ask("DELETE", f"/v1/tasks/{name}/devices/{device}")
    output.say(f"{device} is revoked: its token opens nothing any more; what it contributed stays in the model")


def invite(
    name: Name,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many devices.")] = 1,
    qr: Annotated[bool, typer.Option("--qr", help="Print each link as a QR code too, for phones.")] = False,
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """Print links with which devices join a task, one link per device.

    A link holds a secret that is good for one device: hand it over on a way that others cannot read.
    """
    from crowdml.cli import output
    from crowdml.cli.task_output import STATES

    operator = _operator(server, home, ca)
    links = operator.ask("POST", f"/v1/tasks/{name}/invites", {"count": count})["invites"]
    state = operator.ask("GET", f"/v1/tasks/{name}")["state"]
    if state != "open":
        output.say(f"note: {name} is {STATES[state]}; open it with: crowdml task resume {name}")
    for link in links:
        print(link)
        if qr:
            import segno

            segno.make(link, error="m").terminal(out=sys.stdout, compact=True)


def _operator(server: str | None, home: Path | None, ca: Path | None, *, public: bool = False) -> Any:
    from crowdml.cli.operator import Operator

    return Operator(server, home, ca, public=public)


def _move(name: str, state: str, server: str | None, home: Path | None, ca: Path | None) -> None:
    from crowdml.cli import output
    from crowdml.cli.task_output import STATES

    made = _operator(server, home, ca).ask("PATCH", f"/v1/tasks/{name}", {"state": state})
    output.say(f"{name} is {STATES[made['state']]}")
    if made["state"] == "stopped":
        output.say(f"its model: crowdml task export {name} --output {name}.safetensors")
