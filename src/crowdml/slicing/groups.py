"""Groups: who is dominator, who follows with which piece, and who stands by.

A pass of a group has a turn for every device, in which it is the dominator and the others hold the pieces, dealt out
anew. Devices beyond the pieces are dummies. A device that is away is replaced by a dummy; without enough devices the
turn does not take place.
"""

from __future__ import annotations

import numpy as np

from crowdml.core import BadInput, record
from crowdml.slicing.stages import Indices


@record
class Turn:
    """One device's turn as dominator.

    Simulated training reads `dominator` alone: slicing is exact, so what is learnt does not depend on who holds which
    piece. Followers and dummies are dealt out all the same, since who is away decides which turns take place.

    Attributes:
        dominator: The device whose rows are used.
        followers: The device that holds each piece.
        dummies: Devices that stand by.
    """

    dominator: int
    followers: tuple[int, ...]
    dummies: tuple[int, ...]


def make_groups(devices: int, pieces: int, dummies: int, generator: np.random.Generator) -> list[Indices]:
    """Deal devices into groups of a dominator, `pieces` followers and at least `dummies` dummies, at random."""
    size = 1 + pieces + dummies
    if devices < size:
        raise BadInput(
            f"a group needs {size} devices, the crowd has {devices}",
            where="crowd.devices",
            hint=f"at least {size} devices, or fewer pieces",
        )
    return np.array_split(generator.permutation(devices), devices // size)


def turns(group: Indices, pieces: int, drop_out: float, generator: np.random.Generator) -> tuple[list[Turn], int]:
    """Shuffle a group until every device was dominator once. Returns the turns, and how many could not take place."""
    made, lost = [], 0
    for dominator in generator.permutation(group):
        others = generator.permutation(group[group != dominator])
        present = others[generator.random(len(others)) >= drop_out]
        away = generator.random() < drop_out
        if away or len(present) < pieces:
            lost += 1
            continue
        made.append(
            Turn(
                dominator=int(dominator),
                followers=tuple(present[:pieces].tolist()),
                dummies=tuple(present[pieces:].tolist()),
            )
        )
    return made, lost
