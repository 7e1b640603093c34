"""What must not outlive a test: open resources are tracked here, and named when the test has ended.

The kernel's resources report themselves; anything else that must be closed is announced by `track`.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.kernel.resource import open_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KERNEL_LOG = logging.getLogger("penstock.kernel")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a test left behind."""

    kind: str
    text: str

    def __str__(self) -> str:
        """Print as the test report shows it."""
        return f"{self.kind}: {self.text}"


class Leaks(AssertionError):
    """A test ended and left something behind."""

    def __init__(self, findings: list[Finding]) -> None:
        """Name every finding, one a line."""
        super().__init__("the test left behind\n" + "\n".join(f"  {finding}" for finding in findings))
        self.findings = findings


@dataclass(frozen=True, slots=True)
class _Tracked:
    name: str
    is_open: Callable[[], bool]


_tracked: list[_Tracked] = []


def track(name: str, is_open: Callable[[], bool]) -> None:
    """Demand that this resource is closed when the current test ends."""
    _tracked.append(_Tracked(name, is_open))


class Account:
    """What was open when a test began, so that only its own resources are held against it."""

    def __init__(self) -> None:
        _tracked.clear()
        self._before = Counter(open_resources())

    def still_open(self) -> list[Finding]:
        """Name what is open now and was not before."""
        own = [tracked.name for tracked in _tracked if tracked.is_open()]
        kernel = Counter(open_resources()) - self._before
        return [Finding("unclosed resource", name) for name in [*own, *kernel.elements()]]


class _Ear(logging.Handler):
    """Receives the kernel's report that a resource was dropped without close."""

    def __init__(self, found: list[Finding]) -> None:
        super().__init__(logging.DEBUG)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "dropped_without_close":
            name = getattr(record, "fields", {}).get("resource")
            self._found.append(Finding("resource dropped without close", str(name)))


@contextmanager
def hearing_drops(found: list[Finding]) -> Iterator[None]:
    """Add a finding for each kernel resource whose last reference goes before it is closed."""
    ear, level = _Ear(found), _KERNEL_LOG.level
    _KERNEL_LOG.addHandler(ear)
    _KERNEL_LOG.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        _KERNEL_LOG.setLevel(level)
        _KERNEL_LOG.removeHandler(ear)
