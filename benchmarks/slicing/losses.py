"""What a loss costs a sliced group, measured on real processes: every member 25 ms away from the server.

    python -m benchmarks.slicing.losses [kill] [hang] [restart] [minute] [fast]

- kill: a follower is killed; how long until the next batch is through, and until the group is where it was.
- hang: the same with a follower that is stopped, and found by those who wait for it.
- restart: the server is killed and started again at once.
- minute: a follower is killed every minute and comes back; batches in the time, beside those of an undisturbed group.
- fast: batches a second of eight processes with no latency at all.

Times are by the clock, and want a quiet machine.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.slicing.live import LEG_S, TASK, Delay, rows
from tests.support.live_slices import SlicedCrowd

DEVICES, CUT_EVERY, TIMES = 8, 5, 5
MINUTES = 3


@contextmanager
def a_crowd(batch: int = 10, delayed: bool = True, cut_every: int = CUT_EVERY) -> Iterator[SlicedCrowd]:
    """Run six owners and two dummies that have rows for longer than anybody measures."""
    text = TASK.format(batch=batch).replace("pieces = 5", "pieces = 5\ndummies = 2")
    text = text.replace("cut-every = 100000", f"cut-every = {cut_every}")
    with (
        tempfile.TemporaryDirectory() as folder,
        SlicedCrowd(Path(folder), DEVICES, text, rows(40_000)) as crowd,
    ):
        if delayed:
            crowd.server.address = crowd.server.address.rpartition(":")[0] + f":{Delay(crowd.server.port).port}"
        crowd.join()
        reach(crowd, lambda now: now["batch"] > 2 * CUT_EVERY)
        yield crowd


def look(crowd: SlicedCrowd) -> dict[str, Any]:
    """How the group stands, asked for without the delay."""
    found: dict[str, Any] = crowd.server.ask(f"{crowd.path}/groups")["groups"][0]
    return found


def reach(crowd: SlicedCrowd, there: Callable[[dict[str, Any]], bool], patience_s: float = 120) -> float:
    """Wait until the group is there, and return when that was."""
    end = time.monotonic() + patience_s
    while True:
        try:
            if there(look(crowd)):
                return time.monotonic()
        except (OSError, IndexError):
            pass  # the server is not there yet, or no group has come back
        assert time.monotonic() < end, crowd.told()
        time.sleep(0.01)


def disturbed(crowd: SlicedCrowd, disturb: Callable[[], Any]) -> dict[str, float]:
    """Disturb a group in the middle between two cuts: seconds to its next batch, and to where it was."""
    reach(crowd, lambda now: now["stage"] == "running" and now["batch"] % CUT_EVERY == 3)
    before, begun = look(crowd), time.monotonic()
    disturb()

    def goes_on(now: dict[str, Any]) -> bool:
        return bool(
            now["attempt"] != before["attempt"]
            and now["stage"] == "running"
            and now["batch"] > before["batch"] // CUT_EVERY * CUT_EVERY
        )

    next_batch = reach(crowd, goes_on) - begun
    caught_up = reach(crowd, lambda now: now["batch"] > before["batch"]) - begun
    assert look(crowd)["turn"] == before["turn"], crowd.told()
    return {"next_batch_s": next_batch, "caught_up_s": caught_up}


def kill() -> dict[str, Any]:
    """Kill followers, one after the other; each comes back before the next one goes."""
    with a_crowd() as crowd:
        found = []
        for _ in range(TIMES):
            lost = crowd.roles()["follower 2"]
            found.append(disturbed(crowd, lambda lost=lost: crowd.send(lost, signal.SIGKILL)))
            come_back(crowd, lost)
        return medians(found) | {"batch_s": round(batch_s(crowd), 3)}


def hang() -> dict[str, Any]:
    """Stop a follower."""
    with a_crowd() as crowd:
        lost = crowd.roles()["follower 2"]
        found = disturbed(crowd, lambda: crowd.send(lost, signal.SIGSTOP))
        return medians([found]) | {"batch_s": round(batch_s(crowd), 3)}


def restart() -> dict[str, Any]:
    """Kill the server, and start it again."""
    with a_crowd() as crowd:

        def again() -> None:
            crowd.server.kill()
            crowd.server.start()

        return medians([disturbed(crowd, again) for _ in range(TIMES)])


def minute() -> dict[str, Any]:
    """Count batches that stay, with a loss every minute and without."""
    found = {}
    for name, losses in (("undisturbed", 0), ("one loss a minute", MINUTES)):
        with a_crowd() as crowd:
            before, begun = look(crowd), time.monotonic()
            for number in range(losses):
                # In the middle of each minute, wherever between two cuts that is.
                time.sleep(max(0.0, begun + 60 * number + 30 - time.monotonic()))
                lost = crowd.roles()["follower 2"]
                crowd.send(lost, signal.SIGKILL)
                come_back(crowd, lost)
            time.sleep(max(0.0, begun + 60 * MINUTES - time.monotonic()))
            after = look(crowd)
            assert after["turn"] == before["turn"] and after["replays"] >= losses, crowd.told()
            found[name] = round((after["batch"] - before["batch"]) / (time.monotonic() - begun), 3)
    return {
        "batches_per_s": found,
        "share_of_undisturbed": round(found["one loss a minute"] / found["undisturbed"], 3),
        "minutes": MINUTES,
    }


def fast() -> dict[str, Any]:
    """Let eight processes go as fast as they can."""
    with a_crowd(delayed=False, cut_every=1000) as crowd:
        before, begun = look(crowd), time.monotonic()
        time.sleep(20)
        after = look(crowd)
        return {"batches_per_s": round((after["batches"] - before["batches"]) / (time.monotonic() - begun), 1)}


def come_back(crowd: SlicedCrowd, device: int) -> None:
    """Start a killed device again, and wait until its group has it."""
    crowd.processes[device].join()
    crowd.start(device)
    reach(crowd, lambda now: all(member["there"] for member in now["members"]) and now["stage"] == "running")


def batch_s(crowd: SlicedCrowd) -> float:
    """Seconds that a batch takes."""
    return 1 / float(look(crowd)["batches_per_s"])


def medians(found: list[dict[str, float]]) -> dict[str, Any]:
    """Put several losses together."""
    return {
        name: {"median": round(statistics.median(of), 3), "all": [round(each, 3) for each in sorted(of)]}
        for name in found[0]
        for of in [[each[name] for each in found]]
    }


def main(names: list[str]) -> None:
    """Measure, and print as it is found."""
    known = {"kill": kill, "hang": hang, "restart": restart, "minute": minute, "fast": fast}
    for name in names or known:
        print(json.dumps({name: known[name](), "leg_s": LEG_S, "cut_every": CUT_EVERY}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
