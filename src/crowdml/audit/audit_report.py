"""What an audit found, as values and in words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

from crowdml.audit.attack import ONE_THRESHOLD, Finding
from crowdml.audit.audit_drawing import draw_findings
from crowdml.audit.canaries import ONE_RUN
from crowdml.audit.whole_check_ins import Measured
from crowdml.core import record

ROUNDING = 1e-6
"""More than a distance of integers over a proven one is off by rounding."""


@record
class Shown:
    """A table for people.

    Attributes:
        title: What it shows.
        columns: Names of its columns.
        rows: Its cells.
        right: Columns that are set to the right.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()


class Found(Protocol):
    """What every audit comes to."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found against what is promised."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""

    def tables(self) -> list[Shown]:
        """Return what is shown to people."""

    def words(self) -> list[str]:
        """Say what it means."""

    def draw(self, path: Path) -> None:
        """Draw it."""


@record
class Audit:
    """What was found out about a task that promises something.

    Attributes:
        task: The task's name.
        recipe: Its algorithm.
        unit: What is promised something: a sample, or a device.
        promised: The ε and δ that owners are promised.
        apart: How far apart the worst neighbours' messages are, as a share of what is proven: 1 is as far as can be.
        findings: One for each bound.
        measured: The noise of whole check-ins.
        measured_control: The same where the device adds half the noise; None where that was not tried.
        confidence: Probability that all bounds hold together.
        family: How many bounds that are.
        seconds: How long it took.
        rests_on: Honest survivors whose noise the attack left in the sum; 0 where each message is seen by itself.
    """

    task: str
    recipe: str
    unit: str
    promised: tuple[float, float]
    apart: float
    findings: tuple[Finding, ...]
    measured: Measured
    confidence: float
    family: int
    seconds: float
    rests_on: int = 0
    measured_control: Measured | None = None

    @property
    def holds(self) -> bool:
        """Whether messages obey their bound, no bound on ε exceeds its claim, and all noise was there."""
        return self.is_bounded and self.measured.holds and all(finding.holds for finding in self.findings)

    @property
    def is_bounded(self) -> bool:
        """Whether no neighbours were found whose messages, without noise, are further apart than the proof allows."""
        return self.apart <= 1 + ROUNDING

    @property
    def is_powerful(self) -> bool:
        """Whether half the noise would have been found out."""
        noticed = self.measured_control is not None and not self.measured_control.holds
        return noticed or any(finding.is_powerful for finding in self.findings)

    @property
    def verdict(self) -> str:
        """Say in a sentence what was found."""
        if not self.is_bounded:
            return f"BROKEN: two neighbours' messages are {self.apart:.3g} times as far apart as the proof allows"
        if not self.measured.holds:
            return f"BROKEN: {noise_problem(self.measured)}"
        refuted = [finding for finding in self.findings if not finding.holds]
        if refuted:
            worst = max(refuted, key=lambda finding: finding.share)
            return (
                f"BROKEN: {worst.what} reveal{'s' * (worst.what[0] == 'o')} more than was promised: ε is at least "
                f"{worst.bound:.3g}, and {worst.proven.epsilon:.3g} is claimed"
            )
        nearest = max(self.findings, key=lambda finding: finding.share)
        said = (
            f"nothing was found against the promise; the best attack proves ε ≥ {nearest.bound:.3g}, "
            f"{nearest.share:.0%} of what is claimed for {nearest.what}"
        )
        if self.measured_control is not None and not self.is_powerful:
            said += "; but half the noise would not have been found out either: try more --trials"
        return said

    def tables(self) -> list[Shown]:
        """Show every bound beside its claim and its control."""
        columns = ("what is seen", "bound by", "ε claimed", "ε at least", "share", "half the noise", "")
        rows = tuple(
            (
                finding.what,
                finding.method,
                f"{finding.proven.epsilon:.3g}",
                f"{finding.bound:.3g}",
                f"{finding.share:.0%}",
                "" if finding.control is None else f"{finding.control:.3g}{' caught' * finding.is_powerful}",
                "holds" if finding.holds else "BROKEN",
            )
            for finding in self.findings
        )
        delta = f", δ = {self.promised[1]:g}" if self.promised[1] else ""
        title = f"{self.task} ({self.recipe}): ε = {self.promised[0]:g}{delta} is promised to every {self.unit}"
        return [Shown(title=title, columns=columns, rows=rows, right=columns[2:6])]

    def words(self) -> list[str]:
        """Say what was done, and the verdict."""
        trials = min(finding.trials for finding in self.findings if finding.method != ONE_RUN)
        said = [
            f"worst neighbours found: their messages are {self.apart:.1%} as far apart as the proof allows",
            f"{trials} trials in each world at least; all {self.family} statements hold together with confidence "
            f"{self.confidence:g}",
            self._noise_words(),
        ]
        if any(finding.method == ONE_THRESHOLD for finding in self.findings):
            said.append("μ at one threshold: the strength of Gaussian noise is bounded, and shown as ε at the same δ")
        given_away = [finding for finding in self.findings if finding.ideal and finding.method == ONE_THRESHOLD]
        if given_away:
            best = max(given_away, key=lambda finding: finding.share)
            assert best.ideal  # noqa: S101  chosen so
            said.append(
                f"of a secure sum Rényi divergences are proven, from which ε = {best.proven.epsilon:.3g} follows for "
                f"{best.what}; Gaussian noise of the same strength has {best.ideal:.3g}, and of that the attack proves "
                f"{best.bound / best.ideal:.0%}: the rest of the gap is the proof's"
            )
        if self.rests_on:
            said.append(f"the sum is attacked with the noise of {self.rests_on} honest survivors in it, no more")
        return [*said, f"verdict: {self.verdict}"]

    def _noise_words(self) -> str:
        noise, control = self.measured, self.measured_control
        said = noise_problem(noise) or f"{noise.share**0.5:.4f} of what was promised, fresh each time"
        planted = f"; with half of it planted: {control.share**0.5:.4f}" if control else ""
        return f"noise on {noise.numbers} numbers of {noise.check_ins} whole check-ins: {said}{planted}"

    def draw(self, path: Path) -> None:
        """Draw every bound beside its claim and its control."""
        draw_findings(self.findings, f"{self.task} ({self.recipe}), unit {self.unit}: attacked", path)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "task": self.task,
            "recipe": self.recipe,
            "unit": self.unit,
            "promised": {"epsilon": self.promised[0], "delta": self.promised[1]},
            "holds": self.holds,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "family": self.family,
            "neighbours": round(self.apart, 6),
            "honest_survivors": self.rests_on or None,
            "findings": [finding_json(finding) for finding in self.findings],
            "noise": _measured(self.measured),
            "noise_control": _measured(self.measured_control) if self.measured_control else None,
            "seconds": round(self.seconds, 2),
        }


def _measured(measured: Measured) -> dict[str, Any]:
    finite = {name: value for name, value in vars(measured).items() if value != math.inf}
    return finite | {"holds": measured.holds}


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return plain values."""
    return {
        "what": finding.what,
        "method": finding.method,
        "trials": finding.trials,
        "hits": finding.guesses.hits,
        "false_alarms": finding.guesses.alarms,
        "proven": finding.proven.to_json(),
        "bound": finding.bound,
        "share": finding.share,
        "ideal": finding.ideal,
        "control": finding.control,
        "control_caught": finding.is_powerful,
        "holds": finding.holds,
    }


def noise_problem(measured: Measured) -> str:
    """Say what is wrong with the noise of whole check-ins; empty where nothing is."""
    if measured.most < 1.0:
        return f"only {max(measured.share, 0.0) ** 0.5:.3g} of the noise that was promised leaves the device"
    if measured.counts_most < 1.0:
        return "counts leave the device with less noise than was promised"
    if measured.repeated > measured.allowed:
        return "two check-ins carry the same noise: their difference has none"
    return ""
