"""Clocks: time that cannot jump decides, time that can jump is only stored."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from penstock.lint.finding import LintHit, Where, rule
from penstock.lint.site import Site

WALL_CLOCKS = frozenset(
    {
        "time.time",
        "time.time_ns",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
        "time.CLOCK_REALTIME",
    }
)
_WALL_WITHOUT_ARGUMENT = frozenset({"time.localtime", "time.gmtime", "time.ctime", "time.asctime"})
_LAST_WORDS = frozenset(name.rpartition(".")[2] for name in WALL_CLOCKS)


def references(node: ast.Attribute | ast.Name, site: Site) -> str:
    """Name what an import leads to here; empty for local names, so that an alias is told of once."""
    if isinstance(node, ast.Name) and not site.frame.scope.is_imported(node.id):
        return ""
    return site.name(node)


@rule(
    "PK011",
    "wall-clock",
    ast.Attribute,
    ast.Name,
    ast.Call,
    instead="`clock.monotonic()` for intervals and deadlines; `clock.wall()` for times that are stored",
)
def wall_clock(node: ast.Attribute | ast.Name | ast.Call, site: Site) -> Iterator[LintHit]:
    """No code reads the wall clock directly.

    Wall time jumps: by NTP, by hand, by a suspended machine. A lease measured with it ends early or never,
    and a test cannot turn it. Passing `time.time` along as a function counts as well.

    ```python
    # before
    if time.time() > message.deadline:
        requeue(message)

    # after
    if clock.monotonic() > message.deadline:
        requeue(message)
    ```
    """
    if isinstance(node, ast.Call):
        if not node.args and site.name(node.func) in _WALL_WITHOUT_ARGUMENT:
            yield LintHit(node, f"`{ast.unparse(node)}` reads time that can jump")
    elif (isinstance(node, ast.Name) or node.attr in _LAST_WORDS) and references(node, site) in WALL_CLOCKS:
        yield LintHit(node, f"`{ast.unparse(node)}` is time that can jump")


@rule(
    "PK012",
    "wall-time-outside-storage",
    ast.Call,
    where=Where.SOURCE,
    instead="`clock.monotonic()`; or name the module in the configuration if it stores or reads wall times",
)
def wall_time_outside_storage(node: ast.Call, _site: Site) -> Iterator[LintHit]:
    """No module asks for wall time unless it stores or reads it.

    Leases, ttls and token times outlive the process and are kept as wall time; everything else is
    monotonic. The modules that store are listed in the configuration, so that a new one is a decision.

    ```python
    # before
    started = self._clock.wall()

    # after
    started = self._clock.monotonic()
    ```
    """
    if isinstance(node.func, ast.Attribute) and node.func.attr == "wall" and not node.args and not node.keywords:
        yield LintHit(node, f"`{ast.unparse(node)}` in a module that is not declared to store wall times")
