"""The `[echo]` table and the options read from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config import Apply, Key, Kind, channel_key, service_drain, service_table
from penstock.kernel.restart import Escalation

if TYPE_CHECKING:
    from penstock.config import ListenerSettings, Settings

TABLE = service_table(
    "echo",
    port_offset=10,
    keys=(
        Key(
            "workers", Kind.INT, 2, low=1, high=64, unit="tasks", apply=Apply.RESTART, help="Workers that answer jobs."
        ),
        Key(
            "on_crash_loop",
            Kind.CHOICE,
            "quarantine",
            choices=("quarantine", "fatal"),
            apply=Apply.RESTART,
            help="What more than five crashes of a task in a minute lead to.",
        ),
        channel_key("work", 512, "jobs on their way to a worker. Full: 429 `busy`."),
        service_drain("3s", "5s"),
    ),
    help="The echo service, off unless `node.echo` is true.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EchoOptions:
    """What can be tuned."""

    listener: ListenerSettings
    workers: int = 2
    work_capacity: int = 512
    drain_deadline_s: float = 3.0
    escalation: Escalation = Escalation.QUARANTINE
    chaos: bool = False

    @classmethod
    def from_settings(cls, settings: Settings, listener: ListenerSettings) -> EchoOptions:
        """Read the `[echo]` table."""
        return cls(
            listener=listener,
            workers=settings.integer("echo.workers"),
            work_capacity=settings.integer("echo.channels.work"),
            drain_deadline_s=settings.seconds("echo.drain_deadline"),
            escalation=Escalation(settings.text("echo.on_crash_loop")),
            chaos=settings.flag("node.chaos"),
        )
