"""A phone joins by a link with one tap, and contributes what it senses: digits drawn, motion, rows of a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from crowdml.data.sensing.phone_motion import rows_of_motion
from tests.support.phone import WAIT_MS, Phone
from tests.support.process import Process

pytestmark = pytest.mark.browser
EXAMPLES = Path(__file__).parents[3] / "examples"
DIGITS = (EXAMPLES / "draw-a-digit.toml").read_text(encoding="utf-8")
MOTION = (EXAMPLES / "activity-phone.toml").read_text(encoding="utf-8")
SMALL = ("algorithm.batch=4", "algorithm.rate.c=5.0")
NOTE_MOTION = """
window.felt = [[]];
addEventListener("devicemotion", ({ timeStamp, accelerationIncludingGravity: at }) => {
  if (at?.x != null) window.felt.at(-1).push([timeStamp / 1000, at.x, at.y, at.z]);
});
addEventListener("click", () => window.felt.push([]), true); // a button begins another window
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    started = Process(tmp_path_factory.mktemp("phones") / "server")
    started.create(*SMALL, file=DIGITS)
    started.create("algorithm.batch=2", "privacy.max-uses=1", "crowd.passes=1", file=MOTION)
    started.create("privacy.mode=none")
    yield started
    started.end()


@pytest.fixture
def phone(browser: Any, server: Process) -> Iterator[Phone]:
    made = Phone(browser, server, sensors=True)
    yield made
    assert made.errors == []
    made.close()


def charges(phone: Phone) -> dict[str, str]:
    entries = [json.loads(entry["raw"]) for entry in phone.stored("entries")]
    return {entry["key"]: entry["body"] for entry in entries if entry["kind"] == "charge"}


def receipts(phone: Phone) -> dict[str, str]:
    token = phone.stored("members")[0]["token"]
    answer = phone.server.send("GET", "/v1/devices/me/receipts", headers={"authorization": f"Bearer {token}"}).json()
    return {one["key"]: one["body"] for one in answer["receipts"]}


def loaded(phone: Phone) -> set[str]:
    """Names of the scripts that a page has loaded, each by its hash."""
    bare, names = phone.page.evaluate(
        """() => {
          const scripts = performance.getEntriesByType("resource").filter(({ name }) => name.endsWith(".js"));
          const named = [...document.scripts].filter(({ integrity }) => integrity).map(({ src }) => src);
          const names = scripts.map(({ name }) => name);
          return [names.filter((name) => !named.includes(name)), names.map((name) => name.split("/").pop())];
        }"""
    )
    assert bare == [], "loaded without a hash"
    return set(names)


def test_a_part_with_other_bytes_is_not_run(phone: Phone, server: Process) -> None:
    other = "export const Drawing = class { constructor() { window.stolen = true; } };"
    phone.context.route("**/static/drawing.js", lambda route: route.fulfill(body=other, content_type="text/javascript"))
    phone.open(server.invites(1, "draw-a-digit")[0].to_url())
    phone.press("Join")
    expect(phone.page.get_by_role("alert")).to_contain_text("did not load", timeout=WAIT_MS)
    assert phone.page.evaluate("window.stolen") is None
    phone.context.unroute("**/static/drawing.js")
    phone.open("/device")
    phone.stands("ready")


def test_an_owner_chooses_an_epsilon_and_a_limit_over_all_tasks(phone: Phone, server: Process) -> None:
    first = server.fresh("algorithm.batch=4", "privacy.owner-range=[1.0, 16.0]", file=DIGITS)
    second = server.fresh("algorithm.batch=4", "privacy.owner-range=[1.0, 16.0]", file=DIGITS)
    phone.open(server.invites(1, first)[0].to_url())
    page = phone.page
    page.get_by_text("Your limit over all tasks").click()
    page.get_by_label("ε at most").fill("11")
    phone.press("Keep this limit")
    expect(page.get_by_text("Kept. Your tasks count for ε 0")).to_be_visible(timeout=WAIT_MS)
    before = int(page.locator(".stated strong").inner_text().split()[0])
    page.get_by_text("Choose your own ε").click()
    page.locator("#own").fill("20")  # in the middle, by factors: ε = 4
    expect(page.locator("output")).to_have_text("ε 4")
    expect(page.locator(".stated strong")).not_to_have_text(f"{before} times in 100", timeout=WAIT_MS)
    assert 50 < int(page.locator(".stated strong").inner_text().split()[0]) < before
    phone.press("Join")
    phone.stands("collecting")
    (accepted,) = [json.loads(entry["raw"]) for entry in phone.stored("entries")]
    assert (accepted["kind"], accepted["epsilon"]) == ("accept", "4")
    phone.draw(4)
    phone.sent(1)
    assert charges(phone) == receipts(phone) and server.show(first)["check_ins"] == 1
    phone.settled()
    phone.open(server.invites(1, second)[0].to_url())
    phone.press("Join")
    expect(page.get_by_role("alert")).to_contain_text("ε = 12, δ = 0.00004 with all tasks", timeout=WAIT_MS)
    assert len([entry for entry in phone.stored("entries") if '"accept"' in entry["raw"]]) == 1
    server.move("stopped", first)  # ended in public after one release: it counts for less, and makes room
    phone.press("Join")
    expect(page.locator("#standing")).to_be_visible(timeout=WAIT_MS)
    assert {member["task"]: member["state"] for member in phone.stored("members")} == dict.fromkeys(
        (first, second), "joined"
    )


