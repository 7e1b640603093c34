"""The history sampler: one child that measures everything once a second, whether or not anybody looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from penstock.admin.history import BYTES_MAX, SERIES_MAX, FigureHistory, HistorySpan, shortened
from penstock.admin.readings import PEAKS, Readings
from penstock.kernel.errors import Malformed, PenstockError
from penstock.kernel.log import Log
from penstock.net.server.route import Route
from penstock.wire.plain_words import plain_fault

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import Request

TICK_S: Final = 1.0
REFRESH_S: Final = 3.0
_POINTS_MAX: Final = 400
_PREFIXES_MAX: Final = 16
# Names and commas between them, as the description says it; `_tell` counts them.
_SERIES: Final = rf"^[^,]*(?:,[^,]*){{0,{_PREFIXES_MAX - 1}}}(?![\s\S])"
_log: Final = Log("node")


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which figures, of how long, and how many points each."""

    span: HistorySpan = "1h"
    series: Annotated[str, Meta(extra_json_schema={"pattern": _SERIES})] = ""
    points: Annotated[int, Meta(ge=0, le=_POINTS_MAX)] = 0


class HistoryOut(msgspec.Struct, frozen=True):
    """Lines of figures, oldest first; null is a second in which nothing was measured."""

    span: HistorySpan
    series: dict[str, list[float | None]]


class Sampler:
    """Owns the history. Sources are read in one step of the loop, so that all values of a second belong together."""

    def __init__(
        self, inventory: Inventory, sources: Sequence[Readings], asking: Sequence[Callable[[], Awaitable[None]]] = ()
    ) -> None:
        """List the history among the bounds of the node; `asking` is called every few seconds, between samples."""
        self._asking = tuple(asking)
        self._clock = inventory.clock
        self._sources = tuple(sources)
        self._failing: set[Readings] = set()
        self.history = FigureHistory(PEAKS)
        # What was measured last, for the frames of the page.
        self.now: dict[str, float] = {}
        live: Callable[[], dict[str, object]] = lambda: {  # noqa: E731
            "series": len(self.history),
            "in_use": self.history.bytes_in_use(),
        }
        policy = f"an hour of at most {SERIES_MAX} figures; more: the one that was quiet longest is forgotten"
        inventory.limit("page_history_bytes", BYTES_MAX, policy, live)
        inventory.metrics.gauge(
            "page_history_bytes",
            "Bytes of RAM that the page's hour of history takes.",
            read=lambda: float(self.history.bytes_in_use()),
        )

    async def run(self, child: Child) -> None:
        """Measure until the node drains."""
        while True:
            self.sample()
            if await child.shutdown.sleep(TICK_S):
                return

    def sample(self) -> None:
        """Measure once."""
        now = self._clock.monotonic()
        values: dict[str, float] = {}
        for source in self._sources:
            values.update(self._read(source, now))
        self.now = {name: shortened(value) for name, value in values.items()}
        self.history.record(int(now), values)

    def _read(self, source: Readings, now: float) -> dict[str, float]:
        """Read one source. One that fails leaves a gap, is logged once, and the others go on."""
        try:
            values = dict(source(now))
        except Exception as error:  # noqa: BLE001  # lint: allow PK015 a figure that fails must not end the others
            if source not in self._failing:
                self._failing.add(source)
                _log.error("history.source_failed", error=error)
            return {}
        self._failing.discard(source)
        return values

    async def refresh(self, child: Child) -> None:
        """Have the sources ask for what they cannot know at once, until the node drains."""
        while not await child.shutdown.sleep(REFRESH_S):
            for ask in self._asking:
                try:
                    await ask()
                except PenstockError as error:
                    # Who was asked tells what is wrong with it; here the figures only stay as they were.
                    _log.debug("history.not_refreshed", detail=error.detail)

    def lately(self, prefix: str) -> dict[str, float]:
        """Return how much each rate came to in the last minute, by the rest of its name."""
        found = self.history.read("5m", prefixes=(prefix,))
        return {name.removeprefix(prefix): sum(value or 0.0 for value in line[-60:]) for name, line in found.items()}

    # --- the route

    def routes(self) -> list[Route]:
        """List the one route, by the page's path and by the one that the gateway passes on."""
        return [
            Route(
                method="GET",
                path=path,
                handler=self._tell,
                query=HistoryQuery,
                answer=HistoryOut,
                summary="The last five minutes or the last hour of the page's figures.",
                errors=("malformed",),
            )
            for path in ("/history", "/v1/node/history")
        ]

    def _tell(self, request: Request) -> HistoryOut:
        try:
            asked = msgspec.convert(request.query_params(), HistoryQuery, strict=False)
        except msgspec.ValidationError as exc:
            raise Malformed(plain_fault(str(exc), HistoryQuery)) from exc
        prefixes = tuple(asked.series.split(","))
        if len(prefixes) > _PREFIXES_MAX:
            raise Malformed(f"At most {_PREFIXES_MAX} names of series can be asked for.")
        return HistoryOut(asked.span, self.history.read(asked.span, prefixes=prefixes, points=asked.points))
