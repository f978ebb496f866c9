"""Compare with others: the same work, in one run, as CPU time beside ours; and keep what was found.

    python -m benchmarks.peers.run [CLAIM …] [--folder .venv-peers] [--try]

Claims are fedavg, dpsgd, cnn, secagg, serving and browser; without a name all of them run. Each makes the environments
that it needs, and its record goes to results/peers/CLAIM.json with versions, seed, machine, date and commit, from where
docs/benchmarks.md is written. Changes that are not committed are refused, unless nothing is kept (--try).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers import environments
from benchmarks.record import ROOT, commit_state, provenance
from crowdml.core import record

RECORDS = ROOT / "results" / "peers"


@record
class Claim:
    """One comparison.

    Attributes:
        script: The benchmark, below `benchmarks`; it gets the folder of the environments and writes JSON.
        peers: Environments that it needs, by name.
        options: Given to the script.
    """

    script: str
    peers: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


CLAIMS = {
    "fedavg": Claim(script="fedavg/bench.py", peers=("torch", "pfl", "fedjax", "flower"), options=("--repeats", "2")),
    "dpsgd": Claim(script="dpsgd/bench.py", peers=("opacus",)),
    "cnn": Claim(script="cnn/bench.py", peers=("torch",)),
    "secagg": Claim(script="secagg/bench.py", peers=("flower",), options=("--devices", "200")),
    "serving": Claim(script="serving/against_flower.py", peers=("flower",)),
    "browser": Claim(script="browser/bench.py"),
}


def measure(claim: Claim, folder: Path) -> dict[str, Any]:
    """Run one comparison; return what it found, with the versions of everybody.

    Raises:
        RuntimeError: The benchmark failed.
    """
    absent = {name: problem for name in claim.peers if (problem := environments.make(folder, name))}
    for name, problem in absent.items():
        print(f"{name} is left out: {problem}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "found.json"
        command = [sys.executable, f"benchmarks/{claim.script}", str(folder), "--json", str(path), *claim.options]
        done = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603  ours
        if done.returncode or not path.is_file():
            raise RuntimeError(f"{claim.script} ended with {done.returncode}")
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    there = [name for name in claim.peers if name not in absent]
    found["versions"] = {name: environments.versions(folder, name) for name in there} | found.get("versions", {})
    found["absent"] = absent | found.get("absent", {})
    return found


def main() -> int:
    """Run the claims that are asked for; one that fails does not keep the others from running."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help=f"of {', '.join(CLAIMS)}")
    parser.add_argument("--folder", type=Path, default=ROOT / environments.FOLDER, help="where environments are made")
    parser.add_argument("--try", dest="trying", action="store_true", help="keep nothing")
    given = parser.parse_args()
    unknown = [name for name in given.claims if name not in CLAIMS]
    if unknown:
        parser.error(f"there is no claim {unknown[0]}; there are {', '.join(CLAIMS)}")
    changed = commit_state("results/peers/")
    if changed and not given.trying:
        print("there are changes that are not committed:", *changed, sep="\n  ", file=sys.stderr)
        return 2
    failed = []
    for name in given.claims or CLAIMS:
        print(f"--- {name}", flush=True)
        try:
            with provenance() as kept:
                found = measure(CLAIMS[name], given.folder.resolve())
        except RuntimeError as error:
            print(f"not kept: {error}", file=sys.stderr)
            failed.append(name)
            continue
        if not given.trying:
            RECORDS.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"command": f"make bench-peers CLAIM={name}", **kept, **found}, indent=2)
            (RECORDS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
