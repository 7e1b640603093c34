"""The inventory: every channel, task, lock, limiter, pool and timeout of a service, declared in one place.

Nothing concurrent is anonymous: what is made here is counted, exported as metrics, listed live at
`/inventory`, written into the generated tables and compared with the seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.kernel.broadcast import CAPACITY, Broadcast
from penstock.kernel.channel import Channel, Full
from penstock.kernel.clock import SYSTEM, Clock
from penstock.kernel.health import Health
from penstock.kernel.limiter import Limiter, TokenBucket
from penstock.kernel.lock import HIERARCHY, Lock
from penstock.kernel.memo import Memo
from penstock.kernel.metrics import Metrics
from penstock.kernel.pool import Pool
from penstock.kernel.watch import Watch

if TYPE_CHECKING:
    from penstock.kernel.supervisor import Supervisor

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Row = dict[str, object]

_POLICY_TEXT = {
    Full.REFUSE: "try_send, full: Busy",
    Full.DROP_OLDEST: "drop oldest, counted",
    Full.WAIT: "send waits, then Timeout",
}


@dataclass(frozen=True, slots=True)
class Declared:
    """One row: what was declared, and how to read its live state."""

    table: str  # channels, tasks, locks, limits, timeouts
    name: str
    facts: Row
    live: Callable[[], Row]


class Inventory:
    """Declares what one service is made of; the only way to make a channel, lock, limiter or pool."""

    def __init__(self, service: str, clock: Clock = SYSTEM) -> None:
        """Start empty; metrics and health belong to the same service."""
        self.service = service
        self.clock = clock
        self.metrics = Metrics(service)
        self.health = Health(service)
        self._declared: dict[tuple[str, str], Declared] = {}

    # --- channels --------------------------------------------------------------------------------------

    def channel(  # noqa: PLR0913 - a declaration is a row of a table, and the table has these columns
        self,
        name: str,
        item: type[T] | UnionType,
        *,
        capacity: int,
        full: Full,
        producers: str = "",
        consumers: str = "",
        wait_s: float | None = None,
        shard: int | None = None,
        summed: bool = False,
    ) -> Channel[T]:
        """Declare a bounded channel; `shard` makes it one of a family that shares a name.

        The depth of each shard is a series of its own, unless the family is `summed`: then it is one queue to the
        metrics.
        """
        label = name if shard is None else f"{name}[{shard}]"
        channel: Channel[T] = Channel(label, capacity=capacity, full=full, wait_s=wait_s)
        facts: Row = {
            "kind": "mpsc",
            "item": getattr(item, "__name__", str(item)),
            "capacity": capacity,
            "policy": _POLICY_TEXT[full] + (f" after {wait_s * 1000:g} ms" if wait_s else ""),
            "full": full.value,
            "producers": producers,
            "consumers": consumers,
        }

        def live() -> Row:
            return {"depth": channel.depth, "dropped": channel.dropped, "closed": channel.closed}

        self._declare("channels", label, facts, live)
        if summed:
            facts["family"] = name
        else:
            # Sharded and plain channels of one service share the family: the empty label is left out.
            labels = {"queue": name, "shard": "" if shard is None else str(shard)}
            self.metrics.gauge("queue_depth", "Items waiting in a channel.", read=lambda: channel.depth, **labels)
        self._count_drops(name, channel)
        return channel

    def channels(  # noqa: PLR0913 - a declaration is a row of a table, and the table has these columns
        self,
        name: str,
        item: type[T] | UnionType,
        *,
        count: int,
        capacity: int,
        full: Full,
        producers: str = "",
        consumers: str = "",
        wait_s: float | None = None,
    ) -> list[Channel[T]]:
        """Declare alike channels, `name[0]` and on: one queue to the metrics, one row in generated tables."""
        family: list[Channel[T]] = [
            self.channel(
                name,
                item,
                capacity=capacity,
                full=full,
                producers=producers,
                consumers=consumers,
                wait_s=wait_s,
                shard=index,
                summed=True,
            )
            for index in range(count)
        ]
        depth = lambda: sum(channel.depth for channel in family)  # noqa: E731
        self.metrics.gauge("queue_depth", "Items waiting in a channel.", read=depth, queue=name, shard="")
        return family

    def _count_drops(self, name: str, channel: Channel[Any]) -> None:
        """Channels of one family share one drop counter, as the seeds label it."""
        siblings = self.metrics.watched("queue_dropped_total", "Items refused or dropped.", queue=name)
        siblings.append(lambda: channel.dropped)

    def queue(  # noqa: PLR0913 - a declaration is a row of a table, and the table has these columns
        self,
        name: str,
        item: type[T] | UnionType,
        *,
        capacity: int,
        live: Callable[[], Row],
        full: Full = Full.REFUSE,
        producers: str = "",
        consumers: str = "",
    ) -> None:
        """Declare a bounded queue that its owner keeps itself, so that it is listed."""
        facts: Row = {
            "kind": "mpsc",
            "item": getattr(item, "__name__", str(item)),
            "capacity": capacity,
            "policy": _POLICY_TEXT[full],
            "full": full.value,
            "producers": producers,
            "consumers": consumers,
        }
        self._declare("channels", name, facts, live)

    def broadcast(
        self,
        name: str,
        item: type[T] | UnionType,
        *,
        capacity: int = CAPACITY,
        producers: str = "",
        consumers: str = "",
    ) -> Broadcast[T]:
        """Declare a broadcast; slow receivers lose the oldest and it is counted."""
        broadcast: Broadcast[T] = Broadcast(name, capacity=capacity)
        facts: Row = {
            "kind": "broadcast",
            "item": getattr(item, "__name__", str(item)),
            "capacity": capacity,
            "policy": "lag counter; drop oldest",
            "full": "lag",
            "producers": producers,
            "consumers": consumers,
        }
        self._declare("channels", name, facts, lambda: {"depth": broadcast.depth, "dropped": broadcast.lagged})
        lagged = self.metrics.watched("bus_lagged_total", "Messages lost by slow receivers of a broadcast.")
        lagged.append(lambda: broadcast.lagged)
        return broadcast

    def watch(self, name: str, initial: T, *, producers: str = "", consumers: str = "") -> Watch[T]:
        """Declare a watch: one value, last write wins."""
        watch: Watch[T] = Watch(name, initial)
        facts: Row = {
            "kind": "watch",
            "item": type(initial).__name__,
            "capacity": 1,
            "policy": "last write wins",
            "full": "replace",
            "producers": producers,
            "consumers": consumers,
        }
        self._declare("channels", name, facts, lambda: {"depth": 0, "dropped": 0, "version": watch.version})
        return watch

    # --- limits ----------------------------------------------------------------------------------------

    def limiter(self, name: str, capacity: int) -> Limiter:
        """Declare a counted resource that never queues."""
        limiter = Limiter(name, capacity)
        facts: Row = {"kind": "limiter", "capacity": capacity, "policy": "try_acquire_many, none left: Busy"}
        self._declare("limits", name, facts, lambda: {"in_use": limiter.in_use, "refused": limiter.refused})
        self._count_quota(name, lambda: limiter.refused)
        return limiter

    def bucket(self, name: str, *, rate: float, depth: float) -> TokenBucket:
        """Declare a token bucket."""
        clock = self.clock
        bucket = TokenBucket(name, rate=rate, depth=depth, now=clock.monotonic())
        facts: Row = {"kind": "bucket", "capacity": depth, "policy": f"{rate:g}/s, empty: RateLimited"}

        def live() -> Row:
            return {"in_use": depth - bucket.level(clock.monotonic()), "refused": bucket.refused}

        self._declare("limits", name, facts, live)
        self._count_quota(name, lambda: bucket.refused)
        return bucket

    def limit(self, name: str, value: float, policy: str, live: Callable[[], Row] | None = None) -> None:
        """Declare a limit that somebody else enforces (connections, bytes, sizes), so that it is listed."""
        self._declare("limits", name, {"kind": "limit", "capacity": value, "policy": policy}, live or dict)

    def memo(self, name: str, memo: Memo[K, V]) -> Memo[K, V]:
        """Declare a bounded memory of what was worked out before; returns it."""
        facts: Row = {"kind": "memo", "capacity": memo.capacity, "policy": "full: the oldest are forgotten"}
        self._declare("limits", name, facts, lambda: {"in_use": len(memo), "forgotten": memo.forgotten})
        return memo

    def timeout(self, op: str, seconds: float, effect: str, live: Callable[[], Row] | None = None) -> float:
        """Declare how long an operation may take and what follows; returns the seconds for the caller to use."""
        self._declare("timeouts", op, {"seconds": seconds, "effect": effect}, live or dict)
        return seconds

    def _count_quota(self, name: str, read: Callable[[], int]) -> None:
        self.metrics.watched("quota_reject_total", "Requests a limiter refused.", kind=name).append(read)

    # --- locks and pools -------------------------------------------------------------------------------

    def lock(self, name: str) -> Lock:
        """Declare a lock of the seeds' hierarchy; a name without a rank is a bug."""
        lock = Lock(name, HIERARCHY[name])
        self._declare("locks", name, {"rank": lock.rank}, lambda: {"acquired": lock.acquired})
        return lock

    def pool(self, name: str, *, threads: int, capacity: int) -> Pool:
        """Declare a bounded thread pool for calls that release the GIL."""
        pool = Pool(name, threads=threads, capacity=capacity)
        facts: Row = {"kind": "pool", "capacity": threads + capacity, "policy": f"{threads} threads, full: Busy"}
        self._declare("limits", name, facts, lambda: {"in_use": pool.depth, "refused": pool.refused})
        self.metrics.gauge(
            "pool_stuck", "Calls past their deadline that hold a thread.", read=lambda: pool.stuck, pool=name
        )
        return pool

    # --- tasks -----------------------------------------------------------------------------------------

    def declare_tasks(self, supervisor: Supervisor) -> None:
        """List the children of the service's supervisor."""
        for spec in supervisor.specs:
            policy = spec.policy or supervisor.options.policy
            facts: Row = {
                "kind": spec.task_kind,
                "instances": spec.instances,
                "critical": spec.critical,
                "drain": spec.drain.value,
                "restart": policy.restart.value,
                "backoff": f"{policy.backoff.base_s * 1000:g} ms, full jitter, cap {policy.backoff.cap_s:g} s",
                "crash_loop": f"more than {policy.crashes_max} in {policy.window_s:g} s: {policy.escalation.value}",
            }
            self._declare("tasks", spec.name, facts, _live_tasks(supervisor, spec.name))
            self.health.gate(spec.name)

    # --- reading ---------------------------------------------------------------------------------------

    def _declare(self, table: str, name: str, facts: Row, live: Callable[[], Row]) -> None:
        if (table, name) in self._declared:
            message = f"{self.service}: {table} has {name} already"
            raise ValueError(message)
        self._declared[(table, name)] = Declared(table, name, facts, live)

    def declared(self, table: str) -> list[Declared]:
        """Return the rows of one table in order of declaration."""
        return [row for row in self._declared.values() if row.table == table]

    def drawn(self, table: str) -> list[Declared]:
        """Return the rows of one table as generated pages draw them: a family of alike channels is one row."""
        rows: list[Declared] = []
        for row in self.declared(table):
            family = row.facts.get("family")
            if family is None:
                rows.append(row)
            elif row.name == f"{family}[0]":
                count = sum(other.facts.get("family") == family for other in self.declared(table))
                rows.append(Declared(table, f"{family}[b] x{count}", row.facts, row.live))
        return rows

    def rows(self) -> dict[str, list[Row]]:
        """Return every table with its live state: the content of `/inventory`."""
        tables: dict[str, list[Row]] = {}
        for row in self._declared.values():
            tables.setdefault(row.table, []).append({"name": row.name, **row.facts, **row.live()})
        return tables


def _live_tasks(supervisor: Supervisor, name: str) -> Callable[[], Row]:
    def live() -> Row:
        group = [child for child in supervisor.children if child.spec.name == name]
        return {
            "states": [child.state.value for child in group],
            "restarts": sum(child.restarts for child in group),
            "last_error": next((child.last_error for child in reversed(group) if child.last_error), ""),
        }

    return live
