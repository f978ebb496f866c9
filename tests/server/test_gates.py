"""What the package must never do, looked for in its source: run what somebody sent, or ask somebody else."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

FOUND = importlib.util.find_spec("crowdml")
assert FOUND is not None and FOUND.origin is not None
SOURCE = Path(FOUND.origin).parent
FILES = sorted(SOURCE.rglob("*.py"))

MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "imp"}
"""Loading with these runs what the file says."""

CALLS = {"eval", "exec", "compile", "__import__", "execfile", "yaml.load", "yaml.unsafe_load", "torch.load"}
CALLS |= {"pandas.read_pickle", "pd.read_pickle", "numpy.loads", "os.system", "os.popen", "subprocess.getoutput"}
FETCHES = {"httpx", "requests", "urllib.request", "urllib3", "aiohttp", "http.client", "ftplib", "smtplib"}


def name_of(node: ast.expr) -> str:
    """Return a dotted name, or nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := name_of(node.value)):
        return f"{before}.{node.attr}"
    return ""


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def dangers(source: str) -> list[str]:
    """List what runs, or may run, what somebody sent."""
    tree = ast.parse(source)
    found = [name for name in imports(tree) if name.split(".")[0] in MODULES]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        if name in CALLS:
            found.append(name)
        options = {option.arg: option.value for option in node.keywords}
        if name in ("np.load", "numpy.load") and not _is(options.get("allow_pickle"), False):
            found.append(f"{name} without allow_pickle=False")
        if _is(options.get("allow_pickle"), True) or _is(options.get("shell"), True):
            found.append(f"{name} with allow_pickle or a shell")
    return found


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads as innocent",
        "import cloudpickle as c",
        "eval('1')",
        "exec(text)",
        "yaml.load(text)",
        "torch.load(path)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "subprocess.run(x, shell=True)",
    ],
)
def test_the_gate_sees_what_it_should(source: str) -> None:
    assert dangers(source)


def test_9_nothing_in_the_package_runs_what_it_reads() -> None:
    assert len(FILES) > 100
    found = {str(path.relative_to(SOURCE)): dangers(path.read_text()) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


def test_18_the_server_asks_nobody() -> None:
    found = {}
    for path in sorted((SOURCE / "server").rglob("*.py")):
        names = [name for name in imports(ast.parse(path.read_text())) if any(fetcher == name for fetcher in FETCHES)]
        if names:
            found[path.name] = names
    assert found == {}
