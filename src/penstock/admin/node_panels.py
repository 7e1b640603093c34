"""The panels about the node itself: the verdict, then services, channels, tasks and events, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.admin.panel import Panel, Rows
from penstock.kernel.child import ChildState
from penstock.kernel.lifecycle import Phase
from penstock.kernel.metrics import Counter, Watched

if TYPE_CHECKING:
    from penstock.admin.event_tail import EventTail, Moment
    from penstock.admin.view import NodeView
    from penstock.kernel.metrics import Metrics
    from penstock.kernel.supervisor import Supervisor

# From the worst to the best; the page shows them in this order.
STATES: Final = ("fatal", "not ready", "aborting", "draining", "stopped", "degraded", "ready")
_CHILD_STATES: Final = (
    ChildState.FATAL, ChildState.QUARANTINED, ChildState.BACKOFF, ChildState.PROBATION, ChildState.STARTING,
    ChildState.RUNNING,
    ChildState.FINISHED,
)  # fmt: skip
# A channel this full is worth a look; this full it is about to refuse.
FILL_WARN: Final = 0.5
FILL_BAD: Final = 0.8


def node_panels(view: NodeView, tail: EventTail, more: Sequence[Panel] = ()) -> list[Panel]:
    """List the panels of a node: verdict, services, then those of single services, then channels, tasks and events."""
    return [
        Panel("services", "Services", lambda: services(view.supervisors()), render="services"),
        Panel("channels", "Channels", lambda: channels(view.supervisors()), render="meters", rows_max=500),
        Panel("tasks", "Tasks", lambda: tasks(view.supervisors()), render="tasks", rows_max=500),
        *more,
        Panel("phases", "Phases", lambda: _moments(tail.phases), render="events"),
        Panel(
            "events", "Events", lambda: _events(tail), render="events", empty="No events since the start.", rows_max=40
        ),
    ]


def verdict(view: NodeView) -> dict[str, object]:
    """Return the state of the node in one word and one sentence."""
    rows = services(view.supervisors())
    own = view.phase()
    worst = min((str(row["state"]) for row in rows), key=STATES.index, default="not ready")
    state = own.value if own is not Phase.RUNNING else worst
    # While services end before the node does, the node as a whole is draining.
    if state == "stopped" and own is Phase.RUNNING:
        state = "draining"
    return {"state": state, "why": _why([row for row in rows if row["state"] != "ready"])}


def _why(worrying: Rows) -> str:
    return "; ".join(_sentence(row) for row in worrying[:3]) + (f"; {len(worrying) - 3} more" if worrying[3:] else "")


def _sentence(row: dict[str, Any]) -> str:
    gates = [*row["missing"], *row["degraded"]]
    which = ", ".join(f"{gate['gate']} ({gate['why']})" if gate["why"] else str(gate["gate"]) for gate in gates)
    return f"{row['service']} is {row['state']}" + (f": {which}" if which else "")


def services(supervisors: list[Supervisor]) -> Rows:
    """List every service with its state, the worst first."""
    rows = [_service(supervisor) for supervisor in supervisors]
    return sorted(rows, key=lambda row: (STATES.index(str(row["state"])), row["service"]))


def _service(supervisor: Supervisor) -> dict[str, object]:
    inventory = supervisor.inventory
    gates = inventory.health.gates()
    queues = [row.live() for row in inventory.declared("channels") if row.facts["kind"] == "mpsc"]
    return {
        "service": supervisor.service,
        "state": service_state(supervisor),
        "fatal": inventory.health.fatal or "",
        "missing": [{"gate": gate.name, "why": gate.why} for gate in gates if not gate.open],
        "degraded": [{"gate": gate.name, "why": gate.why} for gate in gates if gate.open and gate.degraded],
        "brownout": "" if inventory.health.brownout is None else inventory.health.brownout(),
        "restarts": sum(child.restarts for child in supervisor.children),
        "waiting": sum(_count(row["depth"]) for row in queues),
        "busy": _total(inventory.metrics, "busy_rejections_total"),
        "answered": _total(inventory.metrics, "http_requests_total"),
    }


def service_state(supervisor: Supervisor) -> str:
    """Return the state of a service in one word."""
    health, phase = supervisor.inventory.health, supervisor.phase.value
    judged = health.verdict()
    if health.fatal is not None:
        return "fatal"
    if phase is not Phase.RUNNING:
        return str(phase.value)
    # A gate that only advises shows its reason beside the service; it makes nothing worse.
    worse = any(gate.degraded and not gate.advisory for gate in supervisor.inventory.health.gates())
    return "not ready" if not judged.ready else "degraded" if worse else "ready"


def _total(metrics: Metrics, name: str) -> int:
    family = next((family for family in metrics.families() if family.name == name), None)
    series = () if family is None else family.series.values()
    return sum(each.value for each in series if isinstance(each, Counter | Watched))


def channels(supervisors: list[Supervisor]) -> Rows:
    """List every channel: the full ones first, then those that dropped, then the others in order of declaration."""
    rows = [
        _channel(supervisor.service, row)
        for supervisor in supervisors
        for row in supervisor.inventory.declared("channels")
    ]
    # Coarse on purpose: rows that change places every second cannot be read.
    return sorted(rows, key=_channel_rank)


def _channel(service: str, row: Any) -> dict[str, object]:  # noqa: ANN401 - a row of the inventory
    live, facts = row.live(), row.facts
    return {
        "service": service,
        "name": row.name,
        "kind": facts["kind"],
        "depth": live["depth"],
        "capacity": facts["capacity"],
        "dropped": live["dropped"],
        "full": facts["full"],
    }


def _channel_rank(row: dict[str, Any]) -> tuple[int, int]:
    fill = row["depth"] / row["capacity"]
    return (0 if fill >= FILL_BAD else 1 if fill >= FILL_WARN else 2, 0 if row["dropped"] else 1)


def tasks(supervisors: list[Supervisor]) -> Rows:
    """List every task under its service; a service with trouble comes first, and so does a task."""
    rows = [row for supervisor in supervisors for row in _tasks(supervisor)]
    worst: dict[str, int] = {}
    for row in rows:
        worst[row["service"]] = min(_trouble(row), worst.get(row["service"], 2))
    return sorted(rows, key=lambda row: (worst[row["service"]], row["service"], _trouble(row)))


def _trouble(row: dict[str, Any]) -> int:
    return 0 if row["rank"] < _CHILD_STATES.index(ChildState.STARTING) else 1 if row["restarts"] else 2


def _tasks(supervisor: Supervisor) -> list[dict[str, Any]]:
    return [_task(supervisor, spec.name, spec.critical) for spec in supervisor.specs]


def _task(supervisor: Supervisor, name: str, critical: bool) -> dict[str, Any]:  # noqa: FBT001 - a fact of the spec
    group = [child for child in supervisor.children if child.spec.name == name]
    ranks = [_CHILD_STATES.index(child.state) for child in group]
    states = {state.value: ranks.count(rank) for rank, state in enumerate(_CHILD_STATES) if rank in ranks}
    return {
        "service": supervisor.service,
        "name": name,
        "rank": min(ranks, default=len(_CHILD_STATES)),
        "states": states,
        "critical": critical,
        "restarts": sum(child.restarts for child in group),
        "error": next((child.last_error for child in reversed(group) if child.last_error), ""),
    }


def _events(tail: EventTail) -> Rows:
    rows = _moments(tail.events)
    if tail.skipped:
        rows = [{"at": 0, "service": "node", "text": f"{tail.skipped} events were lost", "level": "warn"}, *rows]
    return rows


def _moments(moments: Any) -> list[dict[str, object]]:  # noqa: ANN401 - a ring of moments
    newest: list[Moment] = list(reversed(moments))
    return [moment._asdict() for moment in newest]


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
