"""Files that hold one idea whole, folders that can be looked through, imports that point one way.

Run with `-s` to see the figures.
"""

from __future__ import annotations

import ast
import statistics
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "crowdml"
FILES = sorted(PACKAGE.rglob("*.py"))
PLAIN = [path for path in FILES if path.name != "__init__.py"]

MOST_FILES = 16
"""In one folder, without `__init__.py`."""
LARGER: dict[str, int] = {}
"""Folders that are larger than that, and how large they may be: these numbers only become smaller."""

LEAST_MEDIAN = 110

SAME_NAMES = {
    "accounting.py": "of a mechanism, of a simulation",
    "activity.py": "the dataset, the study",
    "attacks.py": "by devices, on a sliced net",
    "correlated.py": "the sanitiser, the study",
    "device.py": "the device, its commands",
    "grid.py": "the grid, the sanitiser on it",
    "local_steps.py": "the device part, the study",
    "moments.py": "the device part, their bounds",
    "records.py": "of the package, of studies",
    "run.py": "of a simulation, of a study",
    "settings.py": "in general, of privacy",
    "stages.py": "of a sum, of a sliced net",
    "task.py": "the task, its commands",
}
"""File names that two folders have, and what each means. A third is too many."""

CYCLES: set[frozenset[str]] = {
    # `Task.load` reads a file, and what reads it loads what packages register, which goes into the tables of a task.
    frozenset(
        {
            "task.averaging_terms",
            "task.live_task",
            "task.task_checks",
            "task.plugins",
            "task.task",
            "task.task_file",
            "task.user_models",
        }
    ),
    # The package offers `crowdml.simulate`, and a checkpoint names the package's version.
    frozenset({"", "simulation", "simulation.checkpoint", "simulation.run"}),
}
"""Files that import each other in a circle, counting imports inside functions and for types alone."""


def test_no_folder_is_too_large() -> None:
    sizes = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in PLAIN)
    print("largest folders:", ", ".join(f"{name} {size}" for name, size in sizes.most_common(6)))
    assert {name: size for name, size in sizes.items() if size > LARGER.get(name, MOST_FILES)} == {}


def test_files_hold_more_than_a_thought() -> None:
    median = statistics.median(len(path.read_text(encoding="utf-8").splitlines()) for path in PLAIN)
    print(f"{len(PLAIN)} files, {median:g} lines in the median")
    assert median >= LEAST_MEDIAN


def test_a_file_is_found_by_its_name() -> None:
    names = Counter(path.name for path in PLAIN)
    assert {name for name, count in names.items() if count > 1} <= set(SAME_NAMES)
    assert max(names.values()) <= 2


def test_no_imports_go_round_in_a_circle() -> None:
    modules = {_module(path): path for path in FILES}
    graph = {name: _imports(name, path, modules) for name, path in modules.items()}
    found = _circles(graph)
    print("circles of imports:", [sorted(circle) for circle in found])
    # One that has become smaller is welcome.
    assert [circle for circle in found if not any(circle <= known for known in CYCLES)] == []


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "crowdml":
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            named = [alias.name for alias in node.names if alias.name.split(".")[0] == "crowdml"]
        else:
            continue
        for whole in named:
            module = whole.removeprefix("crowdml").removeprefix(".")
            while module not in modules:
                module = module.rpartition(".")[0]
            found.add(module)
    return found - {name}


def _circles(graph: dict[str, set[str]]) -> list[frozenset[str]]:
    """Return the groups of modules each of which reaches all others of its group."""
    reached = {name: _reach(graph, name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted((group for group in groups if len(group) > 1), key=sorted)


def _reach(graph: dict[str, set[str]], start: str) -> set[str]:
    seen, waiting = set[str](), [start]
    while waiting:
        for following in graph[waiting.pop()] - seen:
            seen.add(following)
            waiting.append(following)
    return seen


def test_a_planted_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert _circles(graph) == [frozenset({"b", "c"})]
