"""Joining a task: look at the signed sheet, let the owner decide, write it down, then enrol.

Nothing is taken from the server on trust. The invite names the operator's key and the sheet's hash; what the owner
reads is worked out on the device from the sheet itself; and the ledger has accepted the terms before the server hears
of it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from crowdml.algorithms.explanation import Explanation, explain
from crowdml.algorithms.live import LiveTask
from crowdml.core import BadInput, record
from crowdml.core.errors import CapReached, NotAuthorised, TaskClosed, TermsViolated
from crowdml.device.calls import Calls
from crowdml.device.connection import Connection
from crowdml.device.ending import close_ended
from crowdml.device.home import Home, Member, default_home
from crowdml.device.ledger_store import Ledger
from crowdml.device.memory import Memory
from crowdml.device.terms import build, count_rows, require_meaning_to, terms_of
from crowdml.protocol import Sheet, SignedSheet
from crowdml.protocol.joining import InviteLink
from crowdml.protocol.keys import SigningKey, fingerprint

PATIENCE_S = 5.0
"""How long to wait for the server of another task, asked whether that has ended."""


@record
class Offer:
    """What an invite offers, checked.

    Attributes:
        link: The invite.
        signed: The sheet as the operator signed it.
        sheet: What it says.
        live: The task, with the owner's ε if one was chosen.
        epsilon: The owner's own ε; None: the task's.
        state: State of the task, as the server says.
    """

    link: InviteLink
    signed: SignedSheet
    sheet: Sheet
    live: LiveTask
    epsilon: float | None
    state: str = "open"

    @property
    def guarantee(self) -> bool:
        """Whether anything is promised."""
        return self.live.plan.sound is not None

    def explain(self) -> Explanation:
        """Say in plain words what leaves the device and what is promised."""
        return explain(self.live.task)


def look(link: InviteLink, calls: Calls, epsilon: float | None = None) -> Offer:
    """Get the sheet of an invite and check it against what the invite says.

    Args:
        link: The invite.
        calls: To its server.
        epsilon: The owner's own ε, within the task's range.

    Raises:
        NotAuthorised: The sheet is not signed by the operator of the invite.
        TermsViolated: The server shows another sheet than the invite names.
        TaskClosed: The task has ended.
    """
    described = calls.described()
    if described.state == "stopped":
        why = f" ({described.reason})" if described.reason else ""
        raise TaskClosed(
            f"{link.task} has ended{why}: nobody can join it any more, and this device has sent nothing\n  ask the "
            "operator for an invite to another task"
        )
    signed = described.signed
    if signed.hash != link.sheet:
        raise TermsViolated("the server shows another sheet than the invite names: ask the operator for a new invite")
    sheet = signed.open(expected_key=link.key)
    if sheet.task != link.task:
        raise TermsViolated(f"the invite is for {link.task}, the sheet for {sheet.task}")
    return Offer(
        link=link, signed=signed, sheet=sheet, live=build(sheet, epsilon), epsilon=epsilon, state=described.state
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
    label_column: str = "label",
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
        label_column: Which column of a CSV file holds the labels.
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
            require_meaning_to(offer.live, count_rows(offer.live, rows, label_column))
        if not accept(offer):
            raise BadInput("the owner did not accept: this device has not joined")
        if not offer.guarantee and not accept_no_guarantee(offer):
            raise BadInput(
                f"{offer.sheet.task} gives no formal guarantee: what leaves the device carries no noise",
                hint="accept that too: --accept-no-guarantee",
            )
        home = Home(default_home() if place is None else place, make=True)
        stack.enter_context(home.lock())
        home.limit(*cap)
        member = enrol(offer, home, calls, ca=ca, plain_http=plain_http, connect=connect)
        return home.accept_restores(member, True) if accept_restores else member


def enrol(
    offer: Offer,
    home: Home,
    calls: Calls,
    *,
    ca: Path | None = None,
    plain_http: bool = False,
    connect: Callable[..., Connection] = Connection,
) -> Member:
    """Write down what the owner accepted, then use the invite. If the answer is lost, do it again: nothing is lost.

    Args:
        offer: What the owner accepted.
        home: The device's folder, locked.
        calls: To the server.
        ca: Certificates to trust, kept for later.
        plain_http: Whether http is used beyond this machine, kept for later.
        connect: For tests: makes connections to the servers of other tasks.
    """
    with home.ledger() as ledger:
        before = _member_of(offer, home)
        if before is not None and before.state == "joined" and not _is_gone(before, calls):
            return before
        account = before.account if before else _account(offer, home, ledger)
        known = before if before is not None and before.code == offer.link.code else None
        member = Member(
            account=account,
            server=offer.link.server,
            task=offer.link.task,
            operator=fingerprint(offer.signed.key),
            sheet=offer.signed.hash,
            incarnation=offer.sheet.incarnation,
            epsilon=offer.epsilon,
            # One key for one invite: the server gives its answer again to the key that used it.
            secret=known.secret if known else base64.b64encode(SigningKey.make().secret).decode(),
            state="joining",
            code=offer.link.code,
            ca=ca,
            plain_http=plain_http,
            accept_restores=before is not None and before.accept_restores,
        )
        terms = terms_of(offer.live)
        if account not in ledger.chain.tasks:
            _require_room(offer, home, ledger, account, connect)  # refuses before anything is written
        home.store(member, offer.signed)
        if account in ledger.chain.tasks and (before is None or before.incarnation < member.incarnation):
            ledger.renew(account, member.sheet, terms)
        ledger.accept(account, member.sheet, terms)
        enrolled = calls.enrol(offer.link, member.key)
        joined = member.model_copy(
            update={
                "state": "joined",
                "code": "",
                "device": enrolled.device,
                "token": enrolled.token,
                "slot": enrolled.slot,
            }
        )
        if known is None:
            # Another device for the server: what was not settled with the old one never will be.
            for own in ledger.unsettled():
                if own.task == account:
                    ledger.settle(own.key)
            memory = Memory(home.memory_path(member))
            memory.begin_again()
            memory.close()
        home.store(joined)
        return joined


def _require_room(offer: Offer, home: Home, ledger: Ledger, account: str, connect: Callable[..., Connection]) -> None:
    """Refuse terms that the owner's cap does not cover, also when tasks that have ended are counted as such."""
    sheet, terms = offer.signed.hash, terms_of(offer.live)
    try:
        ledger.chain.accept(account, sheet, terms)
    except CapReached:
        if not close_ended(home, ledger, lambda member: connected(member, connect, patience_s=PATIENCE_S)):
            raise
        ledger.chain.accept(account, sheet, terms)


