"""Secure aggregation: CPU time of a device and of the server, and bytes; beside it Flower's SecAgg+ functions.

    make bench-peers CLAIM=secagg    # makes the environment, runs this and keeps the record
    python benchmarks/secagg/bench.py [FOLDER] [--json FILE]

1,000 devices with 100,000 values of 16 bits each, a tenth of them corrupt at most, 10 % or 30 % of them lost after they
have shared their secrets: the costliest moment for the server. Every message goes through its bytes. A device's figure
is the median over all devices of all its work in the sum, among members that have met before; meeting everybody for the
first time takes a signature and an agreement for each, which is measured apart, on five devices.

The comparison has 50 devices, everybody being everybody's neighbour on both sides, the same threshold and the same
losses. Flower's environment is its own: FOLDER/flower.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.secure_aggregation import BroadcastHash, Peers, SumDevice, SumServer, SumTerms, bits_for
from crowdml.secure_aggregation.roster import Roster
from crowdml.secure_aggregation.sum_messages import (
    Consents,
    Hello,
    Mail,
    Shares,
    Survivors,
    read_links,
    read_shares,
    write_items,
)

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.rehearsal import Members

HERE = Path(__file__).parent
SIZE = 100_000
LARGEST = 1 << 15


SHOWN = BroadcastHash.of(0, b"")


class Course:
    """One sum over bytes, with CPU time and bytes of every part."""

    def __init__(self, devices: int, lost: int, members: Members) -> None:
        """Let everybody know everybody."""
        self.terms = SumTerms(
            task=members.task,
            size=SIZE,
            bits=bits_for(devices, LARGEST),
            largest=LARGEST,
            invited=devices,
            least=devices - lost,
            corrupt=devices // 10,
        )
        self.members, self.slots = members, range(devices)
        generator = np.random.default_rng(lost)
        self.lost = set(generator.choice(devices, lost, replace=False).tolist())
        self.watched = min(slot for slot in self.slots if slot not in self.lost)
        self.vector = generator.integers(-LARGEST, LARGEST, SIZE)
        self.server = SumServer(self.terms, 0, 1, members.cards)
        self.cpu: dict[int, float] = defaultdict(float)
        self.server_cpu, self.bytes_up, self.bytes_down = 0.0, 0, 0
        for slot in self.slots:
            members.acquaint(slot)

    def run(self) -> dict[str, Any]:
        """Go through all stages and check the sum."""
        server, count = self.server, len(self.slots)
        self.machines = {slot: self._device(slot, lambda slot=slot: self._machine(slot)) for slot in self.slots}
        for slot, raw in self._each(self.slots, lambda slot, machine: machine.hello().to_bytes()):
            self._server(lambda slot=slot, raw=raw: server.hello(slot, Hello.of(raw)))
        self._server(server.close_hellos)
        shown = self._server(lambda: server.shown)
        for slot, raw in self._each(self.slots, lambda slot, machine: machine.meet(Roster.of(shown)), lambda _: shown):
            self._server(lambda slot=slot, raw=raw: server.order(slot, 0, raw))
        self._server(server.close_order)
        near, links = server.graph.neighbours, self._server(lambda: write_items(server.links(0)))
        for slot, raw in self._each(self.slots, lambda slot, machine: _shared(machine, links, count), lambda _: links):
            self._server(lambda slot=slot, raw=raw: server.shares(slot, Shares.of(raw, near)))
        self._server(server.close_shares)
        alive = [slot for slot in self.slots if slot not in self.lost]
        for slot, raw in self._answered(
            alive,
            lambda slot: server.mail(slot).to_bytes(),
            lambda machine, raw: machine.mask(Mail.of(raw, count, near), self.vector),
        ):
            self._server(lambda slot=slot, raw=raw: server.masked(slot, raw))
        self._server(server.close_masked)
        for slot, raw in self._answered(
            alive,
            lambda slot: server.shown_survivors(slot).to_bytes(),
            lambda machine, raw: machine.consent(Survivors.of(raw, count, near)),
        ):
            self._server(lambda slot=slot, raw=raw: server.consent(slot, raw))
        self._server(server.close_consents)
        for slot, raw in self._answered(
            alive,
            lambda slot: server.consents(slot).to_bytes(),
            lambda machine, raw: write_items(machine.reveal(Consents.of(raw, count))),
        ):
            self._server(lambda slot=slot, raw=raw: server.reveal(slot, read_shares(raw, near)))
        total = self._server(server.finish).total
        assert (total == len(alive) * self.vector).all()
        return {
            "devices": count,
            "lost": len(self.lost),
            "neighbours": near,
            "threshold": server.graph.threshold,
            "agreeing": server.graph.agreeing,
            "bits": self.terms.bits,
            "device_ms": 1e3 * statistics.median(self.cpu[slot] for slot in alive),
            "first_ms": 1e3 * statistics.median(self._first_contact(slot) for slot in alive[:5]),
            "server_s": self.server_cpu,
            "upload": self.bytes_up / (2 * SIZE),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }

    def _each(self, slots: Any, act: Any, shown: Any = lambda _: b"") -> Any:
        """Let devices act one after the other; yield what each sends."""
        for slot in slots:
            raw = self._device(slot, lambda slot=slot: act(slot, self.machines[slot]))
            self._carried(slot, raw, shown(slot))
            yield slot, raw

    def _answered(self, slots: Any, ask: Any, act: Any) -> Any:
        """Let the server write what each device is shown, and the device answer."""
        for slot in slots:
            shown = self._server(lambda slot=slot: ask(slot))
            raw = self._device(slot, lambda slot=slot, shown=shown: act(self.machines[slot], shown))
            self._carried(slot, raw, shown)
            yield slot, raw

    def _machine(self, slot: int) -> SumDevice:
        return SumDevice(self.terms, 0, 1, slot, *self.members.of(slot), SHOWN)

    def _first_contact(self, slot: int) -> float:
        """Return the CPU seconds in which a device meets everybody for the first time."""
        peers, roster = Peers(self.members.of(slot)[0], self.members.task), self.server.roster
        began = time.process_time()
        for other, card in zip(roster.slots, roster.cards, strict=True):
            if other != slot:
                peers.meet(other, card)
        return time.process_time() - began

    def _carried(self, slot: int, sent: bytes, shown: bytes) -> None:
        """Count what the first device that is not lost sends and gets."""
        if slot == self.watched:
            self.bytes_up, self.bytes_down = self.bytes_up + len(sent), self.bytes_down + len(shown)

    def _device(self, slot: int, act: Any) -> Any:
        began = time.process_time()
        found = act()
        self.cpu[slot] += time.process_time() - began
        return found

    def _server(self, act: Any) -> Any:
        began = time.process_time()
        found = act()
        self.server_cpu += time.process_time() - began
        return found


def _shared(machine: SumDevice, links: bytes, count: int) -> bytes:
    machine.settle(read_links(links, count))
    return machine.share().to_bytes()


def measure(devices: int, lost: int) -> dict[str, Any]:
    """Return the figures of one sum."""
    return Course(devices, lost, Members("bench")).run()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--devices", type=int, default=1000)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for part in (10, 30):
        found[f"large, {part} % lost"] = measure(options.devices, part * options.devices // 100)
        show("", found[f"large, {part} % lost"])
    if options.folder:
        found["complete"] = measure(50, 5)
        show("everybody a neighbour", found["complete"])
        found["flower"] = flower(options.folder)
        show("Flower's SecAgg+", found["flower"])
        print(
            f"a device takes {found['flower']['device_ms'] / found['complete']['device_ms']:.1f} times less, "
            f"the server {found['flower']['server_s'] / found['complete']['server_s']:.0f} times less"
        )
    if options.json:
        options.json.write_text(json.dumps(as_record(found), indent=2) + "\n")


def as_record(found: dict[str, Any]) -> dict[str, Any]:
    """Return the figures in the form that all comparisons with peers have."""
    named = {"complete": "crowdml", "flower": "Flower's SecAgg+ functions"}
    rows = [
        {
            "name": named[key],
            "value": found[key]["device_ms"],
            "server, s": found[key]["server_s"],
            "bytes over plain 16-bit values": found[key]["upload"],
        }
        for key in named
        if key in found
    ]
    if "complete" in found:
        # Devices that have met keep what they agreed on; the peer agrees anew for every sum.
        first = found["complete"]["device_ms"] + found["complete"]["first_ms"]
        rows.insert(1, {**rows[0], "name": "crowdml, devices that never met", "value": first})
    notes = [
        f"crowdml with {each['devices']:,} devices, {each['lost']} of them lost: a device {each['device_ms']:.0f} ms "
        f"({each['first_ms']:.0f} more at first contact), the server {each['server_s']:.1f} s, "
        f"{each['neighbours']} neighbours"
        for key, each in found.items()
        if key.startswith("large")
    ]
    return {
        "unit": "ms of CPU per device",
        "seed": 1,
        "setting": f"a sum of {SIZE:,} values over 50 devices, 5 of them lost, everybody everybody's neighbour",
        "rows": rows,
        "notes": notes,
    }


def flower(folder: Path) -> dict[str, Any]:
    """Run the peer in its own environment."""
    python = folder / "flower" / "bin" / "python"
    run = subprocess.run([python, HERE / "flower_secagg.py"], capture_output=True, text=True, check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def show(name: str, found: dict[str, Any]) -> None:
    """Print one line."""
    first = f" ({found['first_ms']:.1f} more at first contact)" if "first_ms" in found else ""
    carried = f", {found['bytes_up']:,} bytes up and {found['bytes_down']:,} down" if "bytes_up" in found else ""
    print(
        f"{found['devices']} devices x {SIZE:,} values, {found['lost']} lost, {found['neighbours']} neighbours {name}: "
        f"device {found['device_ms']:.1f} ms{first}, server {found['server_s']:.3f} s, "
        f"upload {found['upload']:.3f} of plain 16-bit values{carried}",
        flush=True,
    )


if __name__ == "__main__":
    main()
