"""Sums of one task, one attempt after the other: the driver of the server's machine.

A stage is closed when everybody it waits for has spoken, or when its time is up; whoever was silent is lost. An attempt
that loses too many is given up, and the next begins with the next hello. Nothing of an attempt is stored: if the server
ends, the attempt is over, and members have spent what they sent.

Whoever spoils an attempt is left out of the next (`sum_suspects`). A device sends a vector to so many attempts at one
version as the terms say, and to no more. If too few are left that still may, the task is paused and says why.

Where a task invites devices to rounds, members are those invited. Where it has a barrier, they are the first that are
ready, whichever version they began with (`readiness`).
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crowdml.core import CrowdError
from crowdml.core.errors import NotAuthorised
from crowdml.protocol.sums import Broadcast, LateMessage, SumServer, SumTerms
from crowdml.protocol.sums.messages import ORDER, Hello, Shares, read_flags, read_shares
from crowdml.protocol.sums.secrets import Card
from crowdml.server.answers import Answer, Refusal
from crowdml.server.crowd import DeviceState
from crowdml.server.folding import receipt_answer, require_open
from crowdml.server.mutable_task import MutableTask
from crowdml.server.readiness import Readiness
from crowdml.server.running import RunningTask
from crowdml.server.store import Store
from crowdml.server.sum_attempt import Attempt, Message
from crowdml.server.sum_folding import DONE, Upload, fold_sum, pause
from crowdml.server.sum_suspects import Suspects
from crowdml.server.writer import Writer


class SumRounds:
    """All masked sums of one task.

    Args:
        running: The task.
        writer: Serialises what changes it.
        store: Where it is kept.
        stage_s: Seconds that a stage waits for the silent.
    """

    def __init__(self, running: RunningTask, writer: Writer, store: Store, stage_s: float) -> None:
        """Begin without an attempt."""
        assert running.live.masked is not None  # noqa: S101  made for tasks that mask
        self._running, self._writer, self._store, self._stage_s = running, writer, store, stage_s
        barrier = running.live.server.barrier
        self._readiness = Readiness(barrier) if barrier else None
        self._cards: dict[int, Card] = {}
        self._broadcasts: dict[int, bytes] = {}
        self._suspects, self._attempts = Suspects(), running.live.masked.masking.attempts
        self._sent: Counter[tuple[int, int]] = Counter()
        self._attempt: Attempt | None = None
        self._finishing: set[asyncio.Task[None]] = set()

    def status(self) -> dict[str, Any]:
        """Say which sum is going on, and how far it is."""
        own = self._present()
        return {
            "sum": own.name,
            "version": own.machine.version,
            "attempt": own.machine.attempt,
            "stage": own.machine.stage,
            "members": own.machine.members(),
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
        own = self._present()
        if own.name != name:
            return await self._elsewhere(device, stage, body, message.key)
        if body is not None:
            self._hand_over(own, device, stage, body, message)
            self._advance(own)
        if stage == "blame":
            return DONE
        try:
            await asyncio.wait_for(own.closed[stage].wait(), wait_s)
        except TimeoutError:
            return Answer(status=202, body=b'{"waiting":"%s"}' % stage.encode())
        return own.answer(device.slot, stage)

    def close(self) -> None:
        """Give up what is going on."""
        if self._attempt and self._attempt.timer:
            self._attempt.timer.cancel()

    def _present(self) -> Attempt:
        """Return the attempt at the present version; a new one where the last is over, or for another version."""
        published = self._running.snapshot.published
        version = published.version
        if version not in self._broadcasts:
            self._broadcasts[version] = Broadcast.of(version, published.body, self._running.sheet_hash).hash
        own = self._attempt
        if own is None or own.over or own.machine.version != version:
            self.close()
            attempt = secrets.randbits(63)
            terms = replace(self._running.live.form(version).terms, sheet=self._running.sheet_hash)
            oldest = version - terms.delays
            self._broadcasts = {begun: shown for begun, shown in self._broadcasts.items() if begun >= oldest}
            self._sent = Counter({place: count for place, count in self._sent.items() if place[1] >= oldest})
            self._attempt = own = Attempt(SumServer(terms, version, attempt, self._cards, self._broadcasts))
        return own

    def _hand_over(self, own: Attempt, device: DeviceState, stage: str, body: bytes, message: Message) -> None:
        """Give a message to the machine."""
        machine, slot = own.machine, device.slot
        begun = machine.stage != "hello" and machine.stage not in ORDER
        near = machine.graph.neighbours if begun else 0
        try:
            if stage == "hello":
                started = machine.version if message.started is None else message.started
                self._require_welcome(own, device, started)
                machine.hello(slot, Hello.of(body), device.public_key, started)
                own.started[slot] = started
                if own.timer is None:
                    self._set_timer(own)
            elif stage in ORDER:
                machine.order(slot, ORDER.index(stage), body)
            elif stage == "shares":
                machine.shares(slot, Shares.of(body, near))
            elif stage == "blame":
                machine.blame(slot, read_flags(body, near).tolist())
            elif stage == "masked":
                machine.masked(slot, body)
                self._sent[slot, own.started[slot]] += slot not in own.uploads
                upload = Upload(
                    device=device, key=message.key, body=hashlib.sha256(body).digest(), started=own.started[slot]
                )
                own.uploads.setdefault(slot, upload)
            elif stage == "consent":
                machine.consent(slot, body)
            else:
                machine.reveal(slot, read_shares(body, near))
        except LateMessage as error:
            raise Refusal(409, "late", str(error)) from None
        except NotAuthorised as error:
            raise Refusal(422, "not-a-member", str(error)) from None

    def _require_welcome(self, own: Attempt, device: DeviceState, started: int) -> None:
        """Refuse a device that is not in the round, began too long ago, or has nothing left to send."""
        now, live, version = self._running.snapshot, self._running.live, own.machine.version
        require_open(now.state, now.reason)
        if started > version or not live.server.accepts(version - started):
            raise Refusal(409, "stale", f"begun with version {started}: not used", version=version)
        if live.server.rounds and device.invited != version:
            raise Refusal(409, "not-invited", "this device was not asked for a contribution", version=version)
        limit = live.task.stop.max_releases
        if limit is not None and self._running.totals(device).check_ins >= limit:
            raise Refusal(409, "releases-spent", f"all {limit} releases of this device were made", version=version)
        if device.slot in self._suspects.left_out(version):
            raise Refusal(409, "left-out", "sums go on without this device: what it gave to another was wrong")
        if self._sent[device.slot, started] >= self._attempts:
            raise Refusal(409, "attempts-spent", f"all {self._attempts} attempts at this version are spent")
        if self._readiness:
            self._readiness.require_place(device.slot, own.machine.slots(), version, self._crowd())

    def _crowd(self) -> list[DeviceState]:
        """Return the devices that a version may wait for: those that have releases left."""
        limit = self._running.live.task.stop.max_releases
        devices, totals = list(self._running.devices.values()), self._running.totals
        return [device for device in devices if limit is None or totals(device).check_ins < limit]

    def _advance(self, own: Attempt) -> None:
        """Close the stage if nobody is missing."""
        machine = own.machine
        if machine.stage == "hello":
            if machine.members() >= self._expected(machine):
                self._close(own, "hello")
        elif machine.stage != "done" and not machine.waiting():
            self._close(own, machine.stage)

    def _expected(self, machine: SumServer) -> int:
        """Count who may say hello: in rounds nobody waits for those who were invited and are left out."""
        if self._readiness:
            return machine.terms.invited
        out, devices = self._suspects.left_out(machine.version), self._running.devices
        missed = sum(slot in devices and devices[slot].invited == machine.version for slot in out)
        return max(machine.terms.least, machine.terms.invited - missed)

    def _set_timer(self, own: Attempt) -> None:
        if own.timer is not None:
            own.timer.cancel()
        loop = asyncio.get_running_loop()
        own.timer = loop.call_later(self._stage_s, self._time_is_up, own, own.machine.stage)

    def _time_is_up(self, own: Attempt, stage: str) -> None:
        if own is not self._attempt or own.machine.stage != stage or own.over:
            return
        if self._running.snapshot.state != "open":
            self._give_up(own, "the task is not open any more")  # whoever waits would wait for ever
            return
        if stage == "hello" and self._waits_on(own):
            self._set_timer(own)  # nothing is lost by waiting: nobody has shared anything yet
            return
        self._close(own, stage)

    def _waits_on(self, own: Attempt) -> bool:
        """Tell whether a sum cannot begin yet: a barrier wants all its members, a round as many as it needs."""
        machine = own.machine
        if self._readiness is None:
            return machine.members() < machine.terms.least
        self._readiness.give_up(machine.slots(), machine.version, self._crowd())
        return machine.members() < machine.terms.invited

    def _close(self, own: Attempt, stage: str) -> None:
        """Close a stage and begin the next one, or give up."""
        machine = own.machine
        closing: dict[str, Callable[[], object]] = {
            "hello": machine.close_hellos,
            **dict.fromkeys(ORDER, machine.close_order),
            "shares": machine.close_shares,
            "masked": machine.close_masked,
            "consent": machine.close_consents,
        }
        if stage == "reveal":
            if own.timer:
                own.timer.cancel()
            task = asyncio.get_running_loop().create_task(self._finish(own))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)
            return
        try:
            closing[stage]()
        except CrowdError as error:
            self._give_up(own, str(error))
            return
        own.closed[stage].set()
        self._set_timer(own)

    async def _finish(self, own: Attempt) -> None:
        """Unmask in a thread, fold in by the writer, and only then answer."""
        loop, receipts = asyncio.get_running_loop(), {}
        try:
            found = await loop.run_in_executor(None, own.machine.finish)

            def work(task: MutableTask) -> Answer:
                receipts.update(fold_sum(task, self._store, own.machine.version, found, own.uploads))
                return DONE

            answer = await self._writer.submit(work)
            if answer is not DONE:
                own.failure = Refusal(409, "sum-aborted", "the sum could not be used")
        except CrowdError as error:
            self._give_up(own, str(error))
            return
        except BaseException:
            self._give_up(own, "a mistake in this server")
            raise
        self._suspects.note(own.machine, failed=False, crowd=len(self._running.devices))
        if self._readiness:
            self._readiness.heard(receipts, own.machine.version + 1)
        name, sheet = self._running.name, self._running.sheet_hash
        own.answers = {slot: receipt_answer(name, sheet, receipt) for slot, receipt in receipts.items()}
        self._wake(own)

    def _give_up(self, own: Attempt, why: str) -> None:
        own.failure = Refusal(409, "sum-aborted", why)
        self._suspects.note(own.machine, failed=True, crowd=len(self._running.devices))
        version, out = own.machine.version, self._suspects.left_out(own.machine.version)
        able = [each for each in self._crowd() if each.slot not in out and self._may_send(each.slot, version)]
        if own.uploads and len(able) < own.machine.terms.least:
            task = asyncio.get_running_loop().create_task(self._pause(version, why))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)
        self._wake(own)

    def _may_send(self, slot: int, version: int) -> bool:
        return self._sent[slot, version] < self._attempts

    async def _pause(self, version: int, why: str) -> None:
        """Let the operator decide: devices spend no more on this version."""
        reason = (
            f"the sum of version {version} was given up, and too few devices may still try ({self._attempts} attempts "
            f"each): {why}"
        )
        await self._writer.submit(lambda task: pause(task, self._store, version, reason))

    def _wake(self, own: Attempt) -> None:
        if own.timer is not None:
            own.timer.cancel()
        for event in own.closed.values():
            event.set()

    async def _elsewhere(self, device: DeviceState, stage: str, body: bytes | None, key: str) -> Answer:
        """Answer for a sum that is over: a masked vector that was used has a receipt."""
        if stage == "masked" and body is not None:
            place, found = (device.slot, key), dict[str, Any]()

            def work(_: MutableTask) -> Answer:
                found.update(known=self._store.receipts_for(self._running.id, [place]))
                return DONE

            await self._writer.submit(work)
            receipt = found.get("known", {}).get(place)
            if receipt is not None and receipt.body == hashlib.sha256(body).digest():
                return receipt_answer(self._running.name, self._running.sheet_hash, receipt, again=True)
        raise Refusal(409, "sum-over", "this sum is over, or was given up")
