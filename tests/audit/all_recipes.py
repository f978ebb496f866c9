"""Audit every recipe that can promise something, in both units, and draw what was found.

    python -m tests.audit.all_recipes             # attacks, and writes results/audit/recipes.json (minutes)
    python -m tests.audit.all_recipes --draw      # draws docs/images/audit-recipes.png from what is stored

All bounds of all audits hold together with a confidence of 99 %.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crowdml.audit.attack import ONE_THRESHOLD
from crowdml.audit.audit_drawing import CLAIM, CONTROL, HOLDS
from crowdml.audit.promises import audit_promise
from crowdml.core.files import save_figure, write_whole
from tests.audit.attacked_tasks import IN_STEPS, IN_SUMS, SOUND, attacked_task

ROOT = Path(__file__).parents[2]
STORED, FIGURE = ROOT / "results" / "audit" / "recipes.json", ROOT / "docs" / "images" / "audit-recipes.png"
LAPLACE = ("crowd-sgd", "local-sgd", "fedavg", "fedsgd", "scaffold")
"""Recipes that are also attacked with Laplace noise."""


def settings() -> Iterator[dict[str, Any]]:
    """Yield recipe, unit, mechanism, uses and law of every task."""
    for recipe in SOUND:
        for unit in ("sample", "device"):
            yield {"recipe": recipe, "unit": unit, "mechanism": "gaussian", "uses": 3}
            if recipe in LAPLACE:
                yield {"recipe": recipe, "unit": unit, "mechanism": "laplace", "uses": 1}
    for recipe in IN_SUMS:
        units = ("sample",) if recipe in ("consensus-newton", "ridge") else ("sample", "device")
        for unit in units:
            uses = 1 if recipe == "ridge" else 3
            yield {"recipe": recipe, "unit": unit, "mechanism": "gaussian", "uses": uses, "law": "discrete-gaussian"}
    for recipe in IN_STEPS:
        yield {"recipe": recipe, "unit": "sample", "mechanism": "gaussian", "uses": 3, "steps": True}


def attack_all() -> int:
    """Attack all, and store what was found; the exit code is the number of broken promises."""
    todo, found = list(settings()), list[dict[str, Any]]()
    for setting in todo:
        audit = audit_promise(attacked_task(**setting), family=len(todo))
        found.append(setting | audit.to_json() | {"recipe": setting["recipe"]})
        best = max(audit.findings, key=lambda finding: finding.share)
        line = f"{' '.join(str(each) for each in setting.values()):52} {best.share:4.0%} by {best.method}"
        print(line, "" if audit.holds else audit.verdict, flush=True)
        STORED.parent.mkdir(parents=True, exist_ok=True)
        write_whole(STORED, (json.dumps({"audits": found}, indent=1, ensure_ascii=False) + "\n").encode())
    return sum(not each["holds"] for each in found)


def draw() -> None:
    """Draw a panel for each recipe: the best bound of every task as a share of its claim, and the control's."""
    from matplotlib.figure import Figure

    audits = json.loads(STORED.read_text())["audits"]
    panels: dict[str, list[dict[str, Any]]] = {}
    for each in audits:
        name = each["recipe"] + (", secure sum" if each.get("law") else "")
        panels.setdefault("noise in every local step" if each.get("steps") else name, []).append(each)
    columns = 3
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(11, 1.55 * rows + 0.9), dpi=130, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for at in axes.flat[len(panels) :]:
        at.axis("off")
    for at, (name, found) in zip(axes.flat, panels.items(), strict=False):
        _panel(at, name, found)
        at.tick_params(labelbottom=True, labelsize=7)
    figure.supxlabel("share of the claimed ε")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    save_figure(figure, FIGURE)
    print(FIGURE)


def _panel(at: Any, name: str, found: list[dict[str, Any]]) -> None:
    names, real, planted = [], [], []
    for each in found:
        best = max(each["findings"], key=lambda finding: finding["share"])
        claim = best["proven"]["epsilon"]
        by = "μ" if best["method"] == ONE_THRESHOLD else "CP"
        names.append(f"{each['recipe'] if each.get('steps') else each['unit']}, {each['mechanism']} ({by})")
        real.append(best["bound"] / claim)
        planted.append(min(2.4, (best["control"] or 0.0) / claim))
    places = list(range(len(names)))[::-1]
    at.barh([place + 0.19 for place in places], real, 0.36, color=HOLDS, label="lower bound found by attack")
    at.barh([place - 0.19 for place in places], planted, 0.36, color=CONTROL, label="with half the noise (planted)")
    at.axvline(1.0, color=CLAIM, linewidth=1.3, label="what is claimed")
    at.set_yticks(places, names, fontsize=8)
    at.set_ylim(-0.6, max(1.6, len(names) - 0.4))
    at.set_xlim(0, 2.5)
    at.set_title(name, loc="left", fontsize=9)
    at.spines[["top", "right"]].set_visible(False)


def main() -> int:
    """Attack, or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw what is stored")
    if parser.parse_args().draw:
        draw()
        return 0
    return attack_all()


if __name__ == "__main__":
    sys.exit(main())
