"""Metrics: a handful of public numbers in the text format that Prometheus reads. None is derived from private data."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

_HELP = {
    "crowdml_check_outs_total": "Check-outs answered, by status",
    "crowdml_check_ins_total": "Check-ins answered, by status",
    "crowdml_stored_total": "Check-ins stored",
    "crowdml_transactions_total": "Transactions of the writers",
    "crowdml_transaction_seconds_total": "Time spent in those",
    "crowdml_version": "Present version of a task",
    "crowdml_devices": "Devices that may speak",
    "crowdml_waiting": "Check-ins and other work that wait for the writer",
}
"""What each metric means; one that is not here cannot be shown."""


class Metrics:
    """Counts."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        # By status; counted in the event loop only, where no lock is needed.
        self.check_outs: Counter[int] = Counter()
        self.check_ins: Counter[int] = Counter()

    def stored(self, task: str, check_ins: int, seconds: float) -> None:
        """Count a transaction; called by writers."""
        label = f'task="{task}"'
        with self._lock:
            self._counts["crowdml_stored_total", label] += check_ins
            self._counts["crowdml_transactions_total", label] += 1
            self._counts["crowdml_transaction_seconds_total", label] += seconds  # type: ignore[assignment]

    def text(self, gauges: Mapping[tuple[str, str], float]) -> str:
        """Write counters and the present values of gauges."""
        lines, last = [], ""
        counts: dict[tuple[str, str], float] = dict(self._counts)
        for name, by_status in (("check_outs", self.check_outs), ("check_ins", self.check_ins)):
            counts |= {(f"crowdml_{name}_total", f'status="{status}"'): own for status, own in by_status.items()}
        kinds: list[tuple[Mapping[tuple[str, str], float], str]] = [(counts, "counter"), (gauges, "gauge")]
        for values, kind in kinds:
            for (name, label), value in sorted(values.items()):
                if name != last:
                    lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {kind}"]
                    last = name
                lines.append(f"{name}{{{label}}} {value:.10g}")
        return "".join(f"{line}\n" for line in lines)
