"""The writer's short waits: they serve those who are about to send, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from crowdml.server.refusals import Answer
from crowdml.server.tasks.task_writer import Writer
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
