"""What owners are told, claim by claim, against the plan and against what a device really sends."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.core import NUMPY, Batch, trees
from crowdml.core.ops import ZeroCoins
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.task import Task
from crowdml.task.owners import OwnerPromise, owner_promise
from crowdml.task.owners.dots import Dots
from crowdml.task.owners.who_sees import AUDIENCES, FACTS, Audience, Fact, Sight
from crowdml.wire import message

EXAMPLES = Path(__file__).parents[2] / "examples"
GAUSSIAN = "privacy={ mechanism = 'gaussian', clip = 0.5, epsilon = 4.0, delta = 1e-5, max-uses = 6"
LAPLACE = "privacy={{ clip = 0.5, epsilon = {}"
COUNTS = "algorithm={ kind = 'crowd-sgd', batch = 10 }"
TASKS: dict[str, tuple[str, list[str]]] = {
    **{path.stem: (path.name, []) for path in sorted(EXAMPLES.glob("*.toml"))},
    "one release": ("digits.toml", [LAPLACE.format(1.0) + ", max-uses = 1 }"]),
    "counts": ("digits.toml", [f"{GAUSSIAN}, statistics-epsilon = 0.5 }}", COUNTS]),
    "laplace, counts": (
        "digits.toml",
        ["privacy={ epsilon = 2.0, clip = 0.5, max-uses = 3, statistics-epsilon = 0.5 }"],
    ),
    "device": ("sound-mnist.toml", ["privacy.unit='device'", "privacy.epsilon=2.0"]),
    "device, sums": ("secagg-digits.toml", ["privacy.unit='device'", "stop.max-releases=4", "privacy.epsilon=6.0"]),
    "skellam": ("secagg-digits.toml", ["secure-aggregation.law='skellam'"]),
    "weak": ("digits.toml", [LAPLACE.format(40.0) + ", max-uses = 1 }"]),
    "fewer releases than uses": ("sound-mnist.toml", ["stop.max-releases=3"]),
    "alone": ("digits.toml", ["algorithm={ kind = 'decentral' }"]),
    "rows": ("digits.toml", ["algorithm={ kind = 'central-sgd' }"]),
}

WITHOUT_CHECK_INS = ("alone", "rows", "sliced-digits", "private-pictures")
"""Nothing is sent, or rows or pieces are, or (in a simulation) steps are random."""


def load(name: str) -> Task:
    file, changes = TASKS[name]
    return Task.load(EXAMPLES / file, ["crowd.passes=1", *changes] if changes else [])


def cell(told: OwnerPromise, audience: Audience, fact: Fact) -> Sight:
    return next(sight for sight in told.sees if (sight.audience, sight.fact) == (audience, fact))


def all_words(told: OwnerPromise) -> str:
    parts = [f"{part.what} {part.size} {part.plainly}" for part in told.leaves]
    return " ".join([told.in_odds, told.trust, *parts, *(sight.words for sight in told.sees)])


def variation(mu: float, pure: float, times: int) -> float:
    """Half the integral of |p - q|: coins of randomised response by how many came up, beside one Gaussian number."""
    x = np.linspace(-14.0, 14.0 + mu, 60_001)
    ratio = 1 / (1 + math.exp(-pure))
    total, (first, second) = 0.0, (np.exp(-(x**2) / 2), np.exp(-((x - mu) ** 2) / 2))
    for heads in range(times + 1):
        ways, tails = math.comb(times, heads), times - heads
        one, other = ratio**heads * (1 - ratio) ** tails, ratio**tails * (1 - ratio) ** heads
        total += ways * float(np.abs(one * first - other * second).sum())
    return total * float(x[1] - x[0]) / math.sqrt(2 * math.pi) / 2


def by_hand(task: Task) -> float:
    """Odds of the promised unit from bound and scale of the noise alone, by integrating densities.

    Of secure sums the largest distance of two coins with the divergences of the sum, found on a square of all coins.
    """
    plan = task.calibrated
    last, uses = plan.last, min(plan.terms.uses, task.stop.max_releases or plan.terms.uses)
    assert isinstance(last, OnGrid)
    mechanism = last.mechanism
    moved = mechanism.grid.sensitivity
    if mechanism.stable and plan.terms.unit == "sample":
        moved = mechanism.stable.bound / mechanism.grid.step + math.sqrt(mechanism.grid.size)
    if mechanism.shared:
        rho = uses * moved**2 / (2 * mechanism.scale**2 * mechanism.shared.survivors)
        p, q = np.meshgrid(np.linspace(0.0005, 0.9995, 1000), np.linspace(0.0005, 0.9995, 1000))
        allowed = np.ones_like(p, dtype=bool)
        for a, b in ((p, q), (q, p)):
            allowed &= a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b)) <= rho
        return (1 + float((p - q)[allowed].max())) / 2
    counts = 0.0
    if last.counts:
        rows = 1 if plan.terms.unit == "sample" else plan.terms.rows or 1
        counts = rows / last.counts.errors + 2 * rows / last.counts.spread
    if mechanism.law.pure:
        assert not counts, "counts beside pure noise are listed in tests of odds"
        return (1 + variation(0.0, moved / mechanism.scale, uses)) / 2
    return (1 + variation(moved / mechanism.scale * math.sqrt(uses), counts, uses)) / 2


@pytest.mark.parametrize(
    "name",
    [
        "diabetes", "secagg-digits", "sound-mnist", "one release", "counts", "device", "device, sums",
        "fewer releases than uses",
    ],
)  # fmt: skip
def test_odds_agree_with_a_separate_computation(name: str) -> None:
    """To half a guess of a hundred, for every shipped example with a promise; and what is shown is never kinder."""
    task = load(name)
    told, expected = owner_promise(task), by_hand(task)
    odds = told.promised.odds
    assert odds is not None
    assert abs(100 * odds.success - 100 * expected) < 0.5, (odds, expected)
    assert odds.of_100 >= 100 * odds.success and odds.of_100 - 100 * odds.success < 1


@pytest.mark.parametrize("name", TASKS)
def test_every_claim_is_true_for_the_task(name: str) -> None:
    task = load(name)
    plan, told = task.calibrated, owner_promise(task)
    assert told.guaranteed == plan.terms.promised
    for about, unit in ((told.row, "sample"), (told.device, "device")):
        assert about.promised == (plan.terms.promised and plan.terms.unit == unit)
        said = [int(number) for number in re.findall(r"no method is right more than (\d+) times", about.words)]
        assert said == ([about.odds.of_100] if about.odds and about.odds.says_something else [])
        assert (about.dots is not None) == bool(said)
    if plan.terms.promised:
        assert ("nothing is promised" in told.device.words) == (not told.device.dots and plan.terms.unit == "sample")
        assert "If you do not join, it stays 50." in told.in_odds
    elif told.leaves and not told.only_simulated:
        assert told.in_odds.startswith("Nothing is promised.") and "100 times in 100" in told.in_odds
    assert ("too weak" in told.in_odds) == (name == "weak")
    assert ("other owners" in told.trust) == (plan.terms.promised and task.masking() is None)
    if masking := task.masking():
        assert f"no more than {masking.corrupt} work together" in told.trust and "need not trust" not in told.trust


@pytest.mark.parametrize("name", TASKS)
def test_an_owner_reads_no_letter_of_the_field(name: str) -> None:
    words = all_words(owner_promise(load(name)))
    assert not re.search("[α-ωΑ-Ω]", words), words
    for word in ("epsilon", "delta", "clip", "gaussian", "laplace", "L2", "sample", "gradient", "adjacency"):
        assert not re.search(rf"\b{word}", words, re.I), word


@pytest.mark.parametrize("name", TASKS)
def test_who_sees_what_follows_from_the_plan(name: str) -> None:
    task = load(name)
    told = owner_promise(task)
    assert [(sight.audience, sight.fact) for sight in told.sees] == [(who, what) for who in AUDIENCES for what in FACTS]
    for who in AUDIENCES:
        for fact, about in (("row", told.row), ("rows", told.device)):
            seen = cell(told, who, fact)  # type: ignore[arg-type]
            assert (seen.answer == "odds") == bool(about.dots)
            assert not about.dots or str(about.dots.right) in seen.words
    if told.leaves:
        assert {cell(told, "operator", fact).answer for fact in ("part", "when")} == {"yes"}
    masked = task.masking() is not None
    sliced = task.algorithm.kind == "slicenet"
    assert (cell(told, "owners", "part").answer == "yes") == (masked or sliced)
    assert cell(told, "anyone", "part").answer == cell(told, "anyone", "count").answer == "no"
    assert not masked or cell(told, "operator", "count").answer == "no"


@pytest.mark.parametrize("name", TASKS)
def test_what_statistics_show_to_everybody_is_said(name: str) -> None:
    told = owner_promise(load(name))
    if not told.leaves:
        return
    # Totals are public, and go on with every check-in; so whoever watches sees when one came, and of how many rows.
    assert "everybody may see when a message comes" in cell(told, "anyone", "when").words
    counted = any(part.counts_rows for part in told.leaves)
    assert ("everybody may see how many rows" in cell(told, "anyone", "count").words) == counted
    counts = any(part.name.startswith("counts/") for part in told.leaves)
    if not told.guaranteed and cell(told, "anyone", "rows").words.startswith("only"):
        assert ("public counts" in cell(told, "anyone", "rows").words) == counts


@pytest.mark.parametrize("members", ["named", "hidden"])
def test_owners_read_who_sees_what_in_a_group(members: str) -> None:
    sliced = f"algorithm={{kind='slicenet', pieces=3, members='{members}'}}"
    net, none = "model={kind='mlp', layers=[8, 4]}", "privacy={mode='none'}"
    task = Task.load(EXAMPLES / "digits.toml", [sliced, net, none])
    told = owner_promise(task)
    within = dict(told.members)
    assert within["followers with neurons of the first layer"] == "sums of your rows"
    assert within["holders of the last hidden layer"] == "your labels exactly"
    assert "replayed" in within["a dummy that takes a piece over"] and "weights" in within["the next dominator"]
    assert "how many rows" in within["the server"]
    assert ("puts itself in between" in within["the server"]) == (members == "hidden")
    assert cell(told, "operator", "count").answer == cell(told, "owners", "count").answer == "yes"
    assert "your labels exactly" in cell(told, "owners", "row").words
    assert "groups that trust each other" in told.trust
    assert told.to_json()["members"] == within


def sent(task: Task, rows: int) -> dict[str, Any]:
    """What a real device of the task would send with so many rows, part by part, without noise."""
    algorithm, found = task.build(NUMPY), dict[str, Any]()
    size = max(algorithm.schedule.batch, 8)
    size += -size % algorithm.schedule.multiple
    generator = np.random.default_rng(0)
    batch = Batch(
        rows=generator.normal(size=(size, task.features)).astype(np.float32),
        targets=np.zeros(size, task.target.dtype),
        mask=(np.arange(size) < rows).astype(np.float32),
    )
    server, device = algorithm.last.server, algorithm.last.begin()
    broadcast = server.check_out(server.init(ZeroCoins()))
    for phase in algorithm.phases:
        check_in, device = phase.contribute(broadcast, device, batch, ZeroCoins())
        found |= {path.removeprefix("content/"): np.asarray(leaf) for path, leaf in trees.paths(message(0, check_in))}
    return found


@pytest.mark.parametrize("name", [name for name in TASKS if name not in WITHOUT_CHECK_INS])
def test_what_is_said_to_tell_nothing_of_the_rows_does_not(name: str) -> None:
    """Two real messages over three rows and over seven: what is sent as it is and differs, says so; and the reverse."""
    task = load(name)
    told, few, many = owner_promise(task), sent(task, 3), sent(task, 7)
    assert {part.name for part in told.leaves} == set(few)
    for part in told.leaves:
        differs = not np.array_equal(few[part.name], many[part.name])
        if part.counts_rows:
            assert differs, part.name
        elif part.clear and task.calibrated.terms.promised:
            assert not differs, f"{part.name} tells something of the rows, and nothing is said about it"
    seen = cell(told, "operator", "count").answer == "yes"
    assert seen == any(part.counts_rows and part.clear for part in told.leaves)


def test_it_can_be_written_and_read() -> None:
    told = json.loads(json.dumps(owner_promise(load("sound-mnist")).to_json(), allow_nan=False))
    assert told["row"]["odds"]["of_100"] == 78 and len(told["sees"]["cells"]) == 20
    assert told["row"]["promised"] and not told["device"]["promised"]


def test_a_chosen_epsilon_has_odds_of_its_own() -> None:
    terms = LAPLACE.format(4.0) + ", max-uses = 1, owner-range = [0.5, 4.0] }"
    task = Task.load(EXAMPLES / "digits.toml", ["crowd.passes=1", terms])
    own, common = owner_promise(task, task.calibrated.for_owner(0.5)), owner_promise(task)
    assert own.row.odds and common.row.odds
    assert (own.row.odds.of_100, common.row.odds.of_100) == (63, 99)


@given(st.integers(50, 100))
def test_a_hundred_dots(right: int) -> None:
    dots = Dots(right=right, about="one of your rows")
    text, svg = dots.text(), dots.svg("row")
    assert text.count("●") == svg.count("dots-coin") == 50 and text.count("◆") == svg.count("dots-added") == right - 50
    assert text.count("○") == svg.count("dots-wrong") == 100 - right and len(text.splitlines()) == 10
    assert f"more than {right} right" in svg and "style=" not in svg and "<script" not in svg
    assert 'role="img"' in svg and 'aria-labelledby="row-title row-desc"' in svg and "<title" in svg and "<desc" in svg


def test_dots_that_cannot_be_are_refused() -> None:
    for right in (49, 101):
        with pytest.raises(ValueError, match="guesses of a hundred"):
            Dots(right=right, about="a row")
    assert "<b>" not in Dots(right=60, about="<b>").svg('"><script>')
    assert "<script>" not in Dots(right=60, about="<b>").svg('"><script>')


def test_parts_of_which_the_same_is_said_are_one_line() -> None:
    changes = ("model.bias=true", "crowd.passes=6", *TASKS["counts"][1])
    told = owner_promise(Task.load(EXAMPLES / "digits.toml", changes))
    updates = [part for part in told.leaves if part.name.startswith("update/")]
    (line,) = (part for part in told.leaves_in_full if part.what == updates[0].what)
    assert len(updates) == 2 and line.size_bytes == sum(part.size_bytes for part in updates)
    assert len(told.leaves_in_full) == len(told.leaves) - 1
    # Where figures differ, as those of two counts do, each has its line.
    noisy = {part.protection for part in told.leaves_in_full if part.name.startswith("counts/") and not part.clear}
    assert len(noisy) == 2
