"""Joining a task: look at the signed task, let the owner decide, write it down, then enrol.

Nothing is taken from the server on trust. The invite names the operator's key and the hash of the signed task; what the
owner reads is worked out on the device from the task itself; and the ledger has accepted the terms before the server
hears of it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from crowdml.core import BadInput, CrowdError, record
from crowdml.core.errors import CapReached, NotAuthorised, TaskClosed, TermsViolated
from crowdml.core.keys import SigningKey, fingerprint
from crowdml.device.calls import Calls, connected
from crowdml.device.device_home import Home, Member, build, default_home, terms_of
from crowdml.device.ledger_store import Ledger
from crowdml.device.rows.batches import require_meaning_to
from crowdml.device.rows.row_sources import KeptRows, source_of
from crowdml.device.server_connection import Connection
from crowdml.device.task_memory import Memory
from crowdml.task.explanation import Explanation, explain
from crowdml.task.live_task import LiveTask
from crowdml.wire import SignedTask, TaskDocument
from crowdml.wire.join_link import InviteLink

STOPPED = "stopped"
"""What a server calls a task that has ended for good."""
PATIENCE_S = 5.0
"""How long to wait for the server of another task, asked whether that has ended."""


@record
class Offer:
    """What an invite offers, checked.

    Attributes:
        link: The invite.
        signed: The task as the operator signed it.
        document: What it says.
        live: The task, with the owner's ε if one was chosen.
        epsilon: The owner's own ε; None: the task's.
        state: State of the task, as the server says.
    """

    link: InviteLink
    signed: SignedTask
    document: TaskDocument
    live: LiveTask
    epsilon: float | None
    state: str = "open"

    @property
    def guarantee(self) -> bool:
        """Whether anything is promised."""
        return self.live.plan.terms.promised

    def explain(self) -> Explanation:
        """Say in plain words what leaves the device and what is promised."""
        return explain(self.live.task)


def look(link: InviteLink, calls: Calls, epsilon: float | None = None) -> Offer:
    """Get the signed task of an invite and check it against what the invite says.

    Args:
        link: The invite.
        calls: To its server.
        epsilon: The owner's own ε, within the task's range.

    Raises:
        NotAuthorised: The task is not signed by the operator of the invite.
        TermsViolated: The server shows another signed task than the invite names.
        TaskClosed: The task has ended.
    """
    described = calls.described()
    if described.state == STOPPED:
        why = f" ({described.reason})" if described.reason else ""
        raise TaskClosed(
            f"{link.task} has ended{why}: nobody can join it any more, and this device has sent nothing\n  ask the "
            "operator for an invite to another task"
        )
    signed = described.signed
    if signed.hash != link.task_hash:
        raise TermsViolated(
            "the server shows another signed task than the invite names: ask the operator for a new invite"
        )
    document = signed.open(expected_key=link.key)
    if document.task != link.task:
        raise TermsViolated(f"the invite is for {link.task}, the signed task is {document.task}")
    return Offer(
        link=link,
        signed=signed,
        document=document,
        live=build(document, epsilon),
        epsilon=epsilon,
        state=described.state,
    )


def join(
    url: str,
    place: Path | str | None = None,
    *,
    accept: Callable[[Offer], bool],
    accept_no_guarantee: Callable[[Offer], bool] = lambda offer: False,
    epsilon: float | None = None,
    cap: tuple[float | None, float | None] = (None, None),
    rows: Any = None,
    label_column: str | None = None,
    ca: Path | None = None,
    plain_http: bool = False,
    accept_restores: bool = False,
    tell: Callable[[str], None] | None = None,
    patience_s: float | None = 60.0,
    connect: Callable[..., Connection] = Connection,
) -> Member:
    """Join the task of an invite; doing it again changes nothing.

    Args:
        url: The invite.
        place: The device's folder, made if it is not there; not given: the default one.
        accept: Shown what leaves the device and what is promised; says whether the owner accepts.
        accept_no_guarantee: Asked besides, where the task promises nothing.
        epsilon: The owner's own ε, where the task leaves a choice.
        cap: The owner's limits for ε and δ over all tasks, kept for later ones; None: as before.
        rows: The rows the device will run with, where they are known already: terms that say nothing to so many are
            refused at once, and otherwise when the device runs, before anything is sent.
        label_column: Which column of a file holds the labels; None: the one that the task names.
        ca: File of the certificates to trust instead of the usual ones.
        plain_http: Whether http may be used beyond this machine.
        accept_restores: Whether the owner accepts in advance that the operator restores the task from a backup and says
            so with a signature: same terms, and the ledger goes on.
        tell: Called with one line about every wait.
        patience_s: How long to go on asking when nobody answers; None: for ever.
        connect: For tests: makes the connection.
    """
    link = InviteLink.parse(url)
    with ExitStack() as stack:
        connection = connect(link.server, ca=ca, plain_http=plain_http, patience_s=patience_s, tell=tell)
        calls = stack.enter_context(Calls(connection, link.task))
        offer = look(link, calls, epsilon)
        if rows is not None:
            source = source_of(rows, offer.live.task.data.contract, label_column)
            if not isinstance(source, KeptRows):
                raise BadInput("a stream cannot be counted before it has passed", where="--rows", hint="give a file")
            require_meaning_to(offer.live, len(source.table()))
        if not accept(offer):
            raise BadInput("the owner did not accept: this device has not joined")
        if not offer.guarantee and not accept_no_guarantee(offer):
            raise BadInput(
                f"{offer.document.task} gives no formal guarantee: what leaves the device carries no noise",
                hint="accept that too: --accept-no-guarantee",
            )
        home = Home(default_home() if place is None else place, make=True)
        stack.enter_context(home.lock())
        home.limit(*cap)
        member = _enrol(offer, home, calls, ca, plain_http, connect)
        return home.accept_restores(member, True) if accept_restores else member


def _enrol(
    offer: Offer, home: Home, calls: Calls, ca: Path | None, plain_http: bool, connect: Callable[..., Connection]
) -> Member:
    """Write down what the owner accepted, then use the invite. If the answer is lost, do it again: nothing is lost."""
    with home.ledger() as ledger:
        before = _member_of(offer, home)
        if before is not None and before.state == "joined" and not _is_gone(before, calls):
            return before
        known = before if before is not None and before.code == offer.link.code else None
        member = Member(
            account=before.account if before else _account(offer, home, ledger),
            server=offer.link.server,
            task=offer.link.task,
            operator=fingerprint(offer.signed.key),
            task_hash=offer.signed.hash,
            incarnation=offer.document.incarnation,
            epsilon=offer.epsilon,
            # One key for one invite: the server gives its answer again to the key that used it.
            secret=known.secret if known else base64.b64encode(SigningKey.make().secret).decode(),
            state="joining",
            code=offer.link.code,
            ca=ca,
            plain_http=plain_http,
            accept_restores=before is not None and before.accept_restores,
        )
        _write_down(offer, home, ledger, member, before, connect)
        enrolled = calls.enrol(offer.link, member.key)
        if known is None:
            # Another device for the server: what was not settled with the old one never will be.
            _settle_all(ledger, member.account)
            with closing(Memory(home.memory_path(member))) as memory:
                memory.begin_again()
        joined = member.model_copy(update={"state": "joined", "code": "", **vars(enrolled)})
        home.store(joined)
        return joined


def _write_down(
    offer: Offer, home: Home, ledger: Ledger, member: Member, before: Member | None, connect: Callable[..., Connection]
) -> None:
    """Keep what was signed and who this device is, and have the ledger accept the terms, or renew them."""
    account, task_hash, terms = member.account, member.task_hash, terms_of(offer.live)
    accepted_before = account in ledger.chain.tasks
    if not accepted_before:
        # Refuses before anything is written, unless tasks that have ended make room.
        try:
            ledger.chain.accept(account, task_hash, terms)
        except CapReached:
            if not _close_ended(home, ledger, connect):
                raise
            ledger.chain.accept(account, task_hash, terms)
    elif differs := ledger.chain.difference(account, task_hash, terms):
        raise TermsViolated(f"{member.task}: {differs}")
    home.store(member, offer.signed)
    if accepted_before and (before is None or before.incarnation < member.incarnation):
        ledger.renew(account, task_hash, terms)
    ledger.accept(account, task_hash, terms)


def _close_ended(home: Home, ledger: Ledger, connect: Callable[..., Connection]) -> bool:
    """Ask the servers of all open tasks whether they have ended, and close those that have; tell whether any has.

    For an owner whose cap is full: a device that does not run does not hear of ends. A server that does not answer,
    or no longer knows this device, has announced nothing. A task that is closed takes no more charges, so a server
    gains nothing by announcing an end that is none: it loses a device.
    """
    closed = False
    for member in home.members():
        known = ledger.chain.tasks.get(member.account)
        if member.state != "joined" or known is None or known.closed:
            continue
        try:
            with connected(member, connect, patience_s=PATIENCE_S) as calls:
                ended = calls.me().state == STOPPED
        except CrowdError:
            continue
        if ended:
            ledger.close_task(member.account, public=True)
            closed = True
    return closed


def leave(home: Home, member: Member, connect: Callable[..., Connection] = Connection) -> bool:
    """Leave a task: the server erases this device, the ledger closes the task. False if the server did not know it."""
    known = bool(member.token)
    with home.lock(), connected(member, connect) as calls:
        try:
            if known:
                calls.withdraw()
        except NotAuthorised:
            known = False
        with home.ledger() as ledger:
            if member.account in ledger.chain.tasks:
                ledger.close_task(member.account)
            _settle_all(ledger, member.account)
        home.store(member.model_copy(update={"state": "withdrawn", "token": "", "code": ""}))
    return known


def _settle_all(ledger: Ledger, account: str) -> None:
    """Forget the bytes of a task's check-ins that were never answered; their charges stay."""
    for unsettled in ledger.unsettled():
        if unsettled.task == account:
            ledger.settle(unsettled.key)


