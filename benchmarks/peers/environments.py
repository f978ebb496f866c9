"""The environments of the peers: each framework in its own, below one folder, with the versions that stand here.

    python -m benchmarks.peers.environments [FOLDER] [NAME …]

Where packages come from is pip's own business. On Linux the usual index has PyTorch with CUDA, a download of gigabytes;
a pip that also looks where the CPU build is takes that. What cannot be installed is said, and its rows are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(".venv-peers")
TORCH = "torch==2.13.0"
REQUIREMENTS = {
    "torch": (TORCH, "numpy"),
    "pfl": ("pfl[pytorch]==0.6.0", TORCH, "numpy"),
    "opacus": ("opacus==1.6.0", TORCH, "numpy"),
    "flower": ("flwr[simulation]==1.41.0", TORCH, "numpy"),
    "fedjax": ("fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "dm-haiku==0.0.12", "numpy<2", "scipy<1.13"),
}
"""By the name of the environment; the first requirement is the peer. FedJAX calls what newer releases of JAX lack."""

TOLD = ("torch", "pfl", "opacus", "flwr", "ray", "fedjax", "jax", "jaxlib", "numpy")
"""Packages whose versions go into a record."""


def python_of(folder: Path, name: str) -> Path:
    """Return the interpreter of an environment, which may not exist."""
    return folder / name / "bin" / "python"


def make(folder: Path, name: str) -> str:
    """Make an environment, or find it made; return what went wrong, or nothing."""
    stamp, wanted = folder / name / "installed.json", list(REQUIREMENTS[name])
    if stamp.is_file() and json.loads(stamp.read_text(encoding="utf-8")) == wanted:
        return ""
    python = python_of(folder, name)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)  # noqa: S603  ours
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  ours
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        return " ".join(errors[-1:]) or f"pip ended with {done.returncode}"
    stamp.write_text(json.dumps(wanted), encoding="utf-8")
    return ""


def versions(folder: Path, name: str) -> dict[str, str]:
    """Return the versions in an environment, of the packages that matter."""
    command = [str(python_of(folder, name)), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  ours
    return {entry["name"]: entry["version"] for entry in json.loads(done.stdout) if entry["name"] in TOLD}


def main(words: list[str]) -> int:
    """Make the environments that are asked for, or all of them."""
    folder = Path(words[0]) if words else FOLDER
    unknown = [name for name in words[1:] if name not in REQUIREMENTS]
    if unknown or "--help" in words:
        print(__doc__, f"Names: {', '.join(REQUIREMENTS)}", sep="\n", file=sys.stderr)
        return 2
    wrong = 0
    for name in words[1:] or REQUIREMENTS:
        problem = make(folder, name)
        wrong |= bool(problem)
        told = problem or ", ".join(f"{package} {version}" for package, version in versions(folder, name).items())
        print(f"{name:8} {told}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
