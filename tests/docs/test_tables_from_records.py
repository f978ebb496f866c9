"""Tables that are written by hand say what the records say: whoever runs a study again finds those that do not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BESIDE = (
    "inverse variance",
    "learned",
    "learned, as in the paper",
    "learned, unconstrained",
    "fine-tuned on public rows",
)
AVERAGES = {
    "| IID, 1000 rows each": "odpfl/fig1",
    "| two shards of sorted rows each": "odpfl/fig2",
    "| 3 of 10 devices with wrong labels": "odpfl/mislabelled",
}
TO_SAMPLES = (0.1, 0.3, 1, 3)
TO_DEVICES = (0.3, 1, 3)
TOTAL = {
    "`consensus-newton`, wider public weights": ("consensus-newton, wider public weights", TO_SAMPLES),
    "`consensus-newton`, public scaling of two columns": ("consensus-newton, public scaling", TO_SAMPLES),
    "`consensus-newton`": ("consensus-newton", TO_SAMPLES),
    "`fedsgd`, 60 rounds": ("fedsgd, secure aggregation", TO_SAMPLES),
    "`ridge`, one round": ("ridge, one round", TO_SAMPLES),
    "`fedsgd` without masks": ("fedsgd, each device by itself", TO_DEVICES),
    "`admm`, public scaling of two columns": (
        "admm, secure aggregation, promise to devices, public scaling",
        TO_DEVICES,
    ),
    "`admm`": ("admm, secure aggregation, promise to devices", TO_DEVICES),
    "`fedsgd`, 150 rounds, mean of the last half (`average-from`)": (
        "fedsgd, secure aggregation, promise to devices",
        TO_DEVICES,
    ),
}
UNLIKE = {
    "`consensus-newton`, public scaling": "consensus-newton, public scaling, ε = 1",
    "`fedsgd`": "fedsgd, secure aggregation, ε = 1",
    "`ridge`": "ridge, one round, ε = 1",
    "`admm` without noise, ρ = 0.02, 20 versions": "admm without noise",
    "`admm` without noise, ρ = 3, 20 versions": "admm without noise, ρ = 3",
    "`admm` without noise, ρ = 0.02, barrier of 50, uneven devices": "admm without noise, s = 50 of 100",
    "`admm` to devices, public scaling": "admm, secure aggregation, promise to devices, public scaling, ε = 1",
    "`admm` to devices, public scaling, barrier of 500, uneven devices": (
        "admm, secure aggregation, promise to devices, s = 500 of 1000, public scaling, ε = 1"
    ),
}
BANDS = {"accuracy, fresh noise": "fresh noise", "accuracy, 4 bands": "4 bands", "accuracy, 16 bands": "16 bands"}
LIARS = ("label-flip", "sign", "noise", "alie", "inner-product", "adaptive")
ATTACKED = {
    "20 %, geometric median": "20 %, geometric median",
    "40 %, root set of 100 rows": "40 %, root set",
    "one device of 50, geometric median": "one device, geometric median",
}
GROUPS = ("S-SGD", "n = 5", "n = 10", "n = 15", "n = 20", "C-SGD")


def found(study: str) -> dict[str, tuple[float, str]]:
    """Return what a record has by setting, the first figure of each that is one, and what it measures."""
    rows = json.loads((ROOT / "results" / f"{study}.json").read_text(encoding="utf-8"))["rows"]
    return {row["setting"]: (row["ours"], row["metric"]) for row in reversed(rows) if row["ours"] is not None}


def behind(study: str) -> dict[str, tuple[float, str]]:
    """Return by setting how far a curve is behind the centralised fit, and its standard error."""
    rows = json.loads((ROOT / "results" / f"{study}.json").read_text(encoding="utf-8"))["rows"]
    known = ((row, re.fullmatch(r"behind centralised \(s\.e\. ([\d.]+)\)", row["metric"])) for row in rows)
    return {row["setting"]: (row["ours"], error[1]) for row, error in known if error}


def cells(page: str, first: str) -> list[str]:
    """Return the cells of a table's line after its first, which begins so."""
    text = (ROOT / "docs" / "concepts" / page).read_text(encoding="utf-8")
    lines = text.partition("\n## Measured\n")[2].splitlines() or text.splitlines()
    line = next(line for line in lines if line.startswith(first))
    return [cell.strip().strip("*") for cell in line.strip("|").split("|")[1:]]


def number(words: str) -> float:
    return float(words.replace("−", "-").replace("+", ""))  # as pages write it


@pytest.mark.parametrize("line", AVERAGES)
def test_gains_over_averaging_by_size(line: str) -> None:
    study = found(AVERAGES[line])
    shown = cells("averaging.md", line)
    text = (ROOT / "docs" / "concepts" / "averaging.md").read_text(encoding="utf-8")
    plain = study["by size"][0]
    assert re.search(re.escape(line) + rf"[^|]*: {100 * plain:.1f} %", text)
    for told, label in zip(shown, (*BESIDE, "public rows only"), strict=True):
        words, _, worst = told.partition(" (worst ")
        assert number(words.strip("*")) == pytest.approx(100 * (study[label][0] - plain), abs=0.051), label
        if worst:
            known = study["learned over by size, worst trial"][0]
            assert number(worst.strip("*) ")) == pytest.approx(100 * known, abs=0.0051)


@pytest.mark.parametrize("line", TOTAL)
def test_costs_of_a_promise(line: str) -> None:
    curve, epsilons = TOTAL[line]
    shown = [cell for cell in cells("admm.md", f"| {line} |") if cell]
    study = behind("admm/total")
    assert shown == ["{:.4f} ({})".format(*study[f"{curve}, ε = {epsilon:g}"]) for epsilon in epsilons]


@pytest.mark.parametrize("line", UNLIKE)
def test_costs_of_one_label_per_device(line: str) -> None:
    lines = (ROOT / "docs" / "concepts" / "admm.md").read_text(encoding="utf-8").split("one label per device |")[1]
    shown = next(each for each in lines.splitlines() if each.startswith(f"| {line} |")).strip("|").split("|")[1:]
    study = behind("admm/unlike")
    wanted = [study[f"{UNLIKE[line]}; {rows}"] for rows in ("rows dealt at random", "one label per device")]
    assert [cell.strip() for cell in shown] == ["{:.4f} ({})".format(*each) for each in wanted]


@pytest.mark.parametrize("line", BANDS)
def test_accuracy_with_correlated_noise(line: str) -> None:
    study = found("crowdml-2016/correlated")
    wanted = [f"{study[f'{BANDS[line]}, ε = {epsilon}'][0]:.3f}" for epsilon in (1, 2, 4, 8)]
    assert cells("local-updates.md", f"| {line} |") == wanted


@pytest.mark.parametrize("line", ATTACKED)
def test_points_lost_to_liars(line: str) -> None:
    study = found("odpfl/attacks")
    for told, liar in zip(cells("byzantine-devices.md", f"| {line} |"), LIARS, strict=False):
        digits = len(told.partition(".")[2])
        lost = 100 * study[f"{ATTACKED[line]}: {liar}"][0]
        assert number(told) == pytest.approx(lost, abs=0.5001 * 10**-digits), liar


def test_errors_of_groups() -> None:
    study = found("slicenet/table1")
    assert cells("slicing.md", "| ours, ") == [f"{study[label][0]:.2f}" for label in GROUPS]