def leave(home: Home, member: Member, connect: Callable[..., Connection] = Connection) -> bool:
    """Leave a task: the server erases this device, the ledger closes the task. False if the server did not know it."""
    with home.lock(), connected(member, connect) as calls:
        return _withdraw(home, member, calls)


def connected(member: Member, connect: Callable[..., Connection] = Connection, **options: Any) -> Calls:
    """Make the calls of a member to its server; close them after use."""
    options = {"patience_s": 60.0} | options
    connection = connect(member.server, ca=member.ca, plain_http=member.plain_http, **options)
    connection.token = member.token
    return Calls(connection, member.task)


def _withdraw(home: Home, member: Member, calls: Calls) -> bool:
    known = bool(member.token)
    try:
        if known:
            calls.withdraw()
    except NotAuthorised:
        known = False
    with home.ledger() as ledger:
        if member.account in ledger.chain.tasks and not ledger.chain.tasks[member.account].closed:
            ledger.close_task(member.account)
        for own in ledger.unsettled():
            if own.task == member.account:
                ledger.settle(own.key)
    home.store(member.model_copy(update={"state": "withdrawn", "token": "", "code": ""}))
    return known


def _member_of(offer: Offer, home: Home) -> Member | None:
    """Find what this device already has to do with the task."""
    key = fingerprint(offer.signed.key)
    for own in home.members():
        if (own.task, own.operator) == (offer.link.task, key):
            if own.state == "withdrawn":
                raise BadInput(
                    f"this device has withdrawn from {own.task}, and its ledger is closed for it",
                    hint="what it has spent stays spent, and what it had promised stays reserved",
                )
            return own
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

    An account of this very sheet that belongs to no folder is the task's own, whose folder was lost: what was spent
    stays spent, and the device goes on with it. So is one of that name and these terms, where the sheet is that of a
    restored task.
    """
    tasks, kept = ledger.chain.tasks, {member.account for member in home.members()}
    names, terms = (offer.link.task, f"{offer.link.task}@{offer.link.key[:12]}"), terms_of(offer.live)
    for account, spending in tasks.items():
        if account in kept:
            continue
        if spending.sheet == offer.signed.hash and spending.closed:
            raise BadInput(
                f"this device was in {offer.link.task} before, and its ledger is closed for it",
                hint="what it has spent stays spent",
            )
        restored = offer.sheet.incarnation > 1 and account in names and not spending.closed
        if spending.sheet == offer.signed.hash or (restored and ledger.chain.agrees(account, spending.sheet, terms)):
            return account
    return names[0] if names[0] not in tasks else names[1]
