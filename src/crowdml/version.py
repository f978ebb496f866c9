"""Which code this is: the version, and the commit where there is a checkout.

A file of its own, so that whoever writes it down need not import the package's front.
"""

import functools
import subprocess
from pathlib import Path

__version__ = "0.2.0"


@functools.cache
def commit() -> str | None:
    """Return the commit of this code, "+" at its end where source files have changed since; None without a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603  fixed arguments
            ["git", "-C", str(here), *arguments],  # noqa: S607  whatever git the user has
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )

    try:
        head = git("rev-parse", "HEAD")
        if head.returncode:
            return None
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here)).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + "+" * bool(changed)
