"""What an operator should know of the node itself: full queues, refusals, a disk that fills up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.admin.concern import Concern
from penstock.admin.node_panels import FILL_BAD

if TYPE_CHECKING:
    from penstock.kernel.supervisor import Supervisor

# So many requests refused within a minute are worth a look.
REFUSED_MIN: Final = 10
DISK_WARN: Final = 90.0
DISK_BAD: Final = 97.0


def own_concerns(
    supervisors: Sequence[Supervisor], now: Mapping[str, float], refused: Mapping[str, float]
) -> list[Concern]:
    """List them; `now` is what was measured last, `refused` the last minute's refusals by reason."""
    return [*_full_queues(supervisors), *_refusals(refused), *_disk(now.get("disk", 0.0))]


def _full_queues(supervisors: Sequence[Supervisor]) -> list[Concern]:
    full = [
        f"{supervisor.service} {row.name}"
        for supervisor in supervisors
        for row in supervisor.inventory.declared("channels")
        if row.facts["kind"] == "mpsc" and _fill(row) >= FILL_BAD
    ]
    if not full:
        return []
    more = f" and {len(full) - 1} more" if full[1:] else ""
    words = "a full queue" if len(full) == 1 else f"{len(full)} full queues"
    return [Concern("bad", words, f"{full[0]}{more} cannot take much more", "runtime")]


def _fill(row: Any) -> float:  # noqa: ANN401 - a row of the inventory
    return float(row.live()["depth"]) / float(row.facts["capacity"])


def _refusals(refused: Mapping[str, float]) -> list[Concern]:
    total = round(sum(refused.values()))
    if total < REFUSED_MIN:
        return []
    most = max(refused, key=lambda reason: refused[reason])
    return [
        Concern("warn", "refusals", f"{total:,} requests were refused in the last minute, most as {most}", "overview")
    ]


def _disk(used: float) -> list[Concern]:
    if used < DISK_WARN:
        return []
    return [Concern("bad" if used >= DISK_BAD else "warn", "a full disk", f"The disk is {used:.0f} % full", "overview")]
