"""The prober: finds out at the start who is there, and asks the ill again, so that nobody's request has to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import PenstockError
from penstock.services.omnigate.own.boot import Probe, unanswered

if TYPE_CHECKING:
    from asyncio import Task

    from penstock.kernel.child import Child
    from penstock.kernel.scope import Scope
    from penstock.services.omnigate.agents.readiness import Readiness
    from penstock.services.omnigate.own.downstream import Downstream

LOOK_S: Final = 1.0
DIAL_EVERY: Final = 5
"""Looks between two tries to reach whoever was not there at the start."""


class Prober:
    """While a service behind is ill, writes are shed: without a question of our own nobody might ever ask it again."""

    def __init__(self, services: Mapping[str, tuple[Downstream, Probe]], readiness: Readiness) -> None:
        """Take a question for each service, to be asked under its own discipline."""
        self._services = services
        self._readiness = readiness
        # Those whose answer is still waited for: who hangs is not asked again meanwhile.
        self._asked: set[str] = set()

    async def run(self, child: Child, distant: Mapping[str, Probe], served: Callable[[], Collection[str]]) -> None:
        """Dial what is in other processes until it was there once, and ask the ill until they are well.

        What is not `served` any more, such as the upstream of a route that was removed, is not missed.
        """
        scope, looks = child.scope("probe", max(1, len(distant) + len(self._services))), 0
        while True:
            if distant and not looks % DIAL_EVERY:
                now = served()
                unreached = await unanswered({name: distant[name] for name in distant if name in now}, scope)
                now = served()
                self._readiness.unreached = [name for name in unreached if name in now]
                distant = {name: distant[name] for name in unreached}
            self.ask_the_ill(scope)
            looks += 1
            if await child.shutdown.sleep(LOOK_S):
                return

    def ask_the_ill(self, scope: Scope) -> None:
        """Ask each service whose breaker is not closed; while it is open the breaker itself says no at once."""
        for name, (downstream, probe) in self._services.items():
            if not downstream.healthy and name not in self._asked:
                asking = scope.start(_ask(downstream, probe))
                self._asked.add(name)
                asking.add_done_callback(partial(self._answered, name))

    def _answered(self, name: str, _asking: Task[None]) -> None:
        self._asked.discard(name)


async def _ask(downstream: Downstream, probe: Probe) -> None:
    with suppress(PenstockError):
        await downstream.call("probe", probe, idempotent=False)
