"""Masked sums: CPU time of a device and of the server, and bytes; beside it Flower's SecAgg+ functions, in one run.

    sh benchmarks/secagg/setup.sh FOLDER
    python benchmarks/secagg/bench.py [FOLDER] [--json FILE]

1,000 devices with 100,000 values of 16 bits each, 10 % of them lost after they have shared their secrets: the costliest
moment for the server. Every message goes through its bytes. A device's figure is the median over all devices of all
its work in the sum; devices that meet for the first time check signatures besides, which is measured apart.

The comparison has 50 devices, everybody being everybody's neighbour on both sides, the same threshold and the same
losses. Flower's environment is its own: FOLDER/flower.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.protocol.sums import SumDevice, SumServer, SumTerms, bits_for
from crowdml.protocol.sums import terms as terms_module
from crowdml.protocol.sums.graph import Graph
from crowdml.protocol.sums.messages import (
    Hello,
    Introduction,
    Shares,
    read_flags,
    read_mail,
    read_shares,
    read_tags,
    write_flags,
    write_items,
)
from crowdml.protocol.sums.rehearsal import Members

HERE = Path(__file__).parent
SIZE = 100_000
LARGEST = 1 << 15


class Course:
    """One sum over bytes, with CPU time and bytes of every part."""

    def __init__(self, devices: int, lost: int, members: Members, attempt: int, met: bool = False) -> None:
        """Begin; `met`: neighbours have met in an earlier sum, as they will have after some rounds."""
        self.met = met
        self.terms = SumTerms(
            task=members.task,
            size=SIZE,
            bits=bits_for(devices, LARGEST),
            largest=LARGEST,
            invited=devices,
            least=devices - lost,
            corrupt=devices // 10,
        )
        self.members, self.attempt, self.slots = members, attempt, range(devices)
        generator = np.random.default_rng(attempt)
        self.lost = set(generator.choice(devices, lost, replace=False).tolist())
        self.vector = generator.integers(-LARGEST, LARGEST, SIZE)
        self.server = SumServer(self.terms, 0, attempt, members.cards)
        self.cpu: dict[int, float] = defaultdict(float)
        self.server_cpu, self.bytes_up = 0.0, 0

    def run(self) -> dict[str, Any]:
        """Go through all stages and check the sum."""
        server, own = self.server, {}
        for slot in self.slots:
            own[slot] = self._device(slot, lambda slot=slot: self._machine(slot))
            raw = self._device(slot, lambda slot=slot: own[slot].hello().to_bytes())
            self._server(lambda slot=slot, raw=raw: server.hello(slot, Hello.of(raw)))
            self._sent(slot, raw)
        self._server(server.close_hellos)
        near = server.graph.neighbours
        for slot in self.slots:
            raw = self._server(lambda slot=slot: server.introduction_bytes(slot))
            if self.met:
                self._meet(slot, Introduction.of(raw))
            sent = self._device(slot, lambda slot=slot, raw=raw: own[slot].share(Introduction.of(raw)).to_bytes())
            self._server(lambda slot=slot, sent=sent: server.shares(slot, Shares.of(sent, near)))
            self._sent(slot, sent)
        self._server(server.close_shares)
        alive = [slot for slot in self.slots if slot not in self.lost]
        for slot in alive:
            raw = self._server(lambda slot=slot: write_items(server.mail(slot)))
            body = self._device(slot, lambda slot=slot, raw=raw: own[slot].mask(read_mail(raw, near), self.vector))
            self._server(lambda slot=slot, body=body: server.masked(slot, body))
            self._sent(slot, body)
        flags = write_flags(self._server(server.close_masked))
        for slot in alive:
            sent = self._device(
                slot, lambda slot=slot: write_items(own[slot].consent(read_flags(flags, len(self.slots))))
            )
            self._server(lambda slot=slot, sent=sent: server.consent(slot, read_tags(sent, near)))
            self._sent(slot, sent)
        self._server(server.close_consents)
        for slot in alive:
            raw = self._server(lambda slot=slot: write_items(server.consents(slot)))
            sent = self._device(slot, lambda slot=slot, raw=raw: write_items(own[slot].reveal(read_tags(raw, near))))
            self._server(lambda slot=slot, sent=sent: server.reveal(slot, read_shares(sent, near)))
            self._sent(slot, sent)
        total = self._server(server.finish).total
        assert (total == len(alive) * self.vector).all()
        return {
            "devices": len(self.slots),
            "lost": len(self.lost),
            "neighbours": near,
            "threshold": server.graph.threshold,
            "bits": self.terms.bits,
            "device_ms": 1e3 * statistics.median(self.cpu[slot] for slot in alive),
            "server_s": self.server_cpu,
            "upload": self.bytes_up / (2 * SIZE),
        }

    def _meet(self, slot: int, shown: Introduction) -> None:
        """Meet the neighbours beforehand."""
        cards = {card.identity: other for other, card in self.members.cards.items()}
        for card in shown.cards:
            self.members.of(slot)[1].meet(cards[card.identity], card)

    def _machine(self, slot: int) -> SumDevice:
        return SumDevice(self.terms, 0, self.attempt, slot, *self.members.of(slot))

    def _sent(self, slot: int, raw: bytes) -> None:
        """Count what the first device that is not lost sends."""
        if slot == min(own for own in self.slots if own not in self.lost):
            self.bytes_up += len(raw)

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


def measure(devices: int, lost: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of devices that meet for the first time, and of old acquaintances."""
    members = Members("bench")
    for slot in range(devices):
        members.of(slot)
    first = Course(devices, lost, members, 1).run()
    return first, Course(devices, lost, members, 2, met=True).run()


def measure_complete(devices: int, lost: int, threshold: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure with everybody as everybody's neighbour, as the peer has it."""
    own = terms_module.make_graph
    terms_module.make_graph = lambda members, *_, **__: Graph(
        members=members, neighbours=members - 1, threshold=threshold, agreement=False
    )
    try:
        return measure(devices, lost)
    finally:
        terms_module.make_graph = own


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--devices", type=int, default=1000)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    first, found["large"] = measure(options.devices, options.devices // 10)
    found["large"]["first_ms"] = first["device_ms"]
    show("", found["large"])
    if options.folder:
        first, found["complete"] = measure_complete(50, 5, 33)
        found["complete"]["first_ms"] = first["device_ms"]
        show("everybody a neighbour", found["complete"])
        found["flower"] = flower(options.folder)
        show("Flower's SecAgg+", found["flower"])
        print(
            f"a device takes {found['flower']['device_ms'] / found['complete']['device_ms']:.1f} times less "
            f"({found['flower']['device_ms'] / first['device_ms']:.1f} at first contact), "
            f"the server {found['flower']['server_s'] / found['complete']['server_s']:.0f} times less"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def flower(folder: Path) -> dict[str, Any]:
    """Run the peer in its own environment."""
    python = folder / "flower" / "bin" / "python"
    run = subprocess.run([python, HERE / "flower_secagg.py"], capture_output=True, text=True, check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def show(name: str, own: dict[str, Any]) -> None:
    """Print one line."""
    first = f" ({own['first_ms']:.1f} at first contact)" if "first_ms" in own else ""
    print(
        f"{own['devices']} devices x {SIZE:,} values, {own['lost']} lost, {own['neighbours']} neighbours {name}: "
        f"device {own['device_ms']:.1f} ms{first}, server {own['server_s']:.3f} s, "
        f"upload {own['upload']:.3f} of plain 16-bit values",
        flush=True,
    )


if __name__ == "__main__":
    main()
