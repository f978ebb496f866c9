"""What a check-in of 510 parameters takes of a page's main thread in Chromium: CPU time, and the longest slice of it.

    python -m benchmarks.browser.check_in

A real server, a real page, and the trace that Chromium itself writes: CPU time of every task of the main thread, which
other programs on the machine do not lengthen as they do the time on a clock.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.process import Process
from tests.web.browser.conftest import JOIN, OPEN
from tests.web.browser.test_browser_numbers import KEEP_40, WIDE

CHECK_INS = 40
LARGEST_MS, LONGEST_SLICE_MS = 20.0, 50.0


def main_thread_ms(trace: bytes) -> list[float]:
    """Return the CPU time of each task of the main thread that did some of the page's script, in milliseconds."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    scripted = {(event["pid"], event["tid"]) for event in events if event["name"] in ("FunctionCall", "RunMicrotasks")}
    tasks = [event for event in events if event["name"].endswith("RunTask") and "tdur" in event]
    return [event["tdur"] / 1000 for event in tasks if (event["pid"], event["tid"]) in scripted]


def traced(browser: Any, page: Any, work: str) -> list[float]:
    """Do something in a page; return the CPU time of each task of its main thread meanwhile."""
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline", "v8.execute"])
    page.evaluate(work)
    return main_thread_ms(browser.stop_tracing())


def measure(browser: Any, server: Process) -> dict[str, float]:
    """Join, keep rows, and measure check-ins after a few that warm up."""
    page = browser.new_page()
    page.goto(f"{server.address}/healthz")
    page.evaluate(OPEN)
    page.evaluate(JOIN, server.invites(1, server.fresh(file=WIDE))[0].to_url())
    page.evaluate(KEEP_40)
    several = "async () => {{ for (let at = 0; at < {}; at++) await device.contribute(); }}"
    first = traced(browser, page, several.format(1))
    page.evaluate(several.format(10))
    tasks = traced(browser, page, several.format(CHECK_INS))
    page.close()
    return {
        "first_check_in_ms": sum(first),
        "check_in_ms": sum(tasks) / CHECK_INS,
        "longest_slice_ms": max(first + tasks),
    }


def main() -> int:
    """Measure and print; return the exit code."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        print("this benchmark needs chromium (make system-packages)")
        return 2
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        server = Process(Path(folder) / "server")
        browser = driver.chromium.launch(executable_path=program, chromium_sandbox=False)
        found = measure(browser, server)
        browser.close()
        server.end()
    print(f"CPU time of the main thread for a check-in: {found['check_in_ms']:.1f} ms (goal {LARGEST_MS:g})")
    print(f"for the first of a page, not compiled yet: {found['first_check_in_ms']:.1f} ms")
    print(f"longest slice: {found['longest_slice_ms']:.1f} ms (goal {LONGEST_SLICE_MS:g})")
    return int(found["check_in_ms"] > LARGEST_MS or found["longest_slice_ms"] > LONGEST_SLICE_MS)


if __name__ == "__main__":
    sys.exit(main())
