"""The node as the admin listener sees it: services, gates, phases, inventory; read-only but for kill and reload."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.kernel.health import Verdict

if TYPE_CHECKING:
    import asyncio

    from penstock.config import ReloadState, SettingRow, Settings
    from penstock.kernel.health import Health
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.lifecycle import Phase
    from penstock.kernel.metrics import Metrics
    from penstock.kernel.root import Root
    from penstock.kernel.snapshot import Snapshot
    from penstock.kernel.supervisor import Supervisor


class NodeHealth:
    """The verdict over all services: a gate for each, missing when its own verdict is not ready."""

    def __init__(self, own: Inventory) -> None:
        """Start with the node's own gates."""
        self.service = own.service
        self._own = own
        self._others: list[Inventory] = []

    def join(self, inventories: Iterable[Inventory]) -> None:
        """Add the services' gates."""
        self._others.extend(inventories)

    @property
    def fatal(self) -> str | None:
        """Name the first task whose crash loop was escalated to fatal, with its service."""
        for inventory in self._others:
            if inventory.health.fatal is not None:
                return f"{inventory.service}/{inventory.health.fatal}"
        return self._own.health.fatal

    def verdict(self) -> Verdict:
        """Judge the node."""
        own = self._own.health.verdict()
        verdicts = {inventory.service: inventory.health.verdict() for inventory in self._others}
        advised = {inventory.service for inventory in self._others if _only_advised(inventory)}
        gates = {**own.gates, **{name: verdict.ready or name in advised for name, verdict in verdicts.items()}}
        missing = tuple(name for name, is_open in gates.items() if not is_open)
        worse = (i.service for i in self._others if i.service in advised or _is_degraded(i))
        degraded = (*own.degraded, *worse)
        return Verdict(own.ready and not missing, gates, missing, degraded)


def _is_degraded(inventory: Inventory) -> bool:
    """Tell whether a gate that the node needs is degraded: a node that has no peers to find is not worse for it."""
    return any(gate.degraded and not gate.advisory for gate in inventory.health.gates())


def _only_advised(inventory: Inventory) -> bool:
    """Tell whether a service is unready for no other reason than gates the rest of the node does not need."""
    shut = [gate for gate in inventory.health.gates() if not gate.open]
    return bool(shut) and inventory.health.fatal is None and all(gate.advisory for gate in shut)


class NodeView:
    """What the admin routes may ask of the node."""

    def __init__(
        self,
        root: Root,
        settings: Snapshot[Settings],
        health: NodeHealth,
        reload: Callable[[], asyncio.Future[Any]],
        reloads: Callable[[], ReloadState],
    ) -> None:
        """Take the root to look at; `reload` is the only way to change the settings."""
        self._root = root
        self._settings = settings
        self._health = health
        self._reload = reload
        self._reloads = reloads

    @property
    def chaos(self) -> bool:
        """Tell whether tasks may be killed on purpose."""
        return self._settings.value.flag("node.chaos")

    def settings(self) -> list[SettingRow]:
        """Return every setting with the value in force, redacted."""
        return self._settings.value.show()

    def reloads(self) -> ReloadState:
        """Return what the last reload left undone."""
        return self._reloads()

    def supervisors(self) -> list[Supervisor]:
        """Return every service, the node's own last."""
        return [staged.supervisor for staged in self._root.services]

    def phase(self) -> Phase:
        """Return the phase of the node itself: that of its own service, which ends last."""
        return self._root.services[-1].supervisor.phase.value

    def metrics(self) -> list[Metrics]:
        """Return every service's metrics."""
        return [supervisor.inventory.metrics for supervisor in self.supervisors()]

    def inventory(self) -> dict[str, object]:
        """Return every table of every service with its live state."""
        return {supervisor.service: supervisor.inventory.rows() for supervisor in self.supervisors()}

    def status(self) -> dict[str, object]:
        """Return the page an operator reads first."""
        verdict = self._health.verdict()
        return {
            "ready": verdict.ready,
            "fatal": self._health.fatal,
            "missing": verdict.missing,
            "degraded": verdict.degraded,
            "services": [_service(supervisor) for supervisor in self.supervisors()],
        }

    def kill(self, name: str) -> bool:
        """Crash a task: `worker`, `worker[0]` or `svc-echo:worker[0]`; False when there is none running."""
        service, colon, task = name.rpartition(":")
        return any(
            supervisor.kill(task) for supervisor in self.supervisors() if not colon or supervisor.service == service
        )

    def reload(self) -> asyncio.Future[Any]:
        """Ask for the configuration to be read again; the future holds the outcome or its faults."""
        return self._reload()


def _brownout(health: Health) -> dict[str, object]:
    """Tell whether a service sheds work, and why; null for one that never does."""
    why = None if health.brownout is None else health.brownout()
    return {"brownout": None if why is None else bool(why), "brownout_why": why or ""}


def _service(supervisor: Supervisor) -> dict[str, object]:
    verdict = supervisor.inventory.health.verdict()
    rows = supervisor.inventory.rows()
    return {
        "service": supervisor.service,
        "phase": supervisor.phase.value.value,
        "ready": verdict.ready,
        "fatal": supervisor.inventory.health.fatal,
        "gates": verdict.gates,
        "missing": verdict.missing,
        "degraded": verdict.degraded,
        **_brownout(supervisor.inventory.health),
        "restarts": sum(child.restarts for child in supervisor.children),
        "channels": rows.get("channels", []),
        "tasks": rows.get("tasks", []),
    }
