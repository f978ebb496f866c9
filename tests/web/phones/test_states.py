"""Every state a phone can be in says so, and in none of them is anything released without a charge."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.phone import WAIT_MS, Phone
from tests.support.process import Process

pytestmark = pytest.mark.browser
DIGITS = (Path(__file__).parents[3] / "examples" / "draw-a-digit.toml").read_text(encoding="utf-8")
MOTION = (Path(__file__).parents[3] / "examples" / "activity-phone.toml").read_text(encoding="utf-8")
SMALL = ("algorithm.batch=2", "algorithm.rate.c=1.0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    started = Process(tmp_path_factory.mktemp("states") / "server")
    started.create(*SMALL, file=DIGITS)
    started.create(file=MOTION)
    yield started
    started.end()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "server")
    started.create(*SMALL, file=DIGITS)
    yield started
    started.end()


@pytest.fixture
def phones(browser: Any) -> Iterator[Any]:
    made: list[Phone] = []

    def make(server: Process, **more: Any) -> Phone:
        made.append(Phone(browser, server, **more))
        return made[-1]

    yield make
    for phone in made:
        assert phone.errors == []
        phone.close()


def charged(phone: Phone) -> list[str]:
    entries = [json.loads(entry["raw"]) for entry in phone.stored("entries")]
    return [entry["key"] for entry in entries if entry["kind"] == "charge"]


@pytest.mark.live
def test_a_phone_without_sensor_says_so(phones: Any, server: Process) -> None:
    phone = phones(server)
    phone.join("activity-phone")
    phone.stands("no-sensor", "reports no motion")
    phone.press("Try again")
    phone.stood("collecting", "no-sensor", "collecting", "no-sensor")


def test_a_refused_permission_measures_nothing(phones: Any, server: Process) -> None:
    phone = phones(server, sensors=True)
    phone.refuse("accelerometer")
    phone.join("activity-phone")
    phone.stands("no-permission", "may not read the motion sensor")
    assert phone.figure("kept") == "0"


@pytest.mark.live
def test_a_hidden_page_measures_nothing_and_goes_on_when_it_is_seen(phones: Any, server: Process) -> None:
    phone = phones(server, sensors=True)
    phone.join("activity-phone")
    phone.stands("collecting")
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    phone.page.evaluate(hide, True)
    phone.stands("hidden", "Nothing is measured while this page is hidden")
    phone.page.evaluate(hide, False)
    phone.stands("collecting")


@pytest.mark.live
def test_a_reload_goes_on_after_a_tap(phones: Any, server: Process) -> None:
    phone = phones(server)
    phone.join("draw-a-digit")
    phone.draw(2)
    phone.sent(1)
    phone.settled()
    spent = phone.figure("spent")
    phone.page.reload()
    phone.stands("ready")
    assert (phone.figure("kept"), phone.figure("sent"), phone.figure("spent")) == ("2", "1", spent)
    phone.press("Start collecting")
    phone.draw(1)
    phone.sent(2)
    assert len(charged(phone)) == 2


@pytest.mark.live
def test_two_tabs_are_one_device(phones: Any, server: Process) -> None:
    phone = phones(server)
    phone.join("draw-a-digit")
    phone.draw(1)
    phone.settled()
    second = phone.context.new_page()
    second.goto(f"{server.address}/device")
    expect(second.get_by_role("alert")).to_contain_text("Another tab of this browser is the device", timeout=WAIT_MS)
    first, phone.page = phone.page, second
    first.close()
    phone.stands("ready")
    assert phone.figure("kept") == "1"


def test_offline_for_a_while_keeps_what_was_charged_and_sends_it_once(phones: Any, server: Process) -> None:
    phone = phones(server)
    phone.join("draw-a-digit")
    phone.draw(1)
    phone.settled()
    before = server.show("draw-a-digit")["check_ins"]
    phone.context.set_offline(True)
    phone.draw(1)
    phone.stands("offline", "does not answer")
    assert phone.figure("sent") == "0"
    phone.context.set_offline(False)
    phone.sent(1)
    phone.stands("collecting")
    assert server.show("draw-a-digit")["check_ins"] == before + 1 and len(charged(phone)) == 1


@pytest.mark.live
def test_a_killed_server_costs_no_second_charge(phones: Any, own_server: Process, tmp_path: Path) -> None:
    phone = phones(own_server)
    phone.join("draw-a-digit")
    phone.draw(2)
    phone.sent(1)
    phone.settled()
    port = own_server.address.rpartition(":")[2]
    own_server.end(signal.SIGKILL)
    phone.draw(1)
    phone.stands("offline")
    again = Process(own_server.home, None, "--port", port)
    try:
        phone.page.evaluate("dispatchEvent(new Event('online'))")
        phone.sent(2)
        assert len(charged(phone)) == 2 == again.show("draw-a-digit")["check_ins"]
    finally:
        again.end()


@pytest.mark.live
def test_wiped_storage_sends_nothing_and_cannot_join_again(phones: Any, server: Process) -> None:
    phone = phones(server)
    link = phone.join("draw-a-digit")
    phone.draw(2)
    phone.sent(1)
    phone.settled()
    before = server.show("draw-a-digit")["check_ins"]
    phone.page.evaluate(
        "new Promise((done) => { const wiped = indexedDB.deleteDatabase('crowdml'); wiped.onsuccess = done; })"
    )
    phone.sketch(1, seed=3)
    phone.press("Keep it")
    expect(phone.page.locator("#notice")).to_contain_text("lost", timeout=WAIT_MS)
    phone.open()
    expect(phone.page.locator("main")).to_contain_text("This browser is no device yet", timeout=WAIT_MS)
    expect(phone.page.locator("main")).to_contain_text("has erased its storage since")
    phone.open(link)
    expect(phone.page.get_by_role("alert")).to_contain_text("A device has used this invite", timeout=WAIT_MS)
    expect(phone.page.get_by_role("alert")).to_contain_text("recovery code")
    for offer in (phone.page.get_by_role("button", name="Join", exact=True), phone.page.locator("#join-python")):
        expect(offer).to_have_count(0)
    assert server.show("draw-a-digit")["check_ins"] == before


@pytest.mark.live
def test_the_operator_pauses_revokes_and_stops(phones: Any, own_server: Process) -> None:
    phone = phones(own_server)
    phone.join("draw-a-digit")
    phone.settled()
    own_server.move("paused", "draw-a-digit")
    phone.draw(2)
    phone.stands("waiting", "paused")
    assert charged(phone) == []
    own_server.move("open", "draw-a-digit")
    phone.page.evaluate("dispatchEvent(new Event('online'))")
    phone.sent(1)
    phone.settled()
    other = phones(own_server)
    other.join("draw-a-digit")
    other.settled()
    device = other.stored("members")[0]["device"]
    own_server.as_operator("DELETE", f"/v1/tasks/draw-a-digit/devices/{device}")
    other.draw(2)
    other.stands("revoked", "ask for a new invite")
    own_server.move("stopped", "draw-a-digit")
    phone.draw(1)
    phone.stands("ended", "Nothing leaves this device any more")


@pytest.mark.live
def test_the_owner_pauses_withdraws_and_moves_to_another_browser(phones: Any, own_server: Process) -> None:
    phone = phones(own_server)
    phone.join("draw-a-digit")
    phone.press("Pause")
    phone.stands("paused", "Nothing is sent until you resume")
    phone.page.locator("#notice").get_by_role("button", name="Resume").click()
    phone.stands("collecting")
    phone.draw(2)
    phone.sent(1)
    phone.settled()
    phone.page.get_by_text("Recovery code", exact=True).click()
    phone.press("Make a recovery code")
    code = phone.page.locator("#code").inner_text()
    with phone.page.expect_download() as saved:
        phone.page.get_by_text("Save the file").click()
    other = phones(own_server)
    other.open()
    other.page.get_by_text("I have a recovery code").click()
    other.page.locator("#sealed").set_input_files(saved.value.path())
    other.page.locator("#recovery").fill("aaaa" + code[4:])
    other.press("Go on with this device")
    expect(other.page.get_by_role("alert")).to_contain_text("does not open this file", timeout=WAIT_MS)
    other.page.locator("#recovery").fill(code)
    other.press("Go on with this device")
    other.stands("ready")
    assert other.figure("sent") == "1", "the ledger came along"
    other.settled()
    phone.draw(1)
    phone.stands("revoked")
    other.press("Start collecting")
    other.draw(1)
    other.press("Withdraw and erase")
    other.press("Yes, withdraw and erase")
    other.stands("withdrawn", "You have left this task")
    expect(other.page.locator("#figure-kept")).to_have_text("0")
    assert other.stored("rows") == [] and len(charged(other)) == 1
