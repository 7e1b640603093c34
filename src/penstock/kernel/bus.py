"""The node's event bus: a broadcast of small facts, which may be lost. A receiver that lags asks for the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.kernel.broadcast import Broadcast


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """A service's readiness changed."""

    service: str
    ok: bool
    gate: str = ""


@dataclass(frozen=True, slots=True)
class ConfigUpdated:
    """A new configuration snapshot is in force."""

    version: int


@dataclass(frozen=True, slots=True)
class ServiceCrashed:
    """A supervised task crashed; the supervisor has already decided what follows."""

    service: str
    task: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """The node was asked to stop."""

    cause: str


KernelEvent = HealthChanged | ConfigUpdated | ServiceCrashed | ShutdownRequested

if TYPE_CHECKING:
    Bus = Broadcast[KernelEvent]
