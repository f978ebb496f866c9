"""Part files: the last states of some replicas as safetensors, and in words which run they are of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from crowdml.core import BadInput, record
from crowdml.core.files import write_whole
from crowdml.simulation.checkpoint import Progress, Spent

FORMAT = "crowdml-part-1"
MOST_PARTS = 10_000


@record
class Shard:
    """Which part of how many.

    Attributes:
        number: From 1.
        of: How many there are.
    """

    number: int
    of: int

    def holds(self, place: int) -> bool:
        """Tell whether a replica, counted over all groups, is of this part."""
        return place % self.of == self.number - 1


def read_shard(text: str) -> Shard:
    """Read what `--shard` says.

    >>> read_shard("2/4")
    Shard(number=2, of=4)
    """
    found = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of <= MOST_PARTS:
        raise BadInput(f'"{text}" is no part of a run', where="--shard", hint="such as 2/4: the second of four parts")
    return Shard(number=number, of=of)


@record
class GroupPart:
    """What a part has of one group.

    Attributes:
        key: Names the group's whole run: a hash of everything that decides its result.
        replicas: Which ones these are.
        count: How many there are in all.
        progress: Their last states, and what was measured.
    """

    key: str
    replicas: tuple[int, ...]
    count: int
    progress: Progress


@record
class Part:
    """A part of a run.

    Attributes:
        shard: Which one.
        request: What was asked for, as plain values: the command makes the run of it again.
        machine: Versions and processor that ran it.
        groups: What it has of each group that leaves checkpoints.
    """

    shard: Shard
    request: dict[str, Any]
    machine: dict[str, Any]
    groups: tuple[GroupPart, ...]


def write_part(path: Path, part: Part) -> None:
    """Write a part, whole or not at all."""
    arrays: dict[str, Any] = {}
    heads = []
    for at, group in enumerate(part.groups):
        arrays |= {f"{at}/carry/{number:04d}": leaf for number, leaf in enumerate(group.progress.leaves)}
        arrays |= {f"{at}/measured/{name}": values for name, values in group.progress.measured.items()}
        spent = {"cpu_seconds": group.progress.spent.cpu_seconds, "commits": list(group.progress.spent.commits)}
        head = {"key": group.key, "replicas": group.replicas, "count": group.count, "chunk": group.progress.chunk}
        heads.append(head | {"spent": spent})
    words = {
        "shard": [part.shard.number, part.shard.of],
        "request": part.request,
        "machine": part.machine,
        "groups": heads,
    }
    tables = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_whole(path, safetensors.numpy.save(tables, metadata={"format": FORMAT, "words": json.dumps(words)}))


def read_part(path: Path) -> Part:
    """Read a part; a damaged file is refused, and none can run anything."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}", hint="give files that --shard has written")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise BadInput(f"{path} is no part of a run", hint="give files that --shard has written")
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        words = json.loads(metadata["words"])
        number, of = words["shard"]
        groups = tuple(_read_group(at, head, arrays) for at, head in enumerate(words["groups"]))
        shard = read_shard(f"{number}/{of}")
        return Part(shard=shard, request=dict(words["request"]), machine=dict(words["machine"]), groups=groups)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError) as error:
        raise BadInput(f"{path} is damaged: {' '.join(str(error).split())}", hint="run this part again") from None


def _read_group(at: int, head: dict[str, Any], arrays: dict[str, Any]) -> GroupPart:
    carried, measured = f"{at}/carry/", f"{at}/measured/"
    leaves = tuple(arrays[name] for name in sorted(arrays) if name.startswith(carried))
    replicas = tuple(int(each) for each in head["replicas"])
    if any(len(leaf) != len(replicas) for leaf in leaves) or not re.fullmatch(r"[0-9a-f]{24}", head["key"]):
        raise ValueError("its arrays are not those of its replicas")
    spent = Spent(cpu_seconds=head["spent"]["cpu_seconds"], commits=tuple(head["spent"]["commits"]))
    found = {name.removeprefix(measured): arrays[name] for name in arrays if name.startswith(measured)}
    progress = Progress(chunk=int(head["chunk"]), leaves=leaves, measured=found, spent=spent)
    return GroupPart(key=head["key"], replicas=replicas, count=int(head["count"]), progress=progress)
