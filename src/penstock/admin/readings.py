"""What the node measures once a second for the page: rates and quantiles from the metrics, and the process itself."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from operator import sub
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.admin.history import quantile
from penstock.kernel.metrics import Counter, Histogram, Watched

if TYPE_CHECKING:
    from penstock.kernel.metrics import Instrument, MetricFamily, Metrics

# Delays, ages and uses: the largest of ten seconds is kept, because a mean would hide what an operator looks for.
PEAKS: Final = ("_p50", "_p99", ".p99", "oldest_s", "cpu", "rss", "disk")
# Reasons of refusals that have a series of their own; others are added up.
_REASONS_MAX: Final = 16
_DISK_EVERY_S: Final = 10.0
_PAGE_BYTES: Final = resource.getpagesize()

Readings = Callable[[float], Mapping[str, float]]
"""Called once a second with monotonic seconds; returns the values of that second by the name of their series."""


class PerSecond:
    """Turns counters into rates between two looks; the first look at a counter that is new says nothing."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._at = 0.0

    def rates(self, counts: Mapping[str, float], now: float) -> dict[str, float]:
        """Return how much each counter grew a second; one that began meanwhile grew from 0."""
        passed, before = now - self._at, self._before
        self._before, self._at = dict(counts), now
        if not before or passed <= 0:
            return {}
        return {name: max(0.0, count - before.get(name, 0.0)) / passed for name, count in counts.items()}


class Quantiles:
    """The quantiles of what a group of histograms counted since the last look."""

    def __init__(self) -> None:
        self._before: list[int] = []

    def since(self, histograms: Iterable[Histogram], *parts: float) -> list[float | None]:
        """Return the quantiles; None where nothing was counted, and at the first look."""
        found = list(histograms)
        if not found:
            return [None] * len(parts)
        counts = [sum(column) for column in zip(*(each.counts for each in found), strict=True)]
        before, self._before = self._before, counts
        if len(before) != len(counts):
            return [None] * len(parts)
        fresh = list(map(sub, counts, before))
        return [quantile(found[0].bounds, fresh, part) for part in parts]


class MetricReadings:
    """Refusals by reason, answers by service, and the delays of sends, proxied requests, commits and the loop."""

    def __init__(self, metrics: Callable[[], Iterable[Metrics]]) -> None:
        """Look at the metrics of every service, which come and go."""
        self._metrics = metrics
        self._rates = PerSecond()
        self._delays = {name: Quantiles() for name in ("send", "proxy", "commit", "lag")}
        self._reasons: set[str] = set()

    def __call__(self, now: float) -> dict[str, float]:
        """Read everything once."""
        families = {each.service: {family.name: family for family in each.families()} for each in self._metrics()}
        values = self._rates.rates(self._counts(families), now)
        for name, quantiles in self._delays.items():
            p50, p99 = quantiles.since(_histograms(name, families), 0.5, 0.99)
            values |= {f"{name}_p50": p50} if p50 is not None else {}
            values |= {f"{name}_p99": p99} if p99 is not None else {}
        return values

    def _counts(self, families: Mapping[str, Mapping[str, MetricFamily]]) -> dict[str, float]:
        counts: dict[str, float] = {"refused": 0.0}
        for service, named in families.items():
            for reason, count in by_label(named.get("rejected_total"), "reason"):
                counts["refused"] += count
                name = f"refused.{self._reason(reason)}"
                counts[name] = counts.get(name, 0.0) + count
            counts[f"answered.{service}"] = sum(count for _, count in by_label(named.get("http_requests_total"), ""))
        return counts

    def _reason(self, reason: str) -> str:
        if reason in self._reasons or len(self._reasons) < _REASONS_MAX:
            self._reasons.add(reason)
            return reason
        return "other"


def by_label(family: MetricFamily | None, label: str) -> list[tuple[str, float]]:
    """List the counts of a family with the value that a label has in each; none where the family is not there yet."""
    series = () if family is None else family.series.items()
    return [(dict(labels).get(label, ""), _count(each)) for labels, each in series]


def _count(instrument: Instrument) -> float:
    return instrument.value if isinstance(instrument, Counter | Watched) else 0.0


def _histograms(name: str, families: Mapping[str, Mapping[str, MetricFamily]]) -> list[Histogram]:
    """Choose the histograms behind a delay that the page shows."""
    if name == "send":
        # Taken where messages are stored, so a send counts once, whichever listener it came through.
        return _chosen(families, "svc-mailbox", "send_seconds", lambda _: True)
    if name == "proxy":
        return _chosen(families, "omnigate", "request_latency_seconds", _is_proxied)
    if name == "commit":
        return _chosen(families, "svc-mailbox", "commit_seconds", lambda _: True)
    return _chosen(families, "node", "loop_lag_seconds", lambda _: True)


def _is_proxied(labels: dict[str, str]) -> bool:
    return labels.get("route", "").endswith("/{rest*}")


def _chosen(
    families: Mapping[str, Mapping[str, MetricFamily]],
    service: str,
    name: str,
    wanted: Callable[[dict[str, str]], bool],
) -> list[Histogram]:
    family = families.get(service, {}).get(name)
    series = () if family is None else family.series.items()
    return [each for labels, each in series if isinstance(each, Histogram) and wanted(dict(labels))]


class ProcessReadings:
    """CPU as percent of one core, resident memory, and how full the disk of the data directory is."""

    def __init__(self, data_dir: Path | None) -> None:
        """Look at this directory's disk; None where nothing is kept on one."""
        self._data_dir = data_dir
        self._cpu_s = time.process_time()
        self._at: float | None = None
        self._disk: dict[str, float] = {}
        self._disk_at = float("-inf")

    def __call__(self, now: float) -> dict[str, float]:
        """Read them once."""
        values = {"rss": float(_resident_bytes()), **self._disk_values(now)}
        spent, passed = time.process_time() - self._cpu_s, 0.0 if self._at is None else now - self._at
        self._cpu_s, self._at = self._cpu_s + spent, now
        return {**values, "cpu": 100 * spent / passed} if passed > 0 else values

    def _disk_values(self, now: float) -> dict[str, float]:
        if self._data_dir is not None and now - self._disk_at >= _DISK_EVERY_S:
            self._disk_at = now
            self._disk = _disk_of(self._data_dir)
        return self._disk


def _disk_of(folder: Path) -> dict[str, float]:
    try:
        found = os.statvfs(folder)
    except OSError:
        return {}
    usable = found.f_blocks - found.f_bfree + found.f_bavail
    free = found.f_bavail * found.f_frsize
    return {"disk": 100 * (1 - found.f_bavail / usable) if usable else 0.0, "disk_free": float(free)}


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        # Elsewhere than on Linux the largest size so far is all that is told, in KiB.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
