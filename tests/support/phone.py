"""A phone: a browser of its own that joins, senses, draws, loses its network and its storage."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.support.process import Process
from tests.support.strokes import another_hand

SENSORS = ("accelerometer", "linear-acceleration", "gyroscope")
WAIT_MS = 60_000
"""Longer than anything takes on a machine that is busy with much else: who waits for what comes is not kept waiting."""
NOTE_STANDINGS = """
window.stood = [];
new MutationObserver(() => {
  const now = document.getElementById("standing")?.dataset.standing;
  if (now && now !== window.stood.at(-1)) window.stood.push(now);
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-standing"] });
"""


class Phone:
    """One browser context: its own storage, and sensors that a test moves.

    Args:
        browser: The browser.
        server: Whose pages it opens.
        sensors: Whether it has any.
    """

    def __init__(self, browser: Browser, server: Process, sensors: bool = False, **more: Any) -> None:
        size = {"width": 390, "height": 844}
        self.server = server
        self.context = browser.new_context(viewport=size, has_touch=True, is_mobile=True, **more)  # type: ignore[arg-type]
        self.context.set_default_timeout(WAIT_MS)
        self.context.add_init_script(NOTE_STANDINGS)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self._session = self.context.new_cdp_session(self.page)
        if sensors:
            # Before the first listener and before any page: a browser looks for sensors once.
            for kind in SENSORS:
                given = {"enabled": True, "type": kind, "metadata": {"available": True, "maximumFrequency": 60}}
                self._session.send("Emulation.setSensorOverrideEnabled", given)
            self.feel(0.0, 0.0, 9.81)

    def close(self) -> None:
        self.context.close()

    def refuse(self, permission: str) -> None:
        """Refuse a permission, as an owner does in the settings."""
        mine = self._session.send("Target.getTargetInfo")["targetInfo"]["browserContextId"]
        given = {"permission": {"name": permission}, "setting": "denied", "browserContextId": mine}
        self._session.send("Browser.setPermission", given)

    def feel(self, x: float, y: float, z: float) -> None:
        """Have all sensors measure an acceleration, gravity included."""
        for kind, (a, b, c) in zip(SENSORS, ((x, y, z), (x, y, z - 9.81), (0.0, 0.0, 0.0)), strict=True):
            reading = {"xyz": {"x": a, "y": b, "z": c}}
            self._session.send("Emulation.setSensorOverrideReadings", {"type": kind, "reading": reading})

    def walk(self, until: Callable[[], bool]) -> None:
        """Walk, two steps a second, until something is so."""
        begun = time.monotonic()
        while not until():
            passed = time.monotonic() - begun
            assert 1000 * passed < 2 * WAIT_MS, "walked in vain"
            step = 2.5 * math.sin(4 * math.pi * passed)
            self.feel(0.3 * step, 0.2 * step, 9.81 + step)

    def open(self, path: str = "/device") -> None:
        self.page.goto(self.server.address + path if path.startswith("/") else path)

    def join(self, task: str) -> str:
        """Open an invite and tap once; return the link."""
        link = self.server.invites(1, task)[0].to_url()
        self.open(link)
        self.page.get_by_role("button", name="Join", exact=True).click()
        expect(self.page.locator("#standing")).to_be_visible(timeout=WAIT_MS)
        return link

    def press(self, words: str) -> None:
        self.page.get_by_role("button", name=words, exact=True).click()

    def draw(self, count: int) -> None:
        """Draw what the page asks for, and keep it, so many times."""
        kept = int(self.figure("kept"))
        for number in range(count):
            self.sketch(int(self.page.locator("#ask").inner_text().split()[-1]), seed=kept + number)
            self.press("Keep it")
            expect(self.page.locator("#figure-kept")).to_have_text(str(kept + number + 1), timeout=WAIT_MS)

    def sketch(self, digit: int, seed: int) -> None:
        """Draw a digit with a hand that wavers."""
        sheet = self.page.locator("canvas.sheet")
        sheet.scroll_into_view_if_needed()
        box = sheet.bounding_box()
        assert box is not None
        scale, mouse = box["width"] / 100, self.page.mouse
        for stroke in another_hand(digit, seed):
            (x, y), *others = [(box["x"] + scale * x, box["y"] + scale * y) for x, y in stroke]
            mouse.move(x, y)
            mouse.down()
            for x, y in others:
                mouse.move(x, y)
            mouse.up()

    def figure(self, name: str) -> str:
        return self.page.locator(f"#figure-{name}").inner_text()

    def stands(self, standing: str, said: str = "") -> None:
        """Wait until the device stands so, and says why."""
        expect(self.page.locator("#standing")).to_have_attribute("data-standing", standing, timeout=WAIT_MS)
        if said:
            expect(self.page.locator("#notice")).to_contain_text(said, timeout=WAIT_MS)

    def sent(self, count: int) -> None:
        """Wait until the server has given so many receipts."""
        expect(self.page.locator("#figure-sent")).to_have_text(str(count), timeout=WAIT_MS)

    def stood(self, *standings: str) -> None:
        """Wait until the device has stood in these ways since the page was opened, one after the other.

        Some ways to stand pass quickly, and some come twice: whoever looks now and then misses the one, and takes the
        first for the second.
        """
        said = "([last, count]) => window.stood.length >= count && window.stood.at(-1) === last"
        self.page.wait_for_function(said, arg=[standings[-1], len(standings)], timeout=WAIT_MS)
        assert self.page.evaluate("window.stood") == list(standings)

    def settled(self) -> None:
        """Wait until the page asks the server nothing more by itself.

        After joining, and after every contribution, it asks for the newest model. Whatever a test does to the server or
        to the storage before that, the page may find out without the test's next step, and then takes the step away.
        """
        expect(self.page.locator("#standing")).to_have_attribute("aria-busy", "false", timeout=WAIT_MS)

    def stored(self, table: str) -> list[dict[str, Any]]:
        """Read a table of this browser's storage."""
        return stored(self.page, table)


def stored(page: Page, table: str) -> list[dict[str, Any]]:
    """Read a table of a browser's storage, bytes as hexadecimal."""
    found: list[dict[str, Any]] = page.evaluate(
        """async (table) => {
          const hex = (value) => value instanceof Uint8Array
            ? [...value].map((byte) => byte.toString(16).padStart(2, "0")).join("") : value;
          const { Store } = await import("/static/device.js");
          return (await new Store().all(table)).map((one) =>
            Object.fromEntries(Object.entries(one).map(([name, value]) => [name, hex(value)])));
        }""",
        table,
    )
    return found
