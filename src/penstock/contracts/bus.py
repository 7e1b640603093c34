"""The node's events across processes: the kernel's four as numbered OAP/1 EVENT frames. Pure."""

from __future__ import annotations

from typing import Final

from penstock.contracts.method import EventType, Methods
from penstock.kernel.bus import (
    ConfigUpdated,
    HealthChanged,
    ServiceCrashed,
    ShutdownRequested,
)

METHODS: Final = Methods(
    5,
    [],
    service="bus",
    events=[
        EventType(1, "Health", HealthChanged),
        EventType(2, "ConfigUpdated", ConfigUpdated),
        EventType(3, "ServiceCrashed", ServiceCrashed),
        EventType(4, "Shutdown", ShutdownRequested),
    ],
)
