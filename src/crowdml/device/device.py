"""The device: gathers rows, checks out, works, charges its ledger, and only then checks in.

    resend what is unsettled ─► gather ─► check out ─► device_step ─► sanitise ─► encode ─► charge ─► send ─► settle

It is the live twin of the step-by-step simulation: the same functions of the same algorithm, with rows, time, entropy
and storage of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdml.core import BadInput, GridCoins, record
from crowdml.core.blas_threads import one_blas_thread
from crowdml.core.errors import BudgetExhausted, TaskClosed, TermsViolated
from crowdml.data.rows.row_contract import Warn
from crowdml.device import joining
from crowdml.device.calls import CheckOut, connected
from crowdml.device.device_home import Home, Member, build, default_home, terms_of
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.device.ledger_store import Unsettled
from crowdml.device.restores import Confirm, follow_restore
from crowdml.device.rows.batches import AskChanged, Draw, Gathered, Gatherer, os_words, require_meaning_to
from crowdml.device.rows.row_sources import RowBuffer, source_of
from crowdml.device.secure_sums import SumTaker
from crowdml.device.sending import RESYNC, Outcome, Sender, TaskChanged, require_plausible, require_whole
from crowdml.device.server_connection import Connection
from crowdml.device.task_memory import Memory, require_numbering
from crowdml.privacy import Promise
from crowdml.task.user_models import require_present
from crowdml.wire import message
from crowdml.wire.messages import check_in_key

if TYPE_CHECKING:
    from crowdml.slicing.live.slice_terms import SliceTerms

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
        model: The model to work with, where the task learns one of its operator's own: a module of flax, equinox or
            PyTorch, or a `crowdml.JaxModel`. Its layout must be the one that was signed.
        patience_s: How long to go on asking when nobody answers; None: for ever.
        metered: Tells whether the network is metered (`crowdml.device.metered`): then the device waits before every
            contact until it is not. Not given: any network will do.
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
        confirm: Confirm | None = None,
        rows_changed: AskChanged = lambda change: False,
        tell: Callable[[str], None] | None = None,
        warn: Warn = lambda line: None,
        model: Any = None,
        patience_s: float | None = None,
        metered: Callable[[], bool] | None = None,
        connect: Callable[..., Connection] = Connection,
        coins: Callable[[], GridCoins] = DeviceCoins,
        draw: Draw = os_words,
        make_key: Callable[[int], str] = check_in_key,
        silent: Callable[[int, str], bool] = lambda version, stage: False,
    ) -> None:
        """Open the folder, verify the ledger, and build the task as it was accepted."""
        self.home = Home(default_home() if home is None else home)
        self._confirm, self._coins, self._draw, self._silent = confirm, coins, draw, silent
        self._rows_changed, self._warn, self._busy_version, self._tell = rows_changed, warn, -1, tell
        self._metered = metered
        with ExitStack() as stack:
            stack.enter_context(self.home.lock())
            member = _require_joined(self.home.member(task))
            self._document = self.home.document(member)
            self.live = build(self._document, member.epsilon, model)
            require_present(self.live.task)
            self.ledger = stack.enter_context(self.home.ledger())
            # After a crash in the middle of a renewal the ledger may already name the hash that the member will.
            known = self.ledger.chain.tasks.get(member.account)
            if known is None:
                raise TermsViolated(f"{member.task}: the ledger has not accepted the terms of this task")
            differs = self.ledger.chain.difference(member.account, known.task_hash, terms_of(self.live))
            if differs:
                raise TermsViolated(f"{member.task}: {differs}")
            path = self.home.memory_path(member)
            self.memory = stack.enter_context(closing(Memory(path)))
            require_numbering(self.ledger, member, self.memory, path)
            self.calls = stack.enter_context(connected(member, connect, tell=tell, patience_s=patience_s))
            self.sender = Sender(self.calls, member, self.ledger, self.memory, self.live, make_key)
            self._sums = self._sum_taker()
            self._open = stack.pop_all()

    join = staticmethod(joining.join)
    """Join the task of an invite; see `crowdml.device.joining.join`."""

    def __enter__(self) -> Device:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close at the end of a `with` block."""
        self.close()

    def close(self) -> None:
        """Let go of files and network; whatever is unsettled is sent next time."""
        self._open.close()

    @property
    def member(self) -> Member:
        """Who this device is."""
        return self.sender.member

    @property
    def releases(self) -> int:
        """Releases charged so far."""
        return self.sender.spending.releases

    def buffer(self) -> RowBuffer:
        """Make a bounded buffer that another thread can fill while the device runs."""
        return RowBuffer(self.live.algorithm.schedule.buffer)

    def run(
        self, rows: Any, *, releases: int | None = None, watch: Watch | None = None, label_column: str | None = None
    ) -> Summary:
        """Take part until the task ends, the rows end, or the ledger is exhausted.

        Args:
            rows: A file, arrays, pairs, a function, an iterator or a buffer; see `crowdml.device.rows.row_sources`.
            releases: End after so many releases.
            watch: Called after every check-in.
            label_column: Which column of a file holds the labels; None: the one that the task names.
        """
        if self.live.sliced is not None:
            return self._take_part(self.live.sliced, rows, label_column)
        gatherer = self._gatherer(rows, label_column)
        begun, outcomes = self.releases, list[Outcome]()

        def note(outcome: Outcome) -> None:
            outcomes.append(outcome)
            if watch:
                watch(outcome)

        try:
            reason = self._work(gatherer, None if releases is None else begun + releases, note)
        except TaskClosed as error:
            self.ledger.close_task(self.member.account, public=True)
            reason = str(error)
        except BudgetExhausted as error:
            reason = str(error)
        return Summary(
            releases=self.releases - begun,
            used=sum(outcome.status != "refused" for outcome in outcomes),
            refused=sum(outcome.status == "refused" for outcome in outcomes),
            reason=reason,
            spent=self.ledger.spent(self.member.account),
        )

    def _take_part(self, terms: SliceTerms, rows: Any, label_column: str | None) -> Summary:
        """Be a member of a group whose members hold pieces of one net, until all its passes are made."""
        # Only here: other tasks need no WebSocket.
        from crowdml.device.rows.kept_columns import ReleasedRows
        from crowdml.device.slice_member import SliceTaker, save_group_model

        begun = self.releases
        table, numbers, seen = self._gatherer(rows, label_column).all_rows()
        released = None
        if terms.cut is not None:
            require_meaning_to(self.live, max(self.memory.samples.following, len(table)))
            account, numbering = self.member.account, self.memory.samples.numbering
            released = ReleasedRows(
                terms.cut, self.memory.columns, self.ledger, account, seen, table.targets, numbers, numbering
            )
        try:
            self._await_network()
            self._meet()
            taker = SliceTaker(self.calls.connection, self.member, terms, self._tell, released=released)
            with one_blas_thread():
                found = taker.run(seen, table.targets)
            reason = found.reason
            if found.model is not None:
                save_group_model(self.home.folder(self.member), found.model, self.member.task)
                reason += "; the group's model is in this device's folder"
        except TaskClosed as error:
            self.ledger.close_task(self.member.account, public=True)
            reason = str(error)
        spent = self.ledger.spent(self.member.account)
        made = self.releases - begun
        return Summary(releases=made, used=made, refused=0, reason=reason, spent=spent)

    def _work(self, gatherer: Gatherer, until: int | None, note: Watch) -> str:
        """Go round until there is a reason to end."""
        gatherer.prepare()
        self._await_network()
        self._meet()
        for unsettled in self.sender.unsettled():
            note(self._across_restores(partial(self._resend, unsettled)))
        refusals = 0
        while until is None or self.releases < until:
            self._require_left()
            gathered = gatherer.gather()
            if gathered is None:
                return "the rows have ended" + _left_out(gatherer.left_out)
            # Before anything is sent: a δ that says nothing to as many samples as this device has numbered is refused.
            require_meaning_to(self.live, max(self.memory.samples.following, int(gathered.samples.max(initial=-1)) + 1))
            self._await_network()
            outcome = self._across_restores(partial(self._release, gathered))
            note(outcome)
            if self._all_made and not self.sender.unsettled():
                self.ledger.close_task(self.member.account, public=True)
            refusals = refusals + 1 if outcome.status == "refused" else 0
            if refusals:
                self.calls.connection.pause(None, refusals, f"a check-in was refused ({outcome.code})")
        return "as many releases as asked for"

    def _await_network(self) -> None:
        """Wait until what is sent costs nothing, where the owner wants that."""
        tries = 0
        while self._metered is not None and self._metered():
            tries += 1
            self.calls.connection.pause(None, tries, "the network is metered: this device waits for another")

    def _resend(self, unsettled: Unsettled) -> Outcome:
        return self._sums.resend(unsettled) if self._sums else self.sender.send(unsettled)

    def _across_restores(self, send: Callable[[], Outcome]) -> Outcome:
        """Send something; if the task was restored while it was on its way, settle it under what was signed anew."""
        try:
            return send()
        except TaskChanged as error:
            self._require_task(error.task_hash)
            return self._resend(self.sender.unsettled()[0])

    def _release(self, gathered: Gathered) -> Outcome:
        """Make one release and send it."""
        if self._sums is None:
            return self._contribute(self._check_out(), gathered)
        while True:
            checked_out = self._check_out()  # first: it may follow a restore, and then others take the sums
            outcome = self._sums.contribute(checked_out, gathered)
            if outcome is not None:
                return outcome

    def _contribute(self, checked_out: CheckOut, gathered: Gathered) -> Outcome:
        """Work on a check-out, charge what comes of it, and send that."""
        version, phase = checked_out.version, self.live.algorithm.at(checked_out.version)
        check_in, state = phase.contribute(checked_out.content, self.sender.state(), gathered.batch, self._coins())
        body = self.live.messages.check_in.encode(message(version, check_in))
        outcome = self.sender.send(self.sender.charge(version, body, state, gathered))
        if outcome.code == "already-in-round":
            self._busy_version = version
        return outcome

    def _check_out(self) -> CheckOut:
        """Ask for parameters until there are some for this device; refuse what the owner did not accept."""
        tries, last = 0, ""
        while True:
            found = self.calls.check_out(self.live.messages.check_out)
            if isinstance(found, CheckOut):
                self._require_task(found.task_hash)
                require_plausible(self.live, found.version)
                if found.version < self.memory.version:
                    raise TermsViolated(
                        f"the server shows version {found.version}, but had {self.memory.version} before: it was set "
                        f"back\n  {RESYNC}"
                    )
                done = max(self.memory.contributed, self._busy_version)
                if not self.live.algorithm.schedule.whole or found.version > done:
                    return found
                asked_s, why = None, "the round is not over: this device has done its part, and waits for the others"
            else:
                asked_s, why = found.retry_after_s, found.waiting
            tries, last = (tries + 1 if why == last else 1), why
            self.calls.connection.pause(asked_s, tries, why)

    def _meet(self) -> None:
        """Compare what the server keeps of this device with its ledger."""
        me = self.calls.me()
        self._require_task(me.task_hash)
        require_whole(self.sender.spending, me.check_ins + me.refused)

    def _require_task(self, task_hash: str) -> None:
        """Refuse another signed task than the one accepted, unless it is the same task after a restore."""
        if task_hash != self.member.task_hash:
            self._document = follow_restore(
                self.home, self.sender, self._document, task_hash, self._confirm, self._warn
            )
            self._busy_version, self._sums = -1, self._sum_taker()

    def _require_left(self) -> None:
        """End before any work is done if the terms do not cover another release."""
        if self._all_made:
            raise BudgetExhausted(f"all {self.releases} releases of this device are made")
        if self.sender.spending.closed:
            raise BudgetExhausted(f"{self.member.task} has ended, and this device's ledger is closed for it")

    @property
    def _all_made(self) -> bool:
        """Whether the terms cover no other release, whatever rows the device has."""
        limit, spending = self.live.task.stop.max_releases, self.sender.spending
        by_device = spending.terms.unit == "device" and spending.charged >= spending.terms.uses
        return by_device or (limit is not None and spending.releases >= limit)

    def _gatherer(self, rows: Any, label_column: str | None) -> Gatherer:
        spending = self.sender.spending
        return Gatherer(
            source_of(rows, self.live.task.data.contract, label_column, self._warn),
            self.live,
            self.memory.samples,
            uses=spending.uses,
            most_uses=spending.terms.uses if spending.terms.unit == "sample" else None,
            draw=self._draw,
            rows_changed=self._rows_changed,
            warn=self._warn,
        )

    def _sum_taker(self) -> SumTaker | None:
        return SumTaker(self.sender, self._coins, self._silent) if self.live.masked else None


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
