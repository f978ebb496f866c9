"""Records: what a study found, when, where and by which code; one file that command and page both print from.

`crowdml reproduce ID --record FOLDER` writes FOLDER/ID.json. The project's own are in `results`, and the page of papers
is made of them.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from crowdml.core import BadInput
from crowdml.core.files import write_whole
from crowdml.studies.figure import Figure
from crowdml.studies.study import STORED, TUNED, Report, Row, Study, Tuned, Verdict
from crowdml.version import commit

LARGEST = 1_000_000
"""A file of more bytes is no record."""

NUMBERS = re.compile(r"\[\s+(?:-?[\d.e+-]+|null)(?:,\s+(?:-?[\d.e+-]+|null))*\s+\]")
"""A list of numbers, which stands in one line of a record."""

ORDER: tuple[Verdict, ...] = ("differs", "trend", "holds", "beyond")
"""A study's word is the first of these that one of its rows has."""


class Machine(BaseModel):
    """Where it ran: nothing that names the place."""

    model_config = STORED

    cores: int
    cpu: str
    memory_gib: float


class CurveRun(BaseModel):
    """How a curve was run that was run by itself.

    Attributes:
        commits: Whose code ran it, one after the other where it was interrupted; None: nobody knows whose.
        judged_by: The commit whose rules judged it.
        date: The day on which it was finished, in UTC.
        seed: First seed.
        trials: Repetitions.
        cpu_seconds: Processor time of all its parts; None where one of them had not noted it.
        machine: Where it was finished.
    """

    model_config = STORED

    commits: list[str | None]
    judged_by: str | None
    date: str
    seed: int
    trials: int
    cpu_seconds: float | None
    machine: Machine


class Record(BaseModel):
    """What one study found.

    Attributes:
        id: The study's id.
        title: What it shows.
        claim: What is claimed; empty where figures are only shown.
        refuted_by: What would refute it.
        tuned: On which rows its settings were chosen.
        verdict: The study's word, and how many rows have which.
        source: "run": made by running the study. "page": means that an earlier page showed, not run since; deviations
            over trials, and rows that the page did not show, are missing. "curves": made by running curves one by one.
        commit: The commit whose code made the figures, or whose page showed them; "+" at its end: with changes; None:
            no checkout.
        judged_by: The commit whose rules judged them.
        date: The day, in UTC.
        seeds: First seed, from which those of all trials follow.
        trials: Repetitions.
        cpu_seconds: Processor time, on all cores together; None where nobody noted it.
        machine: Where it ran; None where nobody noted it.
        settings: The task file, and by curve what is changed in it.
        rows: Comparisons with the paper.
        notes: Caveats.
        curves: How those were run that were run by themselves, by label. Of the others speak `commit` to `machine`, and
            where there are no others the last run, the seeds of all and the processor time of all.
        figure: What the study's figure shows; None in records that are older than that.
    """

    model_config = STORED

    id: str
    title: str
    claim: str
    refuted_by: str
    tuned: Tuned
    verdict: str
    source: Literal["run", "page", "curves"]
    commit: str | None
    judged_by: str | None
    date: str
    seeds: list[int]
    trials: int
    cpu_seconds: float | None
    machine: Machine | None
    settings: dict[str, list[str]]
    rows: list[Row]
    notes: list[str]
    curves: dict[str, CurveRun] = {}
    figure: Figure | None = None


def study_verdict(rows: Iterable[Row], stands_in: str = "") -> str:
    """Say in one line what a study's rows come to: its word is the worst that any of them has.

    Where another setting stands in for the paper's own, of which nothing was run, that is said beside the word.

    >>> study_verdict([Row(setting="", metric="", paper=1, ours=1, std=0, verdict=word)
    ...                for word in ("holds", "trend", "holds", "shown")])
    'trend (1 trend, 2 holds)'
    >>> study_verdict([Row(setting="", metric="", paper=1, ours=1, std=0, verdict="holds")], "other rows")
    'holds, other rows (1 holds)'
    """
    counted = Counter(row.verdict for row in rows)
    judged = [word for word in ORDER if counted[word]]
    silent: Verdict = "shown" if counted["shown"] else "not run"
    told = [f"{counted[word]} {word}" for word in (*judged, "not run") if counted[word]]
    word = judged[0] + f", {stands_in}" * bool(stands_in) if judged else silent
    return word + f" ({', '.join(told)})" * bool(told)


def settings_of(study: Study) -> dict[str, list[str]]:
    """Return what was run: the task file's name, and by curve what is changed in it."""
    curves = {
        curve.label: [*study.settled, *curve.changes, *(f"{key}={value:g}" for key, value in curve.chosen.items())]
        for curve in study.curves
    }
    return {"task": [study.task.name], **curves}


def has_changed(study: Study, record: Record) -> bool:
    """Say whether a study has other settings than those that were run: as it stands, or all or a part of it in full."""
    whole = settings_of(study.in_full)
    in_full = study.full is not None and all(whole.get(key) == value for key, value in record.settings.items())
    return record.settings != settings_of(study) and not in_full


