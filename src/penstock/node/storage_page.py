"""What svc-storage adds to the operator's page: how much is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.admin.concern import PagePart

if TYPE_CHECKING:
    from penstock.kernel.metrics import Metrics

_SHOWN: Final = {
    "objects": "storage_objects",
    "bytes": "storage_bytes",
    "reserved": "storage_reserved_bytes",
    "uploads": "uploads_open",
}


def storage_page(metrics: Metrics) -> PagePart:
    """Describe what is added to the page: the gauges of the service itself."""
    return PagePart(facts=lambda: {"storage": {key: metrics.value(name) for key, name in _SHOWN.items()}})
