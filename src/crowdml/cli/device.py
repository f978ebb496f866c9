"""crowdml device: take part in a task with your own rows, and see what that costs of your privacy budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from crowdml.cli import device_output as output
from crowdml.cli.command_groups import command_group, device_home, device_place, one_blas_thread, same_device

if TYPE_CHECKING:
    from crowdml.device.joining import Offer
    from crowdml.device.rows.sample_numbers import RowsChanged
    from crowdml.device.sending import Outcome
    from crowdml.wire import TaskDocument

app = command_group(
    "Take part in a task: your rows stay here, and a ledger keeps your privacy budget.",
    epilog="Start with the link an operator gave you: crowdml device join 'https://…'",
)

LabelColumn = Annotated[
    str | None,
    typer.Option(
        help="The column of a file that holds the labels, if it is not the one that the task names: label, where the "
        "task names none, and for a number its name."
    ),
]
HomeOption = Annotated[Path | None, typer.Option("--home", help="The device's folder, instead of the usual place.")]
NameOption = Annotated[str, typer.Option("--name", help="Which of your devices, in the usual place.")]
TaskOption = Annotated[str | None, typer.Option("--task", help="Which task, if the device has joined several.")]
app.callback()(one_blas_thread)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


@app.command()
def join(
    url: Annotated[str, typer.Argument(help="The invite, quoted: it holds signs that a shell would touch.")],
    home: HomeOption = None,
    name: NameOption = "default",
    yes: Annotated[bool, typer.Option("--yes", help="Accept the terms without being asked.")] = False,
    accept_no_guarantee: Annotated[
        bool, typer.Option("--accept-no-guarantee", help="Accept also a task that promises nothing.")
    ] = False,
    epsilon: Annotated[float | None, typer.Option(help="Your own ε, where the task leaves a choice.")] = None,
    cap_epsilon: Annotated[
        float | None, typer.Option(help="Your limit for ε over all tasks of this device; kept for later ones.")
    ] = None,
    cap_delta: Annotated[float | None, typer.Option(help="The same for δ.")] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="The file you will run with: terms that say nothing to so many rows are refused at once."),
    ] = None,
    label_column: LabelColumn = None,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust instead of the usual ones.")] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Allow http beyond this machine: others can read along.")
    ] = False,
    accept_restores: Annotated[
        bool,
        typer.Option(
            "--accept-restores",
            help="Accept in advance that the operator restores the task from a backup and signs a notice of it: same "
            "terms, and your ledger goes on. For devices that nobody attends to.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Join a task by the link that its operator gave you.

    The signed task is checked against the link. Then you see, worked out on this device, what would leave it and
    what is promised; nothing is sent about you before you accept. If the connection breaks, type the same again.
    """
    from crowdml.device import joining

    def accept(offer: Offer) -> bool:
        if not quiet:
            output.show(offer)
            output.print_cap_advice(offer, place, (cap_epsilon, cap_delta), same_device(home, name))
        return yes or output.ask("Take part on these terms?", "--yes")

    def without_guarantee(offer: Offer) -> bool:
        return accept_no_guarantee or (not yes and output.ask(output.NO_GUARANTEE, "--accept-no-guarantee"))

    place = device_place(home, name)
    with output.interruptible("type the same again to go on"):
        member = joining.join(
            url,
            place,
            accept=accept,
            accept_no_guarantee=without_guarantee,
            epsilon=epsilon,
            cap=(cap_epsilon, cap_delta),
            rows=rows,
            label_column=label_column,
            ca=None if ca is None else ca.resolve(),
            plain_http=plain_http,
            accept_restores=accept_restores,
            tell=None if quiet else output.Progress().tell,
        )
    if not quiet:
        typer.echo(f"joined {member.task} as {member.device}; this device lives in {place}")
        typer.echo(f"next: crowdml device run --rows FILE{same_device(home, name)}")


