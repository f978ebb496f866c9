"""What a phone says when something was lost: on the server, in the browser, or before it began."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.phone import WAIT_MS, Phone
from tests.support.process import Process

pytestmark = [pytest.mark.live, pytest.mark.browser]
DIGITS = (Path(__file__).parents[3] / "examples" / "draw-a-digit.toml").read_text(encoding="utf-8")
CONTACT = "dispatchEvent(new Event('online'))"


class Moved:
    """A server that can be ended and started again at the same address, on another folder."""

    def __init__(self, home: Path) -> None:
        self.now = Process(home)
        self._port = self.now.address.rpartition(":")[2]

    def end(self) -> None:
        self.now.end(signal.SIGKILL)

    def begin(self, home: Path) -> Process:
        self.now = Process(home, None, "--port", self._port)
        return self.now


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[Moved]:
    made = Moved(tmp_path / "server")
    made.now.create("algorithm.batch=2", "algorithm.rate.c=1.0", file=DIGITS)
    yield made
    made.now.end()


@pytest.fixture
def phone(browser: Any, moved: Moved) -> Iterator[Phone]:
    made = Phone(browser, moved.now)
    yield made
    assert made.errors == []
    made.close()


def crowdml(*arguments: str) -> None:
    made = subprocess.run([sys.executable, "-m", "crowdml", *arguments], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def charged(phone: Phone) -> int:
    return sum(json.loads(entry["raw"])["kind"] == "charge" for entry in phone.stored("entries"))


def test_a_restored_server_is_followed_once_the_owner_says_so(phone: Phone, moved: Moved, tmp_path: Path) -> None:
    phone.join("draw-a-digit")
    phone.draw(2)
    phone.sent(1)
    phone.settled()
    home, copy = tmp_path / "server", tmp_path / "copy.sqlite"
    moved.end()
    crowdml("backup", str(copy), "--home", str(home))
    crowdml("restore", str(copy), "--home", str(home), "--force")
    server = moved.begin(home)
    phone.draw(1)
    phone.page.evaluate(CONTACT)
    phone.stands("restored", "what was spent stays spent. Go on only if the operator told you so")
    assert charged(phone) == 1, "nothing is released before the owner has said so"
    phone.press("Go on with the restored task")
    # The receipt before counts as sent already, so it is the server that tells that another was given.
    deadline = time.monotonic() + WAIT_MS / 1000
    while server.show("draw-a-digit")["check_ins"] < 2:
        assert time.monotonic() < deadline, "nothing was sent"
        phone.page.wait_for_timeout(50)
    phone.settled()
    phone.stands("collecting")
    assert charged(phone) == 2 == server.show("draw-a-digit")["check_ins"]
    kinds = [json.loads(entry["raw"])["kind"] for entry in phone.stored("entries")]
    assert kinds == ["accept", "charge", "renew", "charge"], "the ledger goes on"


def test_a_server_that_was_set_back_gets_nothing(phone: Phone, moved: Moved, tmp_path: Path) -> None:
    phone.join("draw-a-digit")
    phone.settled()
    home, older = tmp_path / "server", tmp_path / "older"
    moved.end()
    shutil.copytree(home, older)  # of a server at rest: of a running one a copy may be torn
    moved.begin(home)
    phone.draw(2)
    phone.sent(1)
    phone.settled()
    moved.end()
    server = moved.begin(older)
    phone.draw(1)
    phone.page.evaluate(CONTACT)
    phone.stands("set-back", "Ask the operator whether a backup was restored")
    assert charged(phone) == 1 and server.show("draw-a-digit")["check_ins"] == 0


def test_a_ledger_that_is_shorter_than_the_servers_mirror_sends_nothing(phone: Phone, moved: Moved) -> None:
    phone.join("draw-a-digit")
    phone.draw(2)
    phone.sent(1)
    phone.settled()
    phone.page.evaluate(
        """async () => {
          const { Store } = await import("/static/device.js");
          await new Store().run(["entries"], "readwrite", async (within) => within.remove("entries", 1));
        }"""
    )
    phone.page.reload()
    phone.stands("ready")
    phone.settled()
    phone.press("Start collecting")
    phone.draw(1)
    phone.stands("ledger-lost", "A lost ledger must not become a second budget")
    assert charged(phone) == 0 and moved.now.show("draw-a-digit")["check_ins"] == 1


def test_a_browser_without_storage_says_so_and_shows_the_commands(phone: Phone, moved: Moved) -> None:
    refuses = "IDBFactory.prototype.open = () => { throw new DOMException('no storage', 'InvalidStateError'); }"
    phone.context.add_init_script(refuses)
    phone.open(moved.now.invites(1, "draw-a-digit")[0].to_url())
    phone.press("Join")
    expect(phone.page.get_by_role("alert")).to_contain_text(
        "A private window, or a page without https", timeout=WAIT_MS
    )
    assert moved.now.show("draw-a-digit")["devices"] == 0, "the invite was not used"


def test_where_a_browser_may_not_join_the_commands_for_a_computer_are_in_view(phone: Phone, moved: Moved) -> None:
    layers = 'model={ kind = "layers", layers = [{ kind = "dense", size = 10 }] }'
    task = moved.now.fresh(layers, "privacy.clip=1.0", file=DIGITS)
    link = moved.now.invites(1, task)[0]
    phone.open(link.to_url())
    expect(phone.page.get_by_role("alert")).to_contain_text("a phone may not join because", ignore_case=True)
    expect(phone.page.locator("#link")).to_be_visible()
    expect(phone.page.locator("#link")).to_contain_text(link.code)
    assert "A phone takes part from its browser" not in phone.page.locator("#device-app").inner_text()
