"""Build a release into dist: wheel, source, bill of materials, checksums, and their signature.

python -m release.build                         everything but the signature
python -m release.build --key ~/.ssh/release    with it
python -m release.build --folder elsewhere

Built twice from one commit, with the versions of the lock file, it is the same bytes: all times in it are the commit's.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from crowdml.version import __version__
from release.checksums import Refused, sign, write_sums
from release.sbom import sbom

ROOT = Path(__file__).parents[1]


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603, S607
    return told.stdout.strip()


def build(folder: Path, key: Path | None, seconds: int) -> list[str]:
    """Build everything into a folder; return the names of what was made.

    Args:
        folder: Where; what was there before goes.
        key: Signs the checksums; None: nobody does.
        seconds: The time in all files, since 1970.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    uv = Path(sys.executable).with_name("uv")
    command = [
        str(uv),
        "build",
        "--quiet",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        str(folder),
    ]
    variables = os.environ | {"SOURCE_DATE_EPOCH": str(seconds)}
    subprocess.run([*command, str(ROOT)], check=True, env=variables)  # noqa: S603
    (folder / ".gitignore").unlink(missing_ok=True)  # uv's own
    made = datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
    name = f"crowdml-{__version__}.cdx.json"
    content = json.dumps(sbom(ROOT, __version__, made), indent=1, ensure_ascii=False) + "\n"
    (folder / name).write_text(content, encoding="utf-8")
    names = sorted(path.name for path in folder.iterdir())
    sums = write_sums(folder, names)
    return [*names, sums.name, *([sign(sums, key).name] if key else [])]


def main(arguments: list[str]) -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument("--key", type=Path, help="an SSH key, such as one made by ssh-keygen -t ed25519")
    asked = parser.parse_args(arguments)
    try:
        if _git("status", "--porcelain"):
            raise Refused("there are changes that are not committed: a release is what a commit says")
        if asked.key and not asked.key.expanduser().is_file():
            raise Refused(f"there is no key {asked.key}")
        names = build(asked.folder, asked.key and asked.key.expanduser(), int(_git("log", "-1", "--format=%ct")))
    except (Refused, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(*(asked.folder / name for name in names), sep="\n")
    if not asked.key:
        print("nobody has signed SHA256SUMS: make release KEY=~/.ssh/id_ed25519", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
