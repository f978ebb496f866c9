"""dp-fedavg: the clip follows the quantile; and whatever rows and broadcast are, no message is longer than it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.recipes.federated.dp_fedavg import Clipped, usable_clip
from crowdml.core import NUMPY, BadInput, Broadcast, CheckIn
from crowdml.models import flatten
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from tests.support.by_hand import Ones, batch, task, told
from tests.support.phases import stepped

SOUND = 'unit = "device"\nmechanism = "gaussian"\nepsilon = 8.0\ndelta = 1e-6\n[stop]\nmax-releases = 5'
STEPS = 'local-batch = 1\nper-round = 2\nrate = { kind = "constant", c = 0.5 }\nbit-share = 0.2'


def sent(clip: float, privacy: str = 'mode = "none"', scale: float = 1.0, seed: int = 0) -> Any:
    made = task("dp-fedavg", STEPS, privacy).built.last
    begun = Broadcast(parameters=({"w": np.full((2, 2), scale, np.float32)},), count=np.int32(1), more=np.float32(clip))
    return stepped(made, begun, batch(NUMPY), HashCoins(trial_seed(seed, 0), 1, NUMPY))[0].update


def test_a_short_change_is_sent_as_it_is_and_a_long_one_at_the_clip() -> None:
    short, long = sent(100.0), sent(0.01)
    assert float(short.below) == pytest.approx(np.sqrt(0.2)) == -float(long.below)
    assert np.linalg.norm(flatten(long.change)) == pytest.approx(np.sqrt(0.8), rel=1e-5)
    plain = stepped(
        task("fedavg", 'local-batch = 1\nper-round = 2\nrate = { kind = "constant", c = 0.5 }').built.last,
        told(count=np.int32(1)),
        batch(NUMPY),
        Ones(),
    )[0].update
    again = task("dp-fedavg", STEPS).built.last
    one = stepped(
        again, Broadcast(parameters=told().parameters, count=np.int32(1), more=np.float32(100.0)), batch(NUMPY), Ones()
    )[0].update
    np.testing.assert_allclose(flatten(one.change) * 100 / np.sqrt(0.8), flatten(plain), rtol=1e-5)


@pytest.mark.parametrize("clip", [0.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, 1e-12, 1.0, 1e12, 3e38])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_no_broadcast_makes_a_message_longer_than_it_says(clip: float, scale: float) -> None:
    sanitiser: Any = task("dp-fedavg", STEPS, SOUND).calibrated.last
    grid = sanitiser.mechanism.grid
    assert grid.radius == 1.0 and grid.per == "release"
    with np.errstate(over="ignore", invalid="ignore"):
        found = flatten(sent(clip, SOUND, scale)).astype(np.int64)
    # The integer check is the proof: ‖k‖² ≤ L² + d/4 + L.
    assert (found**2).sum() <= grid.levels**2 + found.size / 4 + grid.levels


def test_the_worst_neighbours_come_near_to_what_is_charged() -> None:
    made = task("dp-fedavg", STEPS, SOUND).built.last
    levels = made.sanitiser.mechanism.grid.levels  # type: ignore[attr-defined]
    ends = []
    for sign in (1.0, -1.0):
        direction = np.array([sign, 0, 0, 0], np.float32) * np.float32(np.sqrt(0.8))
        vector = Clipped(change=({"w": direction.reshape(2, 2)},), below=np.float32(sign * np.sqrt(0.2)))
        ends.append(flatten(made.sanitiser.bound_message(vector, HashCoins(trial_seed(1, 0), 1, NUMPY))))
    apart = np.linalg.norm(ends[0].astype(float) - ends[1])
    assert 1.9 * levels <= apart <= 2.01 * levels + 4


@pytest.mark.parametrize(("bits", "share"), [((1, 1), 1.0), ((1, -1), 0.5), ((-1, -1), 0.0)])
def test_the_clip_moves_towards_the_quantile(bits: tuple[int, int], share: float) -> None:
    part = task("dp-fedavg", f"{STEPS}\nquantile = 0.3\nclip-rate = 0.5\nfirst-clip = 2.0").built.last.server
    server = part.init(Ones())
    for bit in bits:
        update = Clipped(change=({"w": np.full((2, 2), 0.1, np.float32)},), below=np.float32(bit * np.sqrt(0.2)))
        server, _ = part.absorb(server, (), CheckIn(update=update, weight=np.int32(1)), np.int32(0))
    begun = flatten(server.parameters)
    after, _ = part.commit(server)
    assert float(after.clip) == pytest.approx(2.0 * np.exp(-0.5 * (share - 0.3)), rel=1e-5)
    np.testing.assert_allclose(flatten(after.parameters) - begun, 0.1 * 2.0 / np.sqrt(0.8), rtol=1e-5)


def test_a_clip_stays_usable() -> None:
    found = [float(usable_clip(np.float32(clip), NUMPY)) for clip in (np.nan, np.inf, 0.0, -3.0, 7.0)]
    assert found == pytest.approx([1.0, 1.0, 1e-12, 1e-12, 7.0])


def test_a_clip_of_the_terms_or_another_norm_is_refused() -> None:
    with pytest.raises(BadInput, match="the algorithm clips by itself, at a length that it learns"):
        task("dp-fedavg", STEPS, SOUND.replace("epsilon", "clip = 1.0\nepsilon"))
    with pytest.raises(BadInput, match="what the algorithm sends is bounded in L2"):
        task("dp-fedavg", STEPS, SOUND.replace("gaussian", "laplace"))
