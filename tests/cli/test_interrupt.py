"""Ctrl-C ends a long run with one line and exit code 130, and --resume goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.toml"
LONG = ("simulate", str(EXAMPLE), "--set", "crowd.passes=100000", "--trials", "2")


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from crowdml.cli import main; main()", *LONG]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    time.sleep(6)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in err and "Traceback" not in err and out == ""
