"""Studies curve by curve: what some curves of a long study found is put into the record of the whole.

A cell that takes an hour is run when and where there is an hour for it: `crowdml reproduce ID --curve LABEL --record
FOLDER`. The record says of every curve who ran it, and of curves that nobody has run that nobody has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crowdml.studies.figure import merged
from crowdml.studies.records import CurveRun, Record, record_of, settings_of, study_verdict, this_machine, today
from crowdml.studies.study import Report, Row
from crowdml.version import commit


def with_curves(stored: Record | None, report: Report) -> Record:
    """Put the curves of a report into the record of their study, in place of what was known of them.

    Args:
        stored: The record so far; None where there is none.
        report: Of curves that were run one by one.
    """
    if report.study.shares_its_record:  # what is run now may be a part of it
        report = replace(report, study=report.study.in_full)
    fresh = record_of(report)
    runs = (dict(stored.curves) if stored else {}) | _runs(report)
    labels = [curve.label for curve in report.study.curves]
    runs = {label: runs[label] for label in labels if label in runs}
    rows = _rows(stored.rows if stored else [], fresh, report)
    changed: dict[str, Any] = {
        "rows": rows,
        "verdict": study_verdict(rows, report.study.stands_in),
        "notes": list(dict.fromkeys([*report.study.notes, *(stored.notes if stored else []), *fresh.notes])),
        "settings": _settings(stored, report),
        "curves": runs,
        "figure": merged(stored.figure if stored else None, report.figure, labels),
    }
    if stored is not None and stored.source != "curves":  # the others were run as a whole, of which it speaks
        return stored.model_copy(update=changed | {"refuted_by": fresh.refuted_by, "claim": fresh.claim})
    spent = [run.cpu_seconds for run in runs.values()]
    known = [each for each in spent if each is not None]
    changed |= {
        "source": "curves",
        "seeds": sorted({run.seed for run in runs.values()}),
        "cpu_seconds": round(sum(known), 2) if len(known) == len(spent) else None,
    }
    return fresh.model_copy(update=changed)


def _runs(report: Report) -> dict[str, CurveRun]:
    """Say how the curves of a report were run."""
    return {
        label: CurveRun(
            commits=list(spent.commits),
            judged_by=commit(),
            date=today(),
            seed=report.seed,
            trials=report.trials,
            cpu_seconds=None if spent.cpu_seconds is None else round(spent.cpu_seconds, 2),
            machine=this_machine(),
        )
        for label, spent in report.apart.items()
    }


def _rows(stored: list[Row], fresh: Record, report: Report) -> list[Row]:
    """Return the rows of all curves, in their order, then what belongs to none."""
    labels = [curve.label for curve in report.study.curves]
    rows: list[Row] = []
    for label in labels:
        source = fresh.rows if label in report.apart else stored
        known = [row for row in source if row.setting == label and row.verdict != "not run"]
        why = f"nobody has run it; {'--full ' * report.study.shares_its_record}--curve with its name runs it by itself"
        rows += known or [report.study.by_curve.not_run(label, why)]
    taken = {*labels, *(row.setting for row in report.study.missing)}
    others = {(row.setting, row.metric): row for row in (*stored, *fresh.rows) if row.setting not in taken}
    return [*rows, *(row for row in others.values() if row.verdict != "not run"), *report.study.missing]


def _settings(stored: Record | None, report: Report) -> dict[str, list[str]]:
    """Return what was run: of curves that others have run, what stood there then."""
    present = settings_of(report.study)
    if stored is None:
        return present
    kept = {row.setting for row in stored.rows if row.verdict != "not run"} - set(report.apart)
    earlier = {label: stored.settings[label] for label in present if label in kept and label in stored.settings}
    return present | ({"task": stored.settings["task"]} if earlier else {}) | earlier