def today() -> str:
    """Return the day, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def record_of(report: Report) -> Record:
    """Make the record of a report that was made just now, on this machine, by this code."""
    made_by = commit()
    return Record(
        id=report.id,
        title=report.title,
        claim=report.study.claim,
        refuted_by=report.study.refuted_by,
        tuned=report.study.tuned,
        verdict=study_verdict(report.rows, report.study.stands_in),
        source="run",
        commit=made_by,
        judged_by=made_by,
        date=today(),
        seeds=[report.seed],
        trials=report.trials,
        cpu_seconds=report.cpu_seconds,
        machine=this_machine(),
        settings=settings_of(report.study),
        rows=[_recorded(row) for row in report.rows],
        notes=list(report.notes),
        figure=report.figure,
    )


def _recorded(row: Row) -> Row:
    """Keep six digits: more would only say which processor it was. What was counted stays as it is."""
    measured: dict[str, Any] = {
        key: float(f"{value:.6g}") for key, value in vars(row).items() if isinstance(value, float)
    }
    return replace(row, **measured)


def write_record(record: Record, folder: Path) -> Path:
    """Write a record into its place below a folder."""
    path = place(folder, record.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record.model_dump(), ensure_ascii=False, indent=1)
    write_whole(path, (NUMBERS.sub(lambda found: " ".join(found[0].split()), text) + "\n").encode())
    return path


def read_record(folder: Path, study_id: str) -> Record:
    """Read a record from its place below a folder."""
    path = place(folder, study_id)
    if not path.is_file():
        hint = f"crowdml reproduce {study_id} --record {folder}"
        raise BadInput(f"{path} does not exist: {study_id} has no record there", hint=hint)
    if path.stat().st_size > LARGEST:
        raise BadInput(f"{path} has more than {LARGEST} bytes: that is no record")
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{path} is no record of a study: {where}: {first['msg']}") from None


def place(folder: Path, study_id: str) -> Path:
    """Return where the record of a study is."""
    return folder / f"{study_id}.json"


def provenance(record: Record) -> str:
    """Say in one line where a record comes from; `curve_lines` says it of curves that were run by themselves."""
    tuned = TUNED[record.tuned].capitalize()
    if record.source == "curves":
        return f"Run curve by curve. {tuned}."
    trials = _trials(record.trials)
    judged = _judged(record.judged_by, record.commit)
    if record.source == "page":
        known = "CPU time, machine and most deviations over trials were not noted"
        commit = _short(record.commit)
        return f"Not run since commit {commit}, whose page had these figures{judged}: {trials}; {known}. {tuned}."
    seeds = ", ".join(map(str, record.seeds))
    spent = _spent(record.cpu_seconds, record.machine)
    return f"{trials} from seed {seeds}; {spent}; {record.date}, commit {_short(record.commit)}{judged}. {tuned}."


def search_line(study_id: str, study: Study) -> str:
    """Say by which command a study's settings can be searched again; nothing where there is nothing to search."""
    where = study.searched_in or study_id * study.is_searched
    return f"Settings can be searched again: `crowdml reproduce {where} --search`." if where else ""


def curve_lines(record: Record) -> list[str]:
    """Say of every curve that was run by itself when, by which code and for how long."""
    lines = []
    for label, run in record.curves.items():
        commits = ", then ".join(map(_short, run.commits))
        judged = _judged(run.judged_by, run.commits[-1] if run.commits else None)
        spent = _spent(run.cpu_seconds, run.machine)
        lines.append(
            f"{label}: {_trials(run.trials)} from seed {run.seed}; {spent}; {run.date}, commit {commits}{judged}"
        )
    return lines


def _trials(count: int) -> str:
    return f"{count} trial{'s' * (count > 1)}"


def _judged(judged_by: str | None, commit: str | None) -> str:
    return "" if judged_by == commit else f", judged by the rules of {_short(judged_by)}"


def _spent(cpu_seconds: float | None, machine: Machine | None) -> str:
    where = f" on {machine.cores} cores ({machine.cpu}, {machine.memory_gib:g} GiB)" if machine else ""
    if cpu_seconds is None:
        return f"CPU time unknown, a part of it was not noted{where}"
    return f"{cpu_seconds:.0f} s of CPU time{where}"


def _short(commit: str | None) -> str:
    return "unknown" if commit is None else commit[:10] + "+" * commit.endswith("+")


def cells(row: Row) -> tuple[str, str, str, str, str, str]:
    """Write a row's figures as command and page both show them."""
    paper = "" if row.paper is None else _figure(row.paper)
    ours = ("" if row.verdict == "not run" else "never") if row.ours is None else _figure(row.ours)
    std = _figure(row.std) if row.std else ""
    return row.setting, row.metric, paper, ours, std, row.verdict


def _figure(value: float) -> str:
    if value == int(value) and abs(value) >= 1:
        return f"{int(value)}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def this_machine() -> Machine:
    """Describe this machine: cores that this process may use, processor and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # not on macOS
    return Machine(cores=usable, cpu=_cpu(), memory_gib=round(memory, 1))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown processor"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")
