"""The device: gathers rows, checks out, works, charges its ledger, and only then checks in.

    resend what is unsettled ─► gather ─► check out ─► device_step ─► sanitise ─► encode ─► charge ─► send ─► settle

It is the live twin of the step-by-step simulation: the same functions of the same algorithm, with rows, time, entropy
and storage of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from crowdml.core import BadInput, GridCoins, record
from crowdml.core.errors import BudgetExhausted, TaskClosed, TermsViolated
from crowdml.core.ops import Tree
from crowdml.device import joining
from crowdml.device.answers import Answer, waiting
from crowdml.device.batches import AskChanged, Draw, Gathered, Gatherer, os_words
from crowdml.device.calls import CheckOut
from crowdml.device.coins import DeviceCoins
from crowdml.device.connection import Connection
from crowdml.device.ending import close_in_public
from crowdml.device.home import Home, Member, default_home
from crowdml.device.ledger_store import Unsettled
from crowdml.device.lost_numbers import require_numbering
from crowdml.device.memory import Memory
from crowdml.device.row_contract import Contract
from crowdml.device.rows import RowBuffer, Warn, source_of
from crowdml.device.sending import RESYNC, Outcome, Sender
from crowdml.device.sums import SumTaker
from crowdml.device.terms import build, require_meaning_to, terms_of
from crowdml.device.trust import SheetChanged, is_announced, is_restored, require_plausible, require_whole
from crowdml.privacy import Promise
from crowdml.protocol import Layout, Sheet, message
from crowdml.protocol.check_in_key import check_in_key

Watch = Callable[[Outcome], None]


@record
class Summary:
    """What a run of a device came to.

    Attributes:
        releases: Charged in this run.
        used: Of these, how many the server used; what was left over from before and arrived now counts too.
        refused: How many it refused.
        reason: Why the run ended.
        spent: ε spent so far, in all runs, by the unit that is worst off.
    """

    releases: int
    used: int
    refused: int
    reason: str
    spent: Promise


class Device:
    """A device that has joined a task.

        with crowdml.Device(home) as device:
            device.run("rows.csv")

    Args:
        home: Its folder; not given: the default one.
        task: Which task, if it has joined several.
        confirm: Asked when the operator has restored the task from a backup: whether to go on. Not given: only where
            the owner has accepted that in advance.
        rows_changed: Asked before anything is sent, when most rows of a file are new and many of last time are gone:
            whether they are other samples indeed. Not given: no, and the device stops.
        tell: Called with one line about every wait.
        warn: Called with one line about what the owner should know of the rows, or of a restore.
        patience_s: How long to go on asking when nobody answers; None: for ever.
        connect: For tests: makes the connection, given server and certificates.
        coins: For tests: makes the coins of a release; otherwise the operating system's entropy.
        draw: For tests: random words that choose rows.
        make_key: For tests: makes the idempotency key of a check-in that started from a version.
        silent: For tests: at which stage of a masked sum the device falls silent, by version.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        task: str | None = None,
        *,
        confirm: Callable[[Sheet], bool] | None = None,
        rows_changed: AskChanged = lambda change: False,
        tell: Callable[[str], None] | None = None,
        warn: Warn = lambda line: None,
        patience_s: float | None = None,
        connect: Callable[..., Connection] = Connection,
        coins: Callable[[], GridCoins] = DeviceCoins,
        draw: Draw = os_words,
        make_key: Callable[[int], str] = check_in_key,
        silent: Callable[[int, str], bool] = lambda version, stage: False,
    ) -> None:
        """Open the folder, verify the ledger, and build the task from the sheet that was accepted."""
        self.home = Home(default_home() if home is None else home)
        self._confirm, self._coins, self._draw, self._make_key = confirm, coins, draw, make_key
        self._rows_changed, self._warn = rows_changed, warn
        self._busy_version, self._silent = -1, silent
        with ExitStack() as stack:
            stack.enter_context(self.home.lock())
            self.member = _require_joined(self.home.member(task))
            self._sheet = self.home.sheet(self.member)
            self.live = build(self._sheet, self.member.epsilon)
            self.ledger = stack.enter_context(self.home.ledger())
            self._require_terms()
            self.memory = Memory(self.home.memory_path(self.member))
            stack.callback(self.memory.close)
            require_numbering(self.ledger, self.member, self.memory, self.home.memory_path(self.member))
            self.calls = stack.enter_context(joining.connected(self.member, connect, tell=tell, patience_s=patience_s))
            self._state_layout = Layout({"device": self.live.algorithm.device_init()})
            self._sums = self._sum_taker() if self.live.masked else None
            self._open = stack.pop_all()

    join = staticmethod(joining.join)
    """Join the task of an invite; see `crowdml.device.joining.join`."""

    def __enter__(self) -> Device:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Let go of files and network; whatever is unsettled is sent next time."""
        self._open.close()

    @property
    def contract(self) -> Contract:
        """What a row must look like."""
        return Contract.of(self.live.task.data)

    @property
    def releases(self) -> int:
        """Releases charged so far."""
        return self.ledger.chain.tasks[self.member.account].releases

    def buffer(self) -> RowBuffer:
        """Make a bounded buffer that another thread can fill while the device runs."""
        return RowBuffer(self.live.algorithm.buffer)

    def run(
        self, rows: Any, *, releases: int | None = None, watch: Watch | None = None, label_column: str = "label"
    ) -> Summary:
        """Take part until the task ends, the rows end, or the ledger is exhausted.

        Args:
            rows: A file, arrays, pairs, a function, an iterator or a buffer; see `crowdml.device.rows`.
            releases: End after so many releases.
            watch: Called after every check-in.
            label_column: Which column of a CSV file holds the labels.
        """
        gatherer = self._gatherer(rows, label_column)
        begun, outcomes = self.releases, list[Outcome]()

        def note(outcome: Outcome) -> None:
            outcomes.append(outcome)
            if watch:
                watch(outcome)

        try:
            reason = self._work(gatherer, None if releases is None else begun + releases, note)
        except TaskClosed as error:
            close_in_public(self.ledger, self.member.account)
            reason = str(error)
        except BudgetExhausted as error:
            reason = str(error)
        return Summary(
            releases=self.releases - begun,
            used=sum(own.status != "refused" for own in outcomes),
            refused=sum(own.status == "refused" for own in outcomes),
            reason=reason,
            spent=self.ledger.spent(self.member.account),
        )

    def _work(self, gatherer: Gatherer, until: int | None, note: Watch) -> str:
        """Go round until there is a reason to end."""
        gatherer.prepare()
        self._meet()
        for own in self._sender().unsettled():
            note(self._across_restores(partial(self._resend, own)))
        refusals = 0
        while until is None or self.releases < until:
            self._require_left()
            gathered = gatherer.gather()
            if gathered is None:
                return "the rows have ended" + _left_out(gatherer.left_out)
            self._require_meaning(gathered)
            outcome = self._across_restores(partial(self._release, gathered))
            note(outcome)
            self._close_after_last()
            refusals = refusals + 1 if outcome.status == "refused" else 0
            if refusals:
                self.calls.connection.pause(None, refusals, f"a check-in was refused ({outcome.code})")
        return "as many releases as asked for"

    def _resend(self, own: Unsettled) -> Outcome:
        return self._sums.resend(own) if self._sums else self._sender().send(own)

    def _across_restores(self, send: Callable[[], Outcome]) -> Outcome:
        """Send something; if the task was restored while it was on its way, settle it under the new sheet."""
        try:
            return send()
        except SheetChanged as error:
            self._require_sheet(error.sheet)
            return self._resend(self._sender().unsettled()[0])

    def _release(self, gathered: Gathered) -> Outcome:
        """Make one release and send it."""
        if self._sums is None:
            return self._contribute(self._check_out(), gathered)
        while True:
            outcome = self._sums.contribute(self._check_out(), gathered, self._state(), self._encode_state)
            if outcome is not None:
                return outcome

    def _contribute(self, checked_out: CheckOut, gathered: Gathered) -> Outcome:
        """Work on a check-out, charge what comes of it, and send that."""
        body, state = self._sanitised(checked_out, gathered)
        key = self._make_key(checked_out.version)
        self.memory.expect(key, checked_out.version, state)
        account = self.member.account
        samples, numbering, version = gathered.samples, gathered.numbering, checked_out.version
        self.ledger.charge(account, key, body, samples=samples, version=version, numbering=numbering)
        outcome = self._sender().send(Unsettled(key=key, task=account, body=body))
        if outcome.code == "already-in-round":
            self._busy_version = checked_out.version
        return outcome

    def _sanitised(self, checked_out: CheckOut, gathered: Gathered) -> tuple[bytes, bytes]:
        """Return the final bytes of a check-in, and the state that follows if it is used."""
        algorithm, coins = self.live.algorithm, self._coins()
        release, state = algorithm.device_step(checked_out.content, self._state(), gathered.batch, coins)
        check_in = algorithm.sanitise(release, coins)
        body = self.live.messages.check_in.encode(message(checked_out.version, check_in))
        return body, self._encode_state(state)

    def _encode_state(self, state: Tree) -> bytes:
        return self._state_layout.encode({"device": state})

    def _state(self) -> Tree:
        stored = self.memory.state()
        return self.live.algorithm.device_init() if stored is None else self._state_layout.decode(stored)["device"]

    def _check_out(self) -> CheckOut:
        """Ask for parameters until there are some for this device; refuse what the owner did not accept."""
        tries, last = 0, ""
        while True:
            found = self.calls.check_out(self.live.messages.check_out)
            if isinstance(found, Answer):
                why = waiting(found)
                tries, last = (tries + 1 if why == last else 1), why
                self.calls.connection.pause(found.retry_after_s, tries, why)
                continue
            self._require_sheet(found.sheet)
            require_plausible(self.live, found.version)
            if found.version < self.memory.version:
                raise TermsViolated(
                    f"the server shows version {found.version}, but had {self.memory.version} before: it was set back"
                    f"\n  {RESYNC}"
                )
            if self.live.algorithm.visit and found.version <= max(self.memory.contributed, self._busy_version):
                why = "the round is not over: this device has done its part, and waits for the others"
                tries, last = (tries + 1 if why == last else 1), why
                self.calls.connection.pause(None, tries, why)
                continue
            return found

    def _meet(self) -> None:
        """Compare what the server keeps of this device with its ledger."""
        me = self.calls.me()
        self._require_sheet(me.sheet)
        require_whole(self.ledger, self.member, me.check_ins)

    def _require_sheet(self, sheet: str) -> None:
        """Refuse another sheet than the one accepted, unless it is the same task after a restore.

        The owner has confirmed that: now, or in advance for restores of which the operator's signed notice tells.
        """
        if sheet == self.member.sheet:
            return
        signed = self.calls.signed_sheet()
        new = signed.open(expected_key=self.member.operator)
        if signed.hash != sheet or not is_restored(self._sheet, new):
            raise TermsViolated(f"{self.member.task}: the server's sheet is not the one that the owner accepted")
        in_advance = self.member.accept_restores and is_announced(self.live, self._sheet, new)
        if not in_advance and (self._confirm is None or not self._confirm(new)):
            raise TermsViolated(
                f"{self.member.task}: the operator restored it from a backup (incarnation {new.incarnation}); terms "
                "and ledger stay, but the owner must confirm\n  crowdml device run --accept-restored …, or in advance "
                "for this and later ones: crowdml device restores --accept"
            )
        self.ledger.renew(self.member.account, signed.hash, terms_of(self.live))
        # Before the member names the new sheet: after a crash in between all of this is done again.
        self.memory.begin_again(new.restored.version if new.restored else -1)
        self.member = self.member.model_copy(update={"sheet": signed.hash, "incarnation": new.incarnation})
        self.home.store(self.member, signed)
        self._sheet, self._busy_version = new, -1
        self._sums = self._sum_taker() if self.live.masked else None
        shown = f", version {new.restored.version}" if new.restored else ""
        self._warn(
            f"the operator restored {self.member.task} from a backup (incarnation {new.incarnation}{shown}); the owner "
            f"accepted that{' in advance' if in_advance else ''}, and the ledger goes on"
        )

    def _require_terms(self) -> None:
        terms = terms_of(self.live)
        # After a crash in the middle of a renewal the ledger may already name the sheet that the member will.
        known = self.ledger.chain.tasks.get(self.member.account)
        if known is None or not self.ledger.chain.agrees(self.member.account, known.sheet, terms):
            raise TermsViolated(f"{self.member.task}: the ledger has not accepted the terms of this sheet")

    def _require_left(self) -> None:
        """End before any work is done if the terms do not cover another release."""
        if self._all_made:
            raise BudgetExhausted(f"all {self.releases} releases of this device are made")
        if self.ledger.chain.tasks[self.member.account].closed:
            raise BudgetExhausted(f"{self.member.task} has ended, and this device's ledger is closed for it")

    @property
    def _all_made(self) -> bool:
        """Whether the terms cover no other release, whatever rows the device has."""
        limit, spending = self.live.task.stop.max_releases, self.ledger.chain.tasks[self.member.account]
        by_device = spending.terms.unit == "device" and spending.charged >= spending.terms.uses
        return by_device or (limit is not None and spending.releases >= limit)

    def _close_after_last(self) -> None:
        """Close the task after the last release of its terms, once the server has answered it."""
        if self._all_made and not self._sender().unsettled():
            close_in_public(self.ledger, self.member.account)

    def _require_meaning(self, gathered: Gathered) -> None:
        """Refuse, before anything is sent, a δ that says nothing to as many samples as this device has numbered."""
        if self.live.task.privacy.unit == "sample":
            numbered = max(self.memory.samples.following(), int(gathered.samples.max(initial=-1)) + 1)
            require_meaning_to(self.live, numbered)

    def _gatherer(self, rows: Any, label_column: str) -> Gatherer:
        own = self.ledger.chain.tasks[self.member.account]
        return Gatherer(
            source_of(rows, self.contract, label_column, self._warn),
            self.live,
            self.memory,
            uses=own.uses,
            most_uses=own.terms.uses if own.terms.unit == "sample" else None,
            draw=self._draw,
            rows_changed=self._rows_changed,
            warn=self._warn,
        )

    def _sum_taker(self) -> SumTaker:
        return SumTaker(
            self.live, self.member, self.calls, self.ledger, self.memory, self._coins, self._make_key, self._silent
        )

    def _sender(self) -> Sender:
        return Sender(self.calls, self.member, self.ledger, self.memory, self.live)


def _left_out(count: int) -> str:
    return f"; {count} were left out: used as often as promised before, or twice in a batch" if count else ""


def _require_joined(member: Member) -> Member:
    if member.state == "withdrawn":
        raise BadInput(f"this device has withdrawn from {member.task}")
    if member.state == "joining":
        raise BadInput(
            f"this device has not finished joining {member.task}", hint="use the invite again: crowdml device join URL"
        )
    return member
