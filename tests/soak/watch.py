"""What a soak watches of the node's process: descriptors, memory and tasks, second by second, and whether they grow."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A life has to be this long before its first sample counts: caches fill and pools open.
WARM_S = 8.0
RSS_GROWTH_MIB = 24.0
FDS_GROWTH = 24
# In a long life every cache has filled by its second half: what still grows then, grows for ever.
LONG_S = 600.0
RSS_SLOPE_MIB_PER_HOUR = 24.0


@dataclass
class Life:
    """One process of the node, from its start to its drain."""

    pid: int
    samples: list[tuple[float, int, float]] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)

    def sample(self, at_s: float) -> None:
        """Note descriptors and memory now."""
        fds = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        self.samples.append((at_s, fds, pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)))

    def growth(self) -> tuple[float, float] | None:
        """Return how descriptors and MiB of memory grew from the first warm third to the last, by their medians."""
        warm = [sample for sample in self.samples if sample[0] - self.samples[0][0] >= WARM_S]
        third = len(warm) // 3
        if third < 3:
            return None
        first, last = warm[:third], warm[-third:]
        return _median([s[1] for s in last]) - _median([s[1] for s in first]), _median([s[2] for s in last]) - _median(
            [s[2] for s in first]
        )

    def slope_mib_per_hour(self) -> float:
        """Fit a line through the warm samples' memory."""
        return _slope([(at, mib) for at, _, mib in self.samples if at - self.samples[0][0] >= WARM_S])

    def lasting_slope(self) -> float | None:
        """Fit a line through the second half of a long life, in MiB an hour; None for a short one."""
        if not self.samples or self.samples[-1][0] - self.samples[0][0] < LONG_S:
            return None
        return _slope([(at, mib) for at, _, mib in self.samples[len(self.samples) // 2 :]])


def _slope(warm: list[tuple[float, float]]) -> float:
    if len(warm) < 10:
        return 0.0
    middle_t = sum(at for at, _ in warm) / len(warm)
    middle_m = sum(mib for _, mib in warm) / len(warm)
    over = sum((at - middle_t) * (mib - middle_m) for at, mib in warm)
    return 3600 * over / sum((at - middle_t) ** 2 for at, _ in warm)


def running_tasks(inventory: dict[str, Any]) -> list[str]:
    """Name the children that run, as the live inventory lists them."""
    return [
        f"{service}:{row['name']}" + (f"[{index}]" if row["instances"] > 1 else "")
        for service, parts in inventory.items()
        for row in parts.get("tasks", ())
        for index, state in enumerate(row["states"])
        if state == "running"
    ]


def _median(values: list[float] | list[int]) -> float:
    ordered = sorted(values)
    return float(ordered[len(ordered) // 2])
