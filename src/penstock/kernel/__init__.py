"""The runtime under all services: bounded channels, deadlines, supervision, drain. Standard library only.

| to say | use |
|---|---|
| what went wrong | `errors` |
| what time it is, and until when | `clock`, `deadline` |
| hand work over | `channel`, `broadcast`, `watch`, `snapshot`, `worker` |
| say no early | `limiter`, `breaker`, `backoff` |
| remember, within bounds | `memo` |
| run and end tasks | `child`, `supervisor`, `scope`, `restart`, `drain`, `lifecycle`, `root` |
| leave the loop, or stay | `pool`, `lock`, `sync_pace` |
| be seen | `inventory`, `metrics`, `health`, `bus`, `log`, `log_writer` |
| own and close things | `resource`, `runtime` |

It knows no service. A channel, lock, limiter or pool is made through an `Inventory`; a task by a
`Supervisor` from a `ChildSpec`, or in a `Scope`; nothing concurrent is anonymous.
"""

from __future__ import annotations

from penstock.kernel.backoff import Doubling, FullJitter, RetryBudget, Stepped
from penstock.kernel.breaker import Breaker, BreakerPolicy, BreakerState
from penstock.kernel.broadcast import Broadcast, Receiver
from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, ChildState, Drain
from penstock.kernel.clock import SYSTEM, Clock, LoopClock
from penstock.kernel.deadline import Deadline, current_deadline, no_deadline, pause, timeout, use_deadline
from penstock.kernel.drain import DrainReport
from penstock.kernel.errors import (
    BackoffRetry,
    Backpressure,
    BadOrigin,
    Busy,
    Canceled,
    Closed,
    Conflict,
    DownstreamUnavailable,
    Expired,
    Forbidden,
    Integrity,
    Internal,
    Lagging,
    Malformed,
    NotFound,
    NotReady,
    OverLimit,
    PenstockError,
    PolicyBlocked,
    RateLimited,
    Timeout,
    Unauthenticated,
    Unsupported,
)
from penstock.kernel.health import Gate, Health, Verdict
from penstock.kernel.inventory import Inventory
from penstock.kernel.lifecycle import Phase, Shutdown, StopRequests
from penstock.kernel.limiter import ByteBudget, ByteShare, Limiter, TokenBucket
from penstock.kernel.lock import Lock, LockOrder
from penstock.kernel.log import Log
from penstock.kernel.metrics import Counter, Gauge, Histogram, Metrics, Summary
from penstock.kernel.pool import Pool
from penstock.kernel.resource import Resource, open_resources
from penstock.kernel.restart import Action, Escalation, Exit, Restart, RestartPolicy
from penstock.kernel.root import Root, Staged
from penstock.kernel.scope import Scope
from penstock.kernel.snapshot import Snapshot
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.watch import Watch, WatchReceiver
from penstock.kernel.worker import Job, JobLoop, current_corr_id

__all__ = [
    "SYSTEM",
    "Action",
    "BackoffRetry",
    "Backpressure",
    "BadOrigin",
    "Breaker",
    "BreakerPolicy",
    "BreakerState",
    "Broadcast",
    "Busy",
    "ByteBudget",
    "ByteShare",
    "Canceled",
    "Channel",
    "Child",
    "ChildSpec",
    "ChildState",
    "Clock",
    "Closed",
    "Conflict",
    "Counter",
    "Deadline",
    "Doubling",
    "DownstreamUnavailable",
    "Drain",
    "DrainReport",
    "Escalation",
    "Exit",
    "Expired",
    "Forbidden",
    "Full",
    "FullJitter",
    "Gate",
    "Gauge",
    "Health",
    "Histogram",
    "Integrity",
    "Internal",
    "Inventory",
    "Job",
    "JobLoop",
    "Lagging",
    "Limiter",
    "Lock",
    "LockOrder",
    "Log",
    "LoopClock",
    "Malformed",
    "Metrics",
    "NotFound",
    "NotReady",
    "OverLimit",
    "PenstockError",
    "Phase",
    "PolicyBlocked",
    "Pool",
    "RateLimited",
    "Receiver",
    "Resource",
    "Restart",
    "RestartPolicy",
    "RetryBudget",
    "Root",
    "Scope",
    "Shutdown",
    "Snapshot",
    "Staged",
    "Stepped",
    "StopRequests",
    "Summary",
    "Supervisor",
    "SupervisorOptions",
    "Timeout",
    "TokenBucket",
    "Unauthenticated",
    "Unsupported",
    "Verdict",
    "Watch",
    "WatchReceiver",
    "current_corr_id",
    "current_deadline",
    "no_deadline",
    "open_resources",
    "pause",
    "timeout",
    "use_deadline",
]
