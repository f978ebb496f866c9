"""The web project: its own tests pass, its bundle stays small, and its lock file names no registry."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from tests.support.web import BUILD, WEB, run_web

LARGEST_CORE = 8_000
LARGEST_FOR = {"drawing": 34_350, "activity": 34_850, "rows-file": 34_500}
"""Bytes that a phone loads to take part, by its way to samples: the device and that part, compressed by gzip.

These are where the device stands, so that it grows no further; it is meant to be 20,000.
"""
LARGEST_PARTS = 40_750
"""All parts together; no phone loads them all."""


def test_web_tests_pass() -> None:
    made = run_web("vitest/vitest.mjs", "run")
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-1000:]


def test_the_device_is_small(tmp_path: Path) -> None:
    sizes = {
        name: len(gzip.compress((BUILD.STATIC / f"{name}.js").read_bytes(), 9))
        for name in ("device", "owner", *LARGEST_FOR)
    }
    assert all(sizes["device"] + sizes[part] <= most for part, most in LARGEST_FOR.items()), sizes
    assert sum(sizes.values()) <= LARGEST_PARTS, sizes
    made = run_web(
        "vite/bin/vite.js", "build", CROWDML_WEB_OUT=str(tmp_path), CROWDML_WEB_ENTRY="core/numerics/index.ts"
    )
    assert made.returncode == 0, made.stderr
    (core,) = tmp_path.iterdir()
    assert len(gzip.compress(core.read_bytes(), 9)) <= LARGEST_CORE


def test_the_lock_file_names_no_registry_and_versions_are_exact() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    wanted = json.loads((WEB / "package.json").read_text())
    assert "dependencies" not in wanted, "nothing but our own code runs on a device"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted["devDependencies"].values())