@app.command()
def run(
    rows: Annotated[
        str,
        typer.Option(
            help="A .csv or .parquet file (labels by name), an .npz file (arrays rows and labels), or - for JSON lines "
            'on standard input: {"row": [0.5, 1.0], "label": "walking"}; targets and "target" for a number. '
            "Columns that the task names are found by name."
        ),
    ],
    home: HomeOption = None,
    name: NameOption = "default",
    task: TaskOption = None,
    label_column: LabelColumn = None,
    once: Annotated[bool, typer.Option("--once", help="End after one release.")] = False,
    releases: Annotated[int | None, typer.Option(min=1, help="End after so many releases.")] = None,
    accept_restored: Annotated[
        bool, typer.Option("--accept-restored", help="Go on if the operator restored the task from a backup.")
    ] = False,
    rows_changed: Annotated[
        Literal["ask", "accept", "stop"],
        typer.Option(
            help="When most rows of a file are new and many of last time are gone: ask whether they are other samples "
            "(where nobody can answer: stop), take them as such, or stop."
        ),
    ] = "ask",
    unmetered: Annotated[
        bool, typer.Option("--unmetered", help="Wait before every contact until the network is not metered.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line per check-in, and one at the end.")] = False,
) -> None:
    """Learn with your rows until the task ends or your privacy budget is spent.

    Every release is charged to the ledger, with its final bytes, before it is sent. Ctrl-C, a crash or a power cut lose
    nothing: started again, the device sends the same bytes again and goes on.
    """
    from crowdml.core import BadInput
    from crowdml.device.device import Device
    from crowdml.device.metered import is_metered

    if once and releases is not None:
        raise BadInput("--once and --releases exclude each other")

    def confirm(document: TaskDocument) -> bool:
        question = f"{document.task} was restored from a backup; terms and ledger stay. Go on?"
        return accept_restored or (output.can_ask() and output.ask(question, "--accept-restored"))

    def other_samples(change: RowsChanged) -> bool:
        if rows_changed == "ask" and output.can_ask() and rows != "-":
            return output.ask(output.changed(change), "--rows-changed")
        return rows_changed == "accept"

    progress = output.JsonLines() if json else output.Progress()
    with output.interruptible("nothing is lost; start the device again to go on"):
        with Device(
            device_place(home, name),
            task,
            confirm=confirm,
            rows_changed=other_samples,
            tell=progress.tell,
            warn=output.warn,
            metered=is_metered if unmetered else None,
        ) as device:

            def watch(outcome: Outcome) -> None:
                progress.update(device, outcome)

            wanted = 1 if once else releases
            progress.end(device, device.run(rows, releases=wanted, watch=watch, label_column=label_column))


@app.command()
def personal(
    rows: Annotated[str, typer.Option(help="A .csv, .npz or .parquet file of your own rows, as for run.")],
    out: Annotated[
        Path, typer.Option("-o", "--output", help="Where to write your model: .safetensors, or .onnx for other tools.")
    ],
    home: HomeOption = None,
    name: NameOption = "default",
    task: TaskOption = None,
    label_column: LabelColumn = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Steps on your rows; 0: the common model as it is; not given: 20, or the model that ditto keeps here.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows per step.")] = 10,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 0.1,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Part of your rows that is kept back to compare both models on.")
    ] = 0.2,
    json: JsonOption = False,
) -> None:
    """Make a model of your own: the common one, and some steps on your rows.

    Where the task is one of ditto's, your device has learnt a model of its own all along: without --steps that one is
    written, and compared with the common one on all rows of the file.

    The server gives the common model to every device of the task, at any time. Nothing is sent and nothing is charged;
    the file is for you alone, since your steps have no noise.
    """
    from crowdml.algorithms.solitary import PersonalSettings
    from crowdml.core import BadInput
    from crowdml.core.files import writable
    from crowdml.device.personal_model import keeps_model, personal_of
    from crowdml.task.model_files import require_model_kind

    require_model_kind(out)
    writable(out)
    if rate <= 0:
        raise BadInput(f"a rate of {rate:g} teaches nothing", where="--rate", hint="such as 0.1")
    place = device_home(home, name)
    kept = steps is None and keeps_model(place, task)
    settings = None if kept else PersonalSettings(steps=20 if steps is None else steps, batch=batch, rate=rate)
    model = personal_of(
        place, rows, settings, task=task, held_out=held_out, label_column=label_column, warn=output.warn
    )
    model.save(out, place.document(place.member(task)).arrays)
    output.print_personal(model, out, json)


@app.command()
def status(
    home: HomeOption = None,
    name: NameOption = "default",
    json: JsonOption = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the server.")] = False,
) -> None:
    """Show which tasks the device has joined, what it has spent, and what the server says."""
    from crowdml.device.owner_reports import report

    output.print_status(report(device_home(home, name), ask=not offline), json)


