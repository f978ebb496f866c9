"""A device whose ledger an earlier crowdml began: with another law of noise it stops, with the same it goes on.

Entries are, byte for byte, what crowdml wrote for these tasks while Gaussian noise of single releases was discrete.
Their sums stay those of discrete noise for ever, and no release with rounded noise may be added to them.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core.errors import TermsViolated
from crowdml.device import Device, Ledger
from crowdml.device.device_home import Home
from crowdml.device.joining import leave
from crowdml.device.owner_reports import ledger_report
from crowdml.privacy.renyi import rdp_epsilon

NOISE = "epsilon = 6.0, mechanism = 'gaussian', max-uses = 3, delta = 1e-5, clip = 1.0"
SAMPLES, COUNTS, DEVICES = (
    f"privacy={{ {NOISE} }}",
    f"privacy={{ {NOISE}, statistics-epsilon = 0.6 }}",
    f"privacy={{ {NOISE}, unit = 'device' }}",
)
ACCEPTED = {
    SAMPLES: '{"delta":"0.00001","epsilon":"6","filter":"rdp","kind":"accept","rho":"0.251410415557","task":"walk",'
    '"task-hash":"HASH","unit":"sample","uses":3}',
    # The same sum enforces, with the same scale and the same ρ, then and now: only the law is another.
    COUNTS: '{"apart":"0.199067355508","delta":"0.00001","epsilon":"6","filter":"rdp","kind":"accept",'
    '"rest":"0.241520933239","rho":"0.251427910208","task":"walk","task-hash":"HASH","unit":"sample","uses":3}',
    DEVICES: '{"delta":"0.00001","epsilon":"6","filter":"rdp","kind":"accept","rho":"0.0150747487995","task":"walk",'
    '"task-hash":"HASH","unit":"device","uses":50}',
}
LAPLACE = (
    '{"delta":"0","epsilon":"6","filter":"pure","kind":"accept","pure":"1.99963220452","rho":"1.63092386472",'
    '"task":"walk","task-hash":"HASH","unit":"sample","uses":3}'
)


def put_back(place: Path, accepted: str, key: str = "before") -> None:
    """Let the device's ledger be what an earlier crowdml left: terms accepted, one release charged and not settled."""
    path = place / "ledger.sqlite"
    for file in place.glob("ledger.sqlite*"):
        file.unlink()
    task_hash = Home(place).member("walk").task_hash
    with Ledger(path) as ledger:
        ledger._write(json.loads(accepted.replace("HASH", task_hash)))
        ledger.charge("walk", key, b"bytes", samples=np.arange(4), version=0)
    assert format_of(path) == 2


def format_of(path: Path) -> int:
    file = sqlite3.connect(path)
    found: int = file.execute("PRAGMA user_version").fetchone()[0]
    file.close()
    return found


def entries_of(place: Path) -> list[bytes]:
    with Ledger(place / "ledger.sqlite") as ledger:
        return ledger.entries()


@pytest.mark.parametrize("task", list(ACCEPTED), ids=["samples", "counts beside", "devices"])
def test_a_ledger_of_discrete_noise_does_not_go_on_with_rounded_noise(
    make_server: Any, join: Any, rows: Any, task: str
) -> None:
    server = make_server(task)
    place = join(server)
    put_back(place, ACCEPTED[task])
    before = entries_of(place)
    with pytest.raises(TermsViolated, match=r"its ledger accepted ε = 6 .* by Rényi divergences(.|\n)*withdraw"):
        Device(place, connect=server.connect)
    server.devices.clear()  # and where the server has forgotten the device, joining once more changes nothing
    member = Home(place).member()
    with pytest.raises(TermsViolated, match="One task never mixes the two: nothing was sent"):
        join(server)
    assert not server.sent and entries_of(place) == before and Home(place).member() == member


def test_what_was_spent_stays_counted_as_it_was_and_the_next_task_is_counted_exactly(
    make_server: Any, join: Any, rows: Any
) -> None:
    server = make_server(SAMPLES)
    place = join(server)
    put_back(place, ACCEPTED[SAMPLES])
    spent = ledger_report(Home(place), compare=False)["tasks"]["walk"]
    assert spent["releases"] == 1
    leave(Home(place), Home(place).member(), server.connect)
    with Ledger(place / "ledger.sqlite") as ledger:
        closed = ledger.chain.tasks["walk"]
        assert closed.closed and not closed.terms.event.gaussian and not ledger.unsettled()
        assert closed.reserved().epsilon == 6.0, "an owner who leaves frees nothing"
        assert ledger.spent("walk").epsilon == pytest.approx(rdp_epsilon(0.251410415557, 1e-5))
    assert format_of(place / "ledger.sqlite") == 2
    other = make_server(SAMPLES, "name=run")
    join(other)
    with Device(place, "run", connect=other.connect) as device:
        assert device.run(rows, releases=1).used == 1
    with Ledger(place / "ledger.sqlite") as ledger:
        run, walk = ledger.chain.tasks["run"], ledger.chain.tasks["walk"]
        assert run.terms.event.gaussian and run.terms.filter.kind == "gaussian" and not walk.terms.event.gaussian
        assert ledger.spent("run").epsilon < rdp_epsilon(run.terms.event.rho, 1e-5) * 0.98
        assert ledger.spent("walk").epsilon == pytest.approx(rdp_epsilon(0.251410415557, 1e-5))


def test_an_earlier_crowdml_does_not_read_what_says_that_noise_is_rounded(make_server: Any, join: Any) -> None:
    """It would take "counts beside" for its own, with discrete noise: an earlier version reads format 2 alone."""
    place = join(make_server(COUNTS))
    assert format_of(place / "ledger.sqlite") == 3
    assert b'"noise":"gaussian"' in entries_of(place)[0]
    join(make_server("name=run"))
    assert format_of(place / "ledger.sqlite") == 3, "it stays so, whatever comes later"


def test_a_task_with_laplace_noise_goes_on(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    assert format_of(place / "ledger.sqlite") == 2
    assert entries_of(place)[0].decode() == LAPLACE.replace("HASH", Home(place).member().task_hash)
    with Device(place, connect=server.connect) as device:
        assert device.run(rows, releases=1).used == 1
