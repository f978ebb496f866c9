"""The container's question after the server's health, against real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crowdml.server.setup.local_tls import require_local_tls

HEALTH = Path(__file__).parents[3] / "examples" / "container" / "health.py"


def ask(folder: Path, port: int) -> int:
    environment = os.environ | {"XDG_DATA_HOME": str(folder), "CROWDML_PORT": str(port)}
    asked = subprocess.run([sys.executable, str(HEALTH)], env=environment, capture_output=True, timeout=60)
    return asked.returncode


def test_a_server_is_well_until_it_ends(serve: Callable[..., Any], tmp_path: Path) -> None:
    server = serve("--host", "0.0.0.0", "--insecure", home="crowdml/server")
    port = urlsplit(server.address).port
    assert port and ask(tmp_path, port) == 0
    assert server.stop() == 0
    assert ask(tmp_path, port) != 0


def test_a_server_with_a_certificate_for_another_name_is_well(serve: Callable[..., Any], tmp_path: Path) -> None:
    pair = require_local_tls(tmp_path, ["10.0.0.1"]).server_file
    given = ("--tls-cert", str(pair), "--tls-key", str(pair))
    server = serve(*given, home="crowdml/server")
    port = urlsplit(server.address).port
    assert server.address.startswith("https://") and port and ask(tmp_path, port) == 0
