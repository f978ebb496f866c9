"""The writer's short waits: they serve those who are about to send, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from crowdml.server.refusals import Answer, Refusal
from crowdml.server.tasks.folding import CheckIn
from crowdml.server.tasks.task_writer import Writer
from crowdml.server.tasks.waiting_room import WaitingRoom
from tests.support.own_loop import run_apart


@pytest.mark.parametrize(("waiting", "at_once"), [(1, False), (2, True)], ids=["room", "a whole batch"])
def test_a_whole_batch_waits_for_no_other_front_end(waiting: int, at_once: bool) -> None:
    async def work() -> None:
        task: Any = SimpleNamespace(running=SimpleNamespace(name="a-task"))
        writer = Writer(task, Any, pytest.fail, largest_batch=2)  # type: ignore[arg-type]
        writer.expect("another front end")
        for _ in range(waiting):
            writer.enqueue(lambda task: Answer(status=204), lambda answer: None)
        writer._task.cancel()  # before it has begun
        wait = asyncio.ensure_future(writer._wait_for_others())
        await asyncio.sleep(0)
        assert wait.done() == at_once
        writer.came("another front end")
        await wait

    run_apart(work)


def test_large_check_ins_are_refused_by_what_they_hold_in_memory_until_others_are_answered() -> None:
    """Whatever task they are of; those that are being stored hold it too; and one always fits."""

    async def work() -> None:
        room, let = WaitingRoom(100), asyncio.Event()
        task: Any = SimpleNamespace(running=SimpleNamespace(name="a-task"))
        writers = [Writer(task, Any, pytest.fail, room=room, size=size) for size in (40, 40, 1000)]  # type: ignore[arg-type]

        async def handle(batch: list[Any]) -> list[Answer]:
            await let.wait()
            return [Answer(status=200) for _ in batch]

        answers: list[Answer] = []
        for writer in writers:
            writer._handle = handle  # type: ignore[method-assign]
        check_in: Any = CheckIn(device=Any, key="k", body=b"", started=0, content=())  # type: ignore[arg-type]
        small, other, large = writers
        small.enqueue(check_in, answers.append)
        other.enqueue(check_in, answers.append)
        await asyncio.sleep(0)  # both are being stored
        for full in (small, other, large):
            with pytest.raises(Refusal) as refused:
                full.enqueue(check_in, answers.append)
            assert (refused.value.status, refused.value.retry_after_s) == (503, 1)
        small.enqueue(lambda task: Answer(status=204), answers.append)  # what the operator wants takes no room
        let.set()
        while len(answers) < 3:
            await asyncio.sleep(0)
        assert room.taken == 0
        large.enqueue(check_in, answers.append)
        while len(answers) < 4:
            await asyncio.sleep(0)
        assert room.taken == 0
        for writer in writers:
            await writer.close()

    run_apart(work)