def test_link_tap_draw_contribute(phone: Phone, server: Process) -> None:
    task = server.fresh(*SMALL, file=DIGITS)  # of its own: nobody has taught it anything
    phone.open(server.invites(1, task)[0].to_url())
    expect(phone.page.get_by_role("button", name="Join", exact=True)).to_be_in_viewport(timeout=WAIT_MS)
    said = phone.page.locator(".stated strong").inner_text()
    phone.page.locator("#about > summary").click()
    assert said.split()[0] in re.findall(r"\d+", phone.page.locator("#odds").inner_text()), "page and phone agree"
    phone.press("Join")
    phone.stands("collecting")
    assert phone.page.url.endswith("/device"), "the secret of the invite has left the address"
    before = server.show(task)
    phone.sketch(3, seed=1)
    expect(phone.page.locator("#thinks")).to_contain_text("It has learnt nothing yet", timeout=WAIT_MS)
    phone.press("Clear")
    phone.draw(4)
    phone.sent(1)
    after = server.show(task)
    assert after["check_ins"] == before["check_ins"] + 1 and after["version"] > before["version"]
    assert charges(phone) == receipts(phone) and len(charges(phone)) == 1
    phone.sketch(3, seed=2)
    expect(phone.page.locator(".guess").first).to_contain_text("%", timeout=WAIT_MS)
    assert float(phone.figure("spent").split()[1]) > 0 and 50 < int(phone.figure("odds").split()[0]) <= 84
    assert loaded(phone) == {"device.js", "join.js", "drawing.js"}, "nothing that this phone does not need"
    phone.page.get_by_text("Ledger, entry by entry").click()
    expect(phone.page.locator(".entries li")).to_have_count(2)
    assert "owner.js" in loaded(phone)


def test_link_tap_permission_motion_contribute(phone: Phone, server: Process) -> None:
    phone.context.add_init_script(NOTE_MOTION)
    phone.join("activity-phone")
    phone.stands("collecting")
    phone.press("On foot")
    phone.walk(lambda: phone.figure("sent") == "1")
    phone.press("On foot")  # again: what comes now is measured, and not kept
    phone.settled()
    assert server.show("activity-phone")["check_ins"] == 1 and charges(phone) == receipts(phone)
    rows = phone.page.evaluate(
        """async () => {
          const { Store } = await import("/static/device.js");
          return (await new Store().all("rows")).map(({ row, target }) => [Array.from(row), target]);
        }"""
    )
    assert {target for _, target in rows} == {1} and len(rows) >= 2
    # How evenly the sensor is moved depends on how busy the machine is; what Python makes of its readings does not.
    felt = np.array(phone.page.evaluate("window.felt.at(-2)"))
    reference = rows_of_motion(felt[:, 0], felt[:, 1:])
    for row, _ in rows:
        assert any(np.allclose(row, other, rtol=1e-4, atol=1e-2) for other in reference)
        assert abs(row[0] / 64 - 9.81) < 2.6, "the mean is gravity, as far as a step may shift it"


