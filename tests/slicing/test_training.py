"""Groups: everybody is dominator once, followers hold the pieces, dummies stand in."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.slicing.training import make_groups, turns


def test_devices_are_dealt_into_groups_of_sufficient_size() -> None:
    groups = make_groups(23, 4, 1, np.random.default_rng(0))
    assert sorted(np.concatenate(groups).tolist()) == list(range(23))
    assert len(groups) == 3 and min(len(group) for group in groups) >= 6
    with pytest.raises(BadInput, match="needs 6 devices"):
        make_groups(5, 4, 1, np.random.default_rng(0))


def test_every_device_is_dominator_once_and_pieces_are_dealt_anew() -> None:
    group = np.arange(10, 17)
    made, lost = turns(group, 4, 0.0, np.random.default_rng(1))
    assert lost == 0 and sorted(turn.dominator for turn in made) == group.tolist()
    for turn in made:
        assert len(turn.followers) == 4 and len(turn.dummies) == 2
        assert {turn.dominator, *turn.followers, *turn.dummies} == set(group.tolist())
    assert len({turn.followers for turn in made}) > 1


def test_dummies_save_turns_that_drop_outs_would_cost() -> None:
    """4000 turns each; 0.9^5 = 0.59 take place without dummies, and 0.9 · P(at least 4 of 7 there) = 0.897 with three.

    Standard deviations are 0.008 and 0.005: ± 0.04 gives a false alarm less than once in 10^6.
    """
    generator = np.random.default_rng(2)
    for size, share in ((5, 0.59), (8, 0.8976)):
        lost = sum(turns(np.arange(size), 4, 0.1, generator)[1] for _ in range(4000 // size))
        assert abs(1 - lost / (4000 // size * size) - share) < 0.04


def test_absent_devices_hold_no_piece() -> None:
    made, lost = turns(np.arange(6), 2, 0.5, np.random.default_rng(3))
    assert lost + len(made) == 6
    assert all(len(turn.followers) == 2 and turn.dominator not in turn.followers for turn in made)
