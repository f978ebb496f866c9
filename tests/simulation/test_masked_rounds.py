from __future__ import annotations

import numpy as np

from crowdml.algorithms import parse
from crowdml.simulation.contacts import Contacts
from crowdml.simulation.timeline import _enough


def test_rounds_that_lost_too_many_are_given_up() -> None:
    """Three rounds with 3, 2 and 4 survivors, where a masked sum needs 3."""
    read = np.repeat([0.0, 1.0, 2.0], [3, 2, 4])
    whole = np.arange(len(read))
    contacts = Contacts(device=whole, rows=whole[:, None], counts=whole, filled=read, read=read, arrival=read + 0.5)
    assert _enough(contacts, 3).device.tolist() == [0, 1, 2, 5, 6, 7, 8]


def test_the_task_file_says_how_many_a_round_needs() -> None:
    task = parse(
        """
        crowdml = 1
        name = "t"
        data = { features = 2, labels = ["a", "b"] }
        model = { kind = "logistic" }
        algorithm = { kind = "fedavg", per-round = 10 }
        privacy = { mode = "none" }
        sums = { masked = true, drop-out = 0.25 }
        """
    )
    masking = task.masking()
    assert masking is not None
    assert masking.least == 8