@app.command()
def ledger(
    home: HomeOption = None,
    name: NameOption = "default",
    json: JsonOption = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with the server's receipts, too; 2 if they disagree.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it here (.png, .svg or .pdf).")] = None,
) -> None:
    """Show your privacy budget: what was promised, what every release has spent of it, and what is left.

    The ledger is this device's own record, an entry for each release before it is sent, and it refuses what would go
    beyond the promise. Reading it verifies the whole chain of hashes; a ledger that was changed is refused.
    """
    from crowdml.device.owner_reports import ledger_report

    output.print_ledger(found := ledger_report(device_home(home, name), compare=verify), json)
    if plot:
        output.draw_budget(found, plot)


@app.command()
def cap(
    home: HomeOption = None,
    name: NameOption = "default",
    epsilon: Annotated[float | None, typer.Option(help="ε of all tasks together at most.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of all tasks together at most.")] = None,
    json: JsonOption = False,
) -> None:
    """Show or set your privacy budget for all tasks of this device together.

    A task that would go beyond it is refused when the device joins. What is promised already stays promised.
    """
    from crowdml.device.owner_reports import cap_report

    place = device_home(home, name)
    if epsilon is not None or delta is not None:
        with place.lock():
            place.limit(epsilon, delta)
    output.print_cap(cap_report(place), json)


@app.command()
def renumber(
    home: HomeOption = None,
    name: NameOption = "default",
    task: TaskOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Go on after the file with the numbers of samples was lost.

    Without it nobody can tell how often which row was used. So every sample, old or new, counts from now on as used as
    often as the one that was used most; putting the lost file back is better.
    """
    from crowdml.device import task_memory

    place = device_home(home, name)
    member = place.member(task)
    question = f"Count every sample of {member.task} as used as often as the most used one? This cannot be undone."
    if not yes and not output.ask(question, "--yes"):
        raise typer.Exit(1)
    most = task_memory.renumber(place, member)
    typer.echo(f"{member.task}: every sample counts as used {most} times from now on")


@app.command()
def restores(
    home: HomeOption = None,
    name: NameOption = "default",
    task: TaskOption = None,
    accept: Annotated[
        bool | None,
        typer.Option(
            "--accept/--ask",
            help="Accept in advance that the operator restores the task and signs a notice of it, or be asked every "
            "time. Neither: show what holds.",
        ),
    ] = None,
) -> None:
    """Say what happens when the operator restores the task from a backup: go on, or ask you.

    A restore sets the common model back; what your device contributed since the backup is lost and stays charged. The
    terms must be the same, the notice must carry the operator's signature, and your ledger goes on counting.
    """
    place = device_home(home, name)
    member = place.member(task)
    if accept is not None:
        with place.lock():
            member = place.accept_restores(member, accept)
    told = "accepted in advance, if the operator signed a notice of it" if member.accept_restores else "you are asked"
    typer.echo(f"{member.task}: after a restore {told}")


@app.command()
def resync(
    home: HomeOption = None,
    name: NameOption = "default",
    task: TaskOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Believe the server again after it showed less than before: the way back for a device that refuses to go on.

    Ask the operator first what happened. A device that begins again gives up, once, the proof that nothing was set
    back; its ledger stays as it is, and charges every release as before.
    """
    from crowdml.device.restores import Gap
    from crowdml.device.restores import resync as run

    def confirm(gap: Gap) -> bool:
        typer.echo(
            f"This device has seen version {gap.version_seen} and {gap.receipts_seen} receipts; the server shows "
            f"version {gap.version} and {gap.receipts}."
        )
        typer.echo("Either it once named a version that never was, or an old database was put back.")
        return yes or output.ask("Begin again from what it shows? Your ledger stays as it is.", "--yes")

    place = device_home(home, name)
    gap = run(place, place.member(task), confirm)
    told = "from now on nothing older is believed" if gap.went_back else "the server did not go back: nothing to do"
    typer.echo(f"version {gap.version}: {told}")


@app.command()
def withdraw(
    home: HomeOption = None,
    name: NameOption = "default",
    task: TaskOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Leave a task: the server erases what it keeps of this device, the ledger closes the task.

    What was released before cannot be taken back; the ledger goes on counting it.
    """
    from crowdml.device import joining

    place = device_home(home, name)
    member = place.member(task)
    if member.state == "withdrawn":
        typer.echo(f"this device has already withdrawn from {member.task}")
        return
    if not yes and not output.ask(f"Withdraw from {member.task}? This cannot be undone.", "--yes"):
        raise typer.Exit(1)
    known = joining.leave(place, member)
    typer.echo(f"withdrew from {member.task}" + ("" if known else "; the server no longer knew this device"))