def test_rows_of_a_file_where_nothing_is_sensed(phone: Phone, server: Process) -> None:
    phone.open(server.invites(1, "walk")[0].to_url())
    press = phone.page.get_by_role("button", name="Join", exact=True)
    expect(press).to_be_disabled(timeout=WAIT_MS)
    phone.page.get_by_label("I accept that nothing is promised.").check()
    press.click()
    phone.stands("collecting")
    page = phone.page
    page.get_by_label("Or paste rows").fill("a,b,c,label\n1,2,x,walking\n")
    phone.press("Keep these rows")
    expect(page.get_by_role("status").last).to_contain_text('line 2, c: "x" is not a number')
    assert phone.figure("kept") == "0", "the whole is read before anything is kept"
    rows = [f'{n},0.5,"{-n}",{"walking" if n % 2 else "standing"}' for n in range(5)]
    page.locator("#file").set_input_files(
        {"name": "rows.csv", "mimeType": "text/csv", "buffer": "\n".join(["a,b,c,label", *rows]).encode()}
    )
    expect(page.locator("#figure-kept")).to_have_text("5", timeout=WAIT_MS)
    expect(page.locator("#figure-sent")).not_to_have_text("0", timeout=WAIT_MS)
    assert server.show("walk")["check_ins"] >= 1
    assert set(receipts(phone).items()) <= set(charges(phone).items())


def test_rows_that_are_kept_during_contributions_are_all_kept_and_counted(phone: Phone) -> None:
    """Numbers of samples and what was seen of the server stand side by side: neither may overwrite the other."""
    phone.join("draw-a-digit")
    phone.settled()
    outcome = phone.page.evaluate(
        """async () => {
          const { Device } = await import("/static/device.js");
          const [{ account }] = await Device.list();
          const device = await Device.open(account);
          const keep = async (from, count) => {
            for (let at = from; at < from + count; at++) {
              await device.addRow(Array.from({ length: 64 }, (_, place) => (at * place) % 17), at % 10);
            }
          };
          await keep(1, 5);
          const keeping = keep(6, 60);
          const told = [];
          for (let turn = 0; turn < 4; turn++) told.push((await device.contribute()).status);
          await keeping;
          told.push((await device.contribute()).status);
          return { told, rows: device.state().rows };
        }"""
    )
    assert outcome == {"told": ["applied"] * 5, "rows": 65}
    assert len(phone.stored("samples")) == 65 and phone.stored("facts")[0]["following"] == 65


def test_before_the_tap_a_phone_sees_that_a_task_is_paused_and_nothing_but_its_decision(
    phone: Phone, server: Process
) -> None:
    page, ways = phone.page, phone.page.get_by_role("navigation")
    phone.open()
    expect(page.locator("#notice")).to_be_visible(timeout=WAIT_MS)
    expect(ways).to_be_visible()
    server.create("name=rested", *SMALL, file=DIGITS)
    server.move("paused", "rested")
    link = server.invites(1, "rested")[0].to_url()
    phone.open(link)
    expect(page.get_by_role("button", name="Join", exact=True)).to_be_visible(timeout=WAIT_MS)
    assert "The task is paused. You can join now" in page.locator("#waiting").inner_text()
    assert "which of two drawings is yours" in page.locator(".stated").inner_text()
    expect(ways).to_be_hidden()
    page.get_by_role("button", name="Join", exact=True).click()
    phone.stands("collecting")
    expect(page.locator("#waiting")).to_have_count(0)
    expect(ways).to_be_visible()


def test_of_a_whole_device_the_odds_are_between_two_collections(phone: Phone, server: Process) -> None:
    terms = ("privacy.unit=device", "privacy.max-uses=10", "stop.max-releases=4")
    server.create("name=whole", *terms, *SMALL, file=DIGITS)
    phone.open(server.invites(1, "whole")[0].to_url())
    said = phone.page.locator(".stated")
    expect(said).to_contain_text("which of two whole collections of drawings is yours", timeout=WAIT_MS)
    expect(said).not_to_contain_text("nothing is promised")


def test_what_is_wrong_with_rows_stands_out(phone: Phone, server: Process) -> None:
    phone.open(server.invites(1, "walk")[0].to_url())
    phone.page.get_by_label("I accept that nothing is promised").check()
    phone.press("Join")
    text = phone.page.get_by_label("Or paste rows")
    text.fill("a,b,c,label\n1,2,x,walking\n")
    phone.press("Keep these rows")
    said = phone.page.get_by_text('line 2, c: "x" is not a number')
    expect(said).to_have_class("error", timeout=WAIT_MS)
    text.fill("a,b,c,label\n1,2,3,walking\n")
    phone.press("Keep these rows")
    expect(phone.page.get_by_text("1 row read.")).to_have_class("small", timeout=WAIT_MS)
