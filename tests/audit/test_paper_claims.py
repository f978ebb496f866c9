"""A paper's formula attacked: our own figure holds, and an ε for each release is none for all of them."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from crowdml.audit import Options, run
from crowdml.audit.attack import CLOPPER_PEARSON, ONE_THRESHOLD
from crowdml.audit.paper_claims import PaperAudit
from crowdml.audit.simulated import ChanceSums
from crowdml.core import BadInput, trees
from crowdml.privacy.sanitisers.paper import Paper
from tests.audit.attacked_tasks import attacked_task

SURE = 1 - 1e-6
CROWD = "algorithm={ kind = 'crowd-sgd', batch = 4 }"
STEPS = "algorithm={ kind = 'fedavg', local-batch = 5, local-steps = 20 }"


def audited(privacy: str, *changes: str, control: bool = False, trials: int = 6_000) -> PaperAudit:
    """Attack a small task in mode `paper`."""
    task = attacked_task("crowd-sgd", changes=(f"privacy={{ mode = 'paper', clip = 0.5, {privacy} }}", *changes))
    found = run(task, Options(trials=trials, confidence=SURE, control=control))
    assert isinstance(found, PaperAudit)
    return found


@pytest.mark.parametrize(
    ("privacy", "method", "near"),
    [
        ("mechanism = 'laplace', epsilon = 2.0", CLOPPER_PEARSON, 0.6),
        ("mechanism = 'gaussian', epsilon = 2.0, delta = 1e-5", ONE_THRESHOLD, 0.5),
        ("mechanism = 'laplace', epsilon = 3.0, statistics-epsilon = 1.0", CLOPPER_PEARSON, 0.45),
        ("mechanism = 'k-norm', epsilon = 2.0", CLOPPER_PEARSON, 0.1),
    ],
)
def test_a_claim_for_each_release_holds_there_and_our_sum_over_all(privacy: str, method: str, near: float) -> None:
    found = audited(privacy, CROWD, "crowd.passes=5", trials=18_000)  # so many that no share comes near its limit
    assert found.holds, found.verdict
    assert found.apart == pytest.approx(1.0, abs=0.02)
    one, *_, many = (finding for finding in found.findings if finding.method == method)
    assert one.share > near and one.bound <= found.claimed[0]
    assert many.what == "all 5 releases of a sample" and many.proven.epsilon > found.claimed[0]
    if near > 0.1:
        assert many in found.refuted and found.verdict.startswith("the paper's ε")
        assert found.to_json()["refuted"]


@pytest.mark.parametrize("sampling", ["'poisson', adjacency = 'add-remove'", "'fixed'"])
def test_all_steps_that_take_rows_by_chance_are_attacked_together(sampling: str, tmp_path: Path) -> None:
    told = f"mechanism = 'gaussian', noise-at = 'steps', sampling = {sampling}, sampling-rate = 0.1"
    # A pilot chooses where to look. In one attack of twenty that place proves nothing, so there are four attacks.
    several = [audited(f"{told}, epsilon = 4.0, delta = 1e-5", STEPS, control=True) for _ in range(4)]
    for found in several:
        assert found.holds, found.verdict
        assert found.apart == pytest.approx(1.0, abs=0.02)
        assert [finding.what for finding in found.findings] == ["all 60 steps"]
    strongest = max((found.findings[0] for found in several), key=lambda finding: finding.bound)
    assert strongest.bound > 0 and strongest.control is not None and strongest.control > strongest.bound
    found = several[0]
    found.draw(tmp_path / "steps.png")
    assert (tmp_path / "steps.png").stat().st_size > 0 and "mode paper" not in found.words()[-1]


def test_half_of_a_formula_is_found_out() -> None:
    noise = Paper.scale_of
    with mock.patch.object(Paper, "scale_of", lambda self, release: noise(self, release) / 2):
        found = audited("mechanism = 'laplace', epsilon = 1.0", CROWD)
    assert not found.holds and found.verdict.startswith("BROKEN: one release")


def test_steps_whose_rows_are_not_clipped_are_found_out() -> None:
    told = "mechanism = 'gaussian', noise-at = 'steps', sampling = 'fixed', sampling-rate = 0.1, epsilon = 4.0"
    plain = ChanceSums.plain

    def twice(self: ChanceSums, *given: object) -> object:
        release, work = plain(self, *given)  # type: ignore[arg-type]
        return type(release)(update=trees.map(lambda leaf: 2 * leaf, release.update), rows=release.rows), work

    with mock.patch.object(ChanceSums, "plain", twice):
        found = audited(f"{told}, delta = 1e-5", STEPS, trials=1_000)
    assert not found.holds and "times as far apart" in found.verdict


def test_noise_without_a_claim_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no claim to attack"):
        run(
            attacked_task("crowd-sgd", changes=("privacy={ mode = 'paper', noise-scale = 1.0 }", CROWD)),
            Options(trials=1_000),
        )
    rows = ("privacy={ mode = 'paper', epsilon = 1.0 }", "algorithm={ kind = 'central-batch' }")
    norm = "data.transform=[{ kind = 'norm', order = 1, at-most = 1.0 }]"
    with pytest.raises(BadInput, match="it sends rows themselves"):
        run(attacked_task("crowd-sgd", changes=(*rows, norm)), Options(trials=1_000))