def _member_of(offer: Offer, home: Home) -> Member | None:
    """Find what this device already has to do with the task."""
    key = fingerprint(offer.signed.key)
    for member in home.members():
        if (member.task, member.operator) == (offer.link.task, key):
            if member.state == "withdrawn":
                raise BadInput(
                    f"this device has withdrawn from {member.task}, and its ledger is closed for it",
                    hint="what it has spent stays spent, and what it had promised stays reserved",
                )
            return member
    return None


def _is_gone(member: Member, calls: Calls) -> bool:
    """Ask whether the server no longer knows this device."""
    calls.connection.token = member.token
    try:
        calls.me()
    except NotAuthorised:
        return True
    finally:
        calls.connection.token = ""
    return False


def _account(offer: Offer, home: Home, ledger: Ledger) -> str:
    """Name the task in the ledger: by its name, unless another operator's task has it.

    An account of this very task that belongs to no folder is the task's own, whose folder was lost: what was spent
    stays spent, and the device goes on with it. So is one of that name and these terms, where it is that of a
    restored task.
    """
    tasks, kept = ledger.chain.tasks, {member.account for member in home.members()}
    names, terms = (offer.link.task, f"{offer.link.task}@{offer.link.key[:12]}"), terms_of(offer.live)
    for account, spending in tasks.items():
        if account in kept:
            continue
        if spending.task_hash == offer.signed.hash and spending.closed:
            raise BadInput(
                f"this device was in {offer.link.task} before, and its ledger is closed for it",
                hint="what it has spent stays spent",
            )
        restored = offer.document.incarnation > 1 and account in names and not spending.closed
        if spending.task_hash == offer.signed.hash or (
            restored and ledger.chain.agrees(account, spending.task_hash, terms)
        ):
            return account
    return names[0] if names[0] not in tasks else names[1]
