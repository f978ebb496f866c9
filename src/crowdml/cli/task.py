"""crowdml task: make, watch and end tasks on a server. crowdml invite: let devices join."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import command_group

if TYPE_CHECKING:
    from crowdml.cli.operator import Operator

app = command_group("Make, watch and end tasks on a server.")
Server = Annotated[str | None, typer.Option(help="Address of the server. Not given: the one of --home.")]
Home = Annotated[Path | None, typer.Option(help="Folder of the server, for its address and operator's token.")]
Ca = Annotated[Path | None, typer.Option(help="Certificate authority of the server, PEM.")]
Name = Annotated[str, typer.Argument(help="Name of the task.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_HIDDEN = ("signed_task", "reason", "state", "recent_error", "estimated_error", "validation_error", "averaging")
_WIDTH = 18
STATES = {
    "open": "open",
    "paused": "paused: devices wait, and nothing is taken",
    "draft": "draft: devices can join, and wait until it is opened",
    "stopped": "stopped: nobody can join, and no more check-ins are taken",
}


@app.command()
def create(
    file: Annotated[Path, typer.Argument(help="Task file, TOML.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the file.")
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            help="NPZ file with public rows: transforms are fitted on them; with labels (of a number: targets), the "
            "server keeps them, shows how well models do on them, and learns on them where the task says so."
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help='First weights of a model of your own ([model] kind = "own"): a file .safetensors or .onnx. Its '
            "layout and its weights are signed with the task."
        ),
    ] = None,
    draft: Annotated[bool, typer.Option(help="Do not open it yet: crowdml task resume does.")] = False,
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """Make a task of a file and open it to devices.

    The server signs the task as it stands in the file: from then on its terms cannot change. Try it before: `crowdml
    simulate` says how well a crowd would learn, `crowdml privacy explain` what every owner is promised.
    """
    from crowdml.task import load
    from crowdml.task.averaging_terms import public_set, warnings
    from crowdml.task.live_task import fit_public, require_live
    from crowdml.task.task_file import located
    from crowdml.task.user_models import start_changes
    from crowdml.wire.signed_task import write_arrays

    changes = [*(set_ or []), *(start_changes(start) if start else [])]
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
    output.say(f"{made['task']} is {made['state']}; signed task {made['task_hash'][:16]}…")
    if made["state"] == "draft":
        output.say(f"devices can join, and wait until you open it with: crowdml task resume {made['task']}")
    output.say(f"invite devices with: crowdml invite {made['task']} --count 10")


@app.command("list")
def list_(server: Server = None, home: Home = None, ca: Ca = None, json: Json = False) -> None:
    """List the tasks of a server."""
    tasks = _operator(server, home, ca, public=True).ask("GET", "/v1/tasks")["tasks"]
    _print_table(tasks, ("task", "state", "version", "devices", "check_ins", "objective"), json)


@app.command()
def show(name: Name, server: Server = None, home: Home = None, ca: Ca = None, json: Json = False) -> None:
    """Show how a task stands: its state, version, devices, recent error, and what it promises."""
    _print_task(_operator(server, home, ca, public=True).ask("GET", f"/v1/tasks/{name}"), json)


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
    """Save the model, with terms, odds and ε in its metadata."""
    from crowdml.core import BadInput
    from crowdml.core.files import writable, write_whole

    kind = to.suffix.removeprefix(".")
    if kind not in ("safetensors", "onnx"):
        raise BadInput(f"{to} has no known ending for a model", hint="use .safetensors or .onnx")
    writable(to)
    write_whole(to, _operator(server, home, ca).fetch("GET", f"/v1/tasks/{name}/model?format={kind}").content)
    output.say(f"model: {to}")


@app.command()
def leak(
    name: Name,
    audit: Annotated[Path, typer.Argument(help="What `crowdml audit TASK.toml --json FILE` has written.")],
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """Show owners of a sliced task what your leak meter has read, with the date.

    The page of the task then says which share of labels a member of a group reads from the sums that it is sent, beside
    chance. Of several pieces the one counts that tells most.
    """
    found = read_leak(audit)
    _operator(server, home, ca).ask("POST", f"/v1/tasks/{name}/leak", found)
    output.say(f"the page of {name} says: {found['right']:.0%} of labels read, {found['chance']:.0%} by chance")


@app.command()
def devices(name: Name, server: Server = None, home: Home = None, ca: Ca = None, json: Json = False) -> None:
    """List the devices of a task: names given by the server, nothing about owners."""
    found = _operator(server, home, ca).ask("GET", f"/v1/tasks/{name}/devices")["devices"]
    _print_table(found, ("device", "slot", "check_ins"), json)


@app.command()
def revoke(
    name: Name,
    device: Annotated[str, typer.Argument(help="Name of the device, as `crowdml task devices` lists it.")],
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
) -> None:
    """Take a device's token away, at once: it can send nothing more."""
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

    A link holds a secret that is good for one device: hand it over so that nobody else can read it.
    """
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


def _operator(server: str | None, home: Path | None, ca: Path | None, *, public: bool = False) -> Operator:
    from crowdml.cli.operator import Operator

    return Operator(server, home, ca, public=public)


def _move(name: str, state: str, server: str | None, home: Path | None, ca: Path | None) -> None:
    made = _operator(server, home, ca).ask("PATCH", f"/v1/tasks/{name}", {"state": state})
    output.say(f"{name} is {STATES[made['state']]}")
    if made["state"] == "stopped":
        output.say(f"its model: crowdml task export {name} --output {name}.safetensors")


def _print_task(found: dict[str, Any], as_json: bool) -> None:
    """Print how a task stands, a line for each fact, wrapped to the width of the terminal."""
    if as_json:
        output.write_json(found, Path("-"))
        return
    width = max(40, shutil.get_terminal_size().columns - _WIDTH - 2)
    for name, value in _lines(found).items():
        lines = textwrap.wrap(str(value), width, break_long_words=False, break_on_hyphens=False) or ["-"]
        for at, line in enumerate(lines):
            print(f"{'' if at else name:{_WIDTH}} {line}")


def _lines(found: dict[str, Any]) -> dict[str, Any]:
    from crowdml.data.data_section import DataSettings
    from crowdml.task.recent_error import RecentError
    from crowdml.wire import SignedTask

    reason = f" ({found['reason']})" if found["reason"] else ""
    shown = {"task": found["task"], "objective": found["objective"], "state": STATES[found["state"]] + reason}
    if found["recent_error"]:
        shown["recent error"] = RecentError(**found["recent_error"]).words()
        # Noise can carry a small error below nothing, which would only puzzle.
        so_far = min(max(found["estimated_error"], 0.0), 1.0)
        shown["error so far"] = f"{so_far:.2f} over all check-ins since the beginning"
    else:
        shown["recent error"] = "not known: no counts yet, or none are sent"
    if found["averaging"]:
        shown["averaging"] = ", ".join(f"{name} {value}" for name, value in found["averaging"].items())
    names = {"check_ins": "check-ins", "task_hash": "signed task"}
    if found["validation_error"] is not None:
        shown["on public rows"] = f"error {found['validation_error']:.2f}"
    shown |= {names.get(name, name.replace("_", " ")): value for name, value in found.items() if name not in _HIDDEN}
    # The server's own words about its own task: nothing is trusted here that a device would not check again.
    content = SignedTask.from_json(found["signed_task"]).open().definition["data"]
    data = DataSettings.model_validate(content, by_alias=True, by_name=False)
    if data.columns or data.id:
        shown["a row"] = data.row_in_words
    if data.predicted.error_in_words:
        shown |= {"predicts": data.predicted.described, "an error is": data.predicted.error_in_words}
    return shown


def read_leak(path: Path) -> dict[str, Any]:
    """Return the reading of sums that tells most, of what `crowdml audit` has written; refuse a file that has none."""
    from json import loads

    from crowdml.core import BadInput

    made_by = "crowdml audit TASK.toml --json FILE, of a slicenet task"
    try:
        told = loads(path.read_text(encoding="utf-8"))
        read = [
            (float(reading["right"]), float(reading["chance"]))
            for reading in told["readings"]
            if str(reading["what"]).startswith("sums") and None not in (reading["right"], reading["chance"])
        ]
        own_rows = int(told["own_rows"])
        if not all(0 <= share <= 1 for pair in read for share in pair) or own_rows < 1:
            raise ValueError("shares that are none")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", hint=made_by) from None
    except (ValueError, KeyError, TypeError):
        read, own_rows = [], 0
    if not read:
        raise BadInput(f"{path} says nothing about sums that were read", hint=made_by)
    right, chance = max(read)
    return {"right": right, "chance": chance, "own_rows": own_rows}


def _print_table(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    """Print records as a table of the given columns, or as JSON with all of them."""
    if as_json:
        output.write_json({"rows": rows}, Path("-"))
        return
    names = [column.replace("_", "-") for column in columns]
    output.show(output.table(None, names, [[row[column] for column in columns] for row in rows]))
