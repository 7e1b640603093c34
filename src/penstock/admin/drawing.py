"""Makes one frame of all panels. A panel that fails shows its error; the others are not affected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.kernel.log import Log
from penstock.net.server.core import encode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.admin.panel import Panel
    from penstock.kernel.metrics import Metrics

_log: Final = Log("node")


class Drawing:
    """The panels of a page. A failure is logged when it begins and when it changes, not once a second."""

    def __init__(self, panels: Sequence[Panel], metrics: Metrics) -> None:
        """Draw these, in this order."""
        self.panels = tuple(panels)
        self._failures = metrics.counter(
            "page_panel_failures_total", "Panels of the operator's page that failed to draw."
        )
        self._failing: dict[str, str] = {}

    def draw(self) -> list[msgspec.Raw]:
        """Return every panel as JSON. A panel whose values cannot be encoded has failed too."""
        return [self._draw(panel) for panel in self.panels]

    def _draw(self, panel: Panel) -> msgspec.Raw:
        try:
            drawn = encode_json(panel.draw())
        # One panel that fails must not take the whole page with it: its failure is shown in its place.
        except Exception as error:  # noqa: BLE001  # lint: allow PK015 the failure is shown in the panel's place
            return msgspec.Raw(encode_json(self._failed(panel, error)))
        if self._failing.pop(panel.id, None) is not None:
            _log.info("panel.recovered", panel=panel.id)
        return msgspec.Raw(drawn)

    def _failed(self, panel: Panel, error: Exception) -> dict[str, object]:
        self._failures.value += 1
        if self._failing.get(panel.id) != type(error).__name__:
            self._failing[panel.id] = type(error).__name__
            _log.error("panel.failed", panel=panel.id, error=error)
        return panel.failed(error)
