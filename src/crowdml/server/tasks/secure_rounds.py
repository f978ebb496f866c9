"""The secure sums of one task, one attempt after the other: the driver of the server's machine.

A stage is closed when everybody it waits for has spoken, or when its time is up; whoever was silent is lost. An attempt
that loses too many is given up, and the next begins with the next hello. If the server ends, the attempt is over, and
members have spent what they sent. Stored is that alone: before members are asked for their vectors, as if all of them
had sent one. If too few are left that still may try (`secure_members`), the task is paused and says why; a server that
is started anew looks at that first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from crowdml.core import CrowdError
from crowdml.core.errors import NotAuthorised
from crowdml.secure_aggregation import BroadcastHash, LateMessage, Sum, SumServer, SumTerms
from crowdml.secure_aggregation.member_keys import Card
from crowdml.secure_aggregation.stages import BLAME, CONSENT, HELLO, MASKED, ORDER, REVEAL, SHARES
from crowdml.secure_aggregation.stages import DONE as OVER
from crowdml.secure_aggregation.sum_messages import Hello, Shares, read_flags, read_shares
from crowdml.server.refusals import Answer, Refusal
from crowdml.server.store import Receipt, Store
from crowdml.server.store.secure_attempts import Sent
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.folding import Upload, fold_sum, receipt_answer
from crowdml.server.tasks.mutable_task import MutableTask
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.secure_attempt import Attempt, Message
from crowdml.server.tasks.secure_members import SecureMembers
from crowdml.server.tasks.task_writer import Writer

DONE = Answer(status=204)


class SecureRounds:
    """All secure sums of one task.

    Args:
        running: The task.
        writer: Serialises what changes it.
        store: Where it is kept.
        stage_s: Seconds that a stage waits for the silent.
    """

    def __init__(self, running: RunningTask, writer: Writer, store: Store, stage_s: float) -> None:
        """Begin without an attempt: the first one starts with a hello."""
        self._running, self._writer, self._store, self._stage_s = running, writer, store, stage_s
        self._members = SecureMembers(running, store.vectors(running.id))
        self._cards: dict[int, Card] = {}
        self._broadcasts: dict[int, bytes] = {}
        self._attempt: Attempt | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        version = running.snapshot.version
        if self._members.are_spent(version, running.live.form(version).terms.least):
            self._begin(self._pause, version, "the server was started anew during the last of them")

    def status(self) -> dict[str, Any]:
        """Say which sum is going on, and how far it is."""
        attempt = self._present()
        return {
            "sum": attempt.name,
            "version": attempt.machine.version,
            "attempt": attempt.machine.attempt,
            "stage": attempt.machine.stage,
            "members": attempt.machine.members(),
        }

    @property
    def terms(self) -> SumTerms:
        """What the present sum is about."""
        return self._present().machine.terms

    async def take(
        self, device: DeviceState, name: str, stage: str, body: bytes | None, message: Message, wait_s: float
    ) -> Answer:
        """Take a member's message and answer with what follows once its stage is closed; 202 where that takes long.

        Args:
            device: The member.
            name: The attempt that it means.
            stage: Which message.
            body: Its bytes; None where it was given before and only the answer is wanted.
            message: What its headers say.
            wait_s: How long to wait.
        """
        attempt = self._present()
        if attempt.name != name:
            return await self._elsewhere(device, stage, body, message.key)
        if body is not None:
            self._hand_over(attempt, device, stage, body, message)
            self._advance(attempt)
        if stage == BLAME:
            return DONE
        try:
            await asyncio.wait_for(attempt.closed[stage].wait(), wait_s)
        except TimeoutError:
            return Answer(status=202, body=b'{"waiting":"%s"}' % stage.encode())
        return attempt.answer(device.slot, stage)

    def close(self) -> None:
        """Give up what is going on."""
        if self._attempt and self._attempt.timer:
            self._attempt.timer.cancel()

    def _present(self) -> Attempt:
        """Return the attempt at the present version; a new one where the last is over, or for another version."""
        published = self._running.snapshot.published
        version = published.version
        if version not in self._broadcasts:
            self._broadcasts[version] = BroadcastHash.of(version, published.body, self._running.task_hash).hash
        attempt = self._attempt
        if attempt is None or attempt.over or attempt.machine.version != version:
            self.close()
            number = secrets.randbits(63)
            terms = replace(self._running.live.form(version).terms, task_hash=self._running.task_hash)
            oldest = version - terms.delays
            self._broadcasts = {begun: shown for begun, shown in self._broadcasts.items() if begun >= oldest}
            self._members.forget_before(oldest)
            self._attempt = attempt = Attempt(SumServer(terms, version, number, self._cards, self._broadcasts))
        return attempt

    def _hand_over(self, attempt: Attempt, device: DeviceState, stage: str, body: bytes, message: Message) -> None:
        """Give a message to the machine."""
        machine, slot = attempt.machine, device.slot
        begun = machine.stage != HELLO and machine.stage not in ORDER
        near = machine.graph.neighbours if begun else 0
        try:
            if stage == HELLO:
                started = machine.version if message.started is None else message.started
                self._members.require_welcome(device, started, machine)
                machine.hello(slot, Hello.of(body), device.public_key, started)
                attempt.started[slot] = started
                if attempt.timer is None:
                    self._set_timer(attempt)
            elif stage in ORDER:
                machine.order(slot, ORDER.index(stage), body)
            elif stage == SHARES:
                machine.shares(slot, Shares.of(body, near))
            elif stage == BLAME:
                machine.blame(slot, read_flags(body, near).tolist())
            elif stage == MASKED:
                machine.masked(slot, body)
                if slot not in attempt.uploads:
                    started = attempt.started[slot]
                    self._members.note_vector(slot, started)
                    attempt.uploads[slot] = Upload(
                        device=device, key=message.key, body=hashlib.sha256(body).digest(), started=started
                    )
            elif stage == CONSENT:
                machine.consent(slot, body)
            else:
                machine.reveal(slot, read_shares(body, near))
        except LateMessage as error:
            raise Refusal(409, "late", str(error)) from None
        except NotAuthorised as error:
            raise Refusal(422, "not-a-member", str(error)) from None

    def _advance(self, attempt: Attempt) -> None:
        """Close the stage if nobody is missing."""
        machine = attempt.machine
        if machine.stage == HELLO:
            if machine.members() >= self._members.expected(machine):
                self._close(attempt, HELLO)
        elif machine.stage != OVER and not machine.waiting():
            self._close(attempt, machine.stage)

    def _set_timer(self, attempt: Attempt) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        loop = asyncio.get_running_loop()
        attempt.timer = loop.call_later(self._stage_s, self._time_is_up, attempt, attempt.machine.stage)

    def _time_is_up(self, attempt: Attempt, stage: str) -> None:
        if attempt is not self._attempt or attempt.machine.stage != stage or attempt.over:
            return
        if self._running.snapshot.state != "open":
            self._give_up(attempt, "the task is not open any more")  # whoever waits would wait for ever
            return
        if stage == HELLO and self._members.still_awaited(attempt.machine):
            self._set_timer(attempt)  # nothing is lost by waiting: nobody has shared anything yet
            return
        self._close(attempt, stage)

    def _close(self, attempt: Attempt, stage: str) -> None:
        """Close a stage and begin the next one, or give up."""
        machine = attempt.machine
        closing: dict[str, Callable[[], object]] = {
            HELLO: machine.close_hellos,
            **dict.fromkeys(ORDER, machine.close_order),
            SHARES: machine.close_shares,
            MASKED: machine.close_masked,
            CONSENT: machine.close_consents,
        }
        if stage == REVEAL:
            if attempt.timer:
                attempt.timer.cancel()
            self._begin(self._finish, attempt)
            return
        try:
            closing[stage]()
        except CrowdError as error:
            self._give_up(attempt, str(error))
            return
        if stage == SHARES:
            self._begin(self._ask_for_vectors, attempt)
            return
        attempt.closed[stage].set()
        self._set_timer(attempt)

    async def _ask_for_vectors(self, attempt: Attempt) -> None:
        """Store that members may have sent a vector each, and only then let them: this server may end meanwhile."""
        sent = self._members.sent_if_all({slot: attempt.started[slot] for slot in attempt.machine.waiting()})
        try:
            await self._keep(sent)
        except CrowdError as error:
            self._give_up(attempt, str(error))  # no clock runs: members would wait for ever
            return
        attempt.closed[SHARES].set()
        if not attempt.over:
            self._set_timer(attempt)

    async def _keep(self, sent: Sent) -> None:
        def work(task: MutableTask) -> Answer:
            self._store.keep_vectors(task.running.id, sent)
            return DONE

        if await self._writer.submit(work) is not DONE:
            raise Refusal(503, "busy", "the server could not store that vectors are asked for", retry_after_s=1)

    async def _correct(self, sent: Sent) -> None:
        """Store what was really sent; where that fails, what stands there is more and so on the safe side."""
        with contextlib.suppress(CrowdError):
            await self._keep(sent)

    async def _finish(self, attempt: Attempt) -> None:
        """Unmask in a thread, fold in by the writer, and only then answer."""
        loop, receipts = asyncio.get_running_loop(), dict[int, Receipt]()
        try:
            found = await loop.run_in_executor(None, attempt.machine.finish)

            def work(task: MutableTask) -> Answer:
                receipts.update(self._fold(task, attempt, found))
                return DONE

            answer = await self._writer.submit(work)
            if answer is not DONE:
                attempt.failure = Refusal(409, "sum-aborted", "the sum could not be used")
        except CrowdError as error:
            self._give_up(attempt, str(error))
            return
        except BaseException:
            self._give_up(attempt, "a mistake in this server")
            raise
        self._members.note_success(attempt.machine, receipts)
        name, task_hash = self._running.name, self._running.task_hash
        attempt.answers = {slot: receipt_answer(name, task_hash, receipt) for slot, receipt in receipts.items()}
        self._wake(attempt)

    def _fold(self, task: MutableTask, attempt: Attempt, found: Sum) -> dict[int, Receipt]:
        """Fold a sum in and store it, in one transaction. Runs in the task's writer."""
        before = task.mark()
        receipts = fold_sum(task.live, task.state, attempt.machine.version, found, attempt.uploads)
        self._store.apply(task.since(before, list(receipts.values())))
        self._store.keep_vectors(task.running.id, self._members.sent)
        task.settle()
        return receipts

    def _give_up(self, attempt: Attempt, why: str) -> None:
        attempt.failure = Refusal(409, "sum-aborted", why)
        enough = self._members.note_failure(attempt.machine)
        if attempt.closed[SHARES].is_set():
            self._begin(self._correct, self._members.sent)
        if attempt.uploads and not enough:
            self._begin(self._pause, attempt.machine.version, why)
        self._wake(attempt)

    async def _pause(self, version: int, why: str) -> None:
        """Let the operator decide: devices spend no more on this version, unless the task has moved on."""
        reason = (
            f"the sum of version {version} was given up, and too few devices may still try "
            f"({self._members.attempts} attempts each): {why}"
        )

        def work(task: MutableTask) -> Answer:
            state = task.state
            if state.state == "open" and state.version == version:
                self._store.set_state(task.running.id, "paused", reason, by="server")
                state.state, state.reason = "paused", reason
                task.settle()
            return DONE

        await self._writer.submit(work)

    def _begin(self, work: Callable[..., Coroutine[Any, Any, None]], *given: Any) -> None:
        """Run something beside the requests; the loop itself would forget it."""
        task = asyncio.get_running_loop().create_task(work(*given))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _wake(self, attempt: Attempt) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        for event in attempt.closed.values():
            event.set()

    async def _elsewhere(self, device: DeviceState, stage: str, body: bytes | None, key: str) -> Answer:
        """Answer for a sum that is over: a masked vector that was used has a receipt."""
        if stage == MASKED and body is not None:
            place, found = (device.slot, key), dict[str, Any]()

            def work(_: MutableTask) -> Answer:
                found.update(known=self._store.receipts_for(self._running.id, [place]))
                return DONE

            await self._writer.submit(work)
            receipt = found.get("known", {}).get(place)
            if receipt is not None and receipt.body == hashlib.sha256(body).digest():
                return receipt_answer(self._running.name, self._running.task_hash, receipt, again=True)
        raise Refusal(409, "sum-over", "this sum is over, or was given up")
