"""The demo of sliced nets: two groups of six devices train one net each, and a follower is killed on the way."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from crowdml.cli import output
from crowdml.cli.demos.demo_crowd import Crowd, DemoFailed
from crowdml.core import NUMPY, trees

DEVICES, PASSES = 12, 5
CHANGES = [
    "data.transform=[{kind='scale', by=0.0625}]",
    "model={kind='mlp', layers=[48, 24]}",
    "algorithm={kind='slicenet', pieces=3, dummies=2, batch=10, rate=0.5, decay=0.95, omega=2, cut-every=5}",
    "privacy={mode='none'}",
    f"stop={{max-releases={PASSES}}}",
    f"crowd={{devices={DEVICES}, passes={PASSES}}}",
]
PATIENCE_S = 300.0
_POLL_S = 0.2
_TOLD = {
    "lost": "{members} is lost ({why})",
    "dominator lost": "its turn ends at the last cut, after batch {batch}",
    "waiting": "waits for members: {why}",
    "pass again": "begins the pass again: {why}",
    "shared": "has uploaded; {why}",
    "done": "is done",
}


def learn_in_slices(crowd: Crowd, file: Path) -> dict[str, Any]:
    """Let two groups learn, kill a follower on the way, and tell what happens."""
    with output.Progress("starting the server") as progress:
        crowd.open(file, CHANGES, measured=False)
        output.say(f"page: {crowd.address}/tasks/{crowd.task.name}")
        output.say("two groups of six: a dominator with its images, three followers with a piece each, two dummies")
        crowd.join(DEVICES)
        story = _Story(crowd)
        killed: int | None = None
        begun = time.monotonic()
        while crowd.alive:
            if time.monotonic() - begun > PATIENCE_S:
                raise DemoFailed("the groups do not end")
            time.sleep(_POLL_S)
            shown = crowd.groups()
            story.tell(shown)
            done = sum(group["pass"] for group in shown) / (2 * PASSES)
            progress.named(
                f"{len(shown)} groups, {sum(group['batches'] for group in shown)} batches", done, float("nan")
            )
            if killed is None and shown and shown[0]["pass"] >= 1 and shown[0]["stage"] == "running":
                killed = _kill_follower(crowd, shown[0])
        story.tell(crowd.groups())
    return _outcome(crowd, killed)


class _Story:
    """Says of every event once what happened."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._seen = set[tuple[int, float, str]]()
        self._attempts: dict[int, tuple[int, int]] = {}

    def tell(self, groups: list[dict[str, Any]]) -> None:
        """Say what is new."""
        for group in groups:
            for event in group["events"]:
                at = group["group"], event["time"], event["what"]
                if at in self._seen:
                    continue
                self._seen.add(at)
                self._one(group["group"], event)

    def _one(self, group: int, event: dict[str, Any]) -> None:
        said = _TOLD.get(event["what"], "").format(**event | {"members": " and ".join(event["members"])})
        if event["what"] == "go":
            before, self._attempts[group] = self._attempts.get(group), (event["turn"], event["batch"])
            if before and before[0] == event["turn"]:
                said = f"goes on from batch {event['batch']}: dominator {event['members'][0]}, "
                said += f"followers {', '.join(event['members'][1:])}"
        if said:
            output.say(f"group {group}, turn {event['turn']}: {said}")


def _kill_follower(crowd: Crowd, group: dict[str, Any]) -> int | None:
    """Kill the process that holds the group's second piece."""
    number = next((at for at, each in enumerate(group["members"], 1) if each["role"] == "follower 2"), None)
    for device in crowd.alive:
        if f"in group {group['group']}, as member {number}" in crowd.said(device):
            name = group["members"][(number or 1) - 1]["member"]
            output.say(f"now the process of {name}, which holds the second piece of group {group['group']}, is killed")
            crowd.kill(device)
            return device
    return None


def _outcome(crowd: Crowd, killed: int | None) -> dict[str, Any]:
    from safetensors.numpy import load as read

    from crowdml.device.device_home import Home
    from crowdml.device.slice_member import group_model

    errors: dict[str, float] = {}
    like = crowd.task.model_for(NUMPY).zeros()
    for device in range(DEVICES):
        found = re.search(r"in group (\d+)", crowd.said(device))
        if device == killed or found is None or f"group {found[1]}" in errors:
            continue
        home = Home(crowd.home(device))
        arrays = read(group_model(home.folder(home.member())))
        parameters = trees.map_paths(lambda path, _, arrays=arrays: arrays[path], like)
        errors[f"group {found[1]}"] = crowd.wrong(parameters)
    shown = crowd.groups()
    accuracy = 1 - sum(errors.values()) / max(len(errors), 1)
    told = ", ".join(f"{group} {1 - error:.1%}" for group, error in sorted(errors.items()))
    output.show(
        output.strong(f"accuracy on unseen digits   {accuracy:.1%}", f" ({told})"),
        f"members lost                {sum(group['lost'] for group in shown)}; no batch that was under way is missing",
        "ε spent                     no formal guarantee",
    )
    pace = ", ".join(f"{group['batches_per_s'] or 0:.0f}" for group in shown)
    output.show(f"{pace} batches a second at the end, {crowd.seconds:.0f} s", style="dim")
    return {"accuracy": accuracy, "errors": errors, "groups": shown, "killed": killed, "seconds": crowd.seconds}
