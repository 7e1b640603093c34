"""Puts the SQS face together: its parts, its routes and its children, for the bridge's own wiring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.kernel.child import ChildSpec, Drain
from penstock.services.interop.sqs.face.backing import SqsBacking
from penstock.services.interop.sqs.face.endpoint import SqsDesks, SqsEndpoint
from penstock.services.interop.sqs.face.errands import Errands
from penstock.services.interop.sqs.face.key_file import KeyFile
from penstock.services.interop.sqs.face.key_ring import KeyRing
from penstock.services.interop.sqs.face.key_routes import KeyRoutes
from penstock.services.interop.sqs.face.message_desk import MessageDesk
from penstock.services.interop.sqs.face.move_desk import MoveDesk
from penstock.services.interop.sqs.face.mover import MessageMover
from penstock.services.interop.sqs.face.queue_desk import QueueDesk
from penstock.services.interop.sqs.face.registry import QueueRegistry

if TYPE_CHECKING:
    from penstock.contracts.mailbox import Mailbox
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import Request
    from penstock.net.server.route import Route
    from penstock.services.interop.authority import BridgeAuthority
    from penstock.services.interop.sqs.face.access_keys import AccessKey

ACCOUNT = "000000000000"


@dataclass(frozen=True, kw_only=True, slots=True)
class SqsOptions:
    """What can be set about the face."""

    enabled: bool = True
    # What clients are told instead of the Host they asked; empty: that Host.
    url: str = ""
    account: str = ACCOUNT
    rps: int = 0
    waiters_max: int = 4096
    cooldown_s: float = 0.0
    keys: tuple[AccessKey, ...] = ()
    # Where the keys lie; None keeps them in RAM.
    folder: Path | None = None


class SqsFace:
    """Everything behind the SQS routes."""

    def __init__(
        self, inventory: Inventory, options: SqsOptions, mailbox: Mailbox | None, authority: BridgeAuthority
    ) -> None:
        """Declare everything; nothing runs yet."""
        self.options = options
        account = options.account
        self.keys = KeyRing(inventory, None if options.folder is None else KeyFile(options.folder), options.keys)
        backing = SqsBacking(mailbox, authority)
        self.registry = QueueRegistry(inventory, backing, self.keys)
        self._mover = MessageMover(inventory, backing, self.registry)
        queues = QueueDesk(inventory, backing, self.registry, account=account, cooldown_s=options.cooldown_s)
        messages = MessageDesk(inventory, self.registry, account=account)
        moves = MoveDesk(inventory, backing, self.registry, account=account)
        self._errands = Errands(inventory, backing, options.waiters_max)
        desks = SqsDesks(queues, messages, moves, self._errands)
        self.endpoint = SqsEndpoint(inventory, self.keys, desks, url=options.url, rps=options.rps)

    def routes(self, allow: Callable[[Request, str], Awaitable[None]], where: Callable[[], str]) -> list[Route]:
        """Describe the routes: the protocol's, and the operator's for keys."""
        self.key_routes = KeyRoutes(
            self.keys, allow, lambda: self.options.url or where(), at_gateway=self.endpoint.base
        )
        return [*self.key_routes.routes(), *self.endpoint.routes()]

    def gateway_routes(self) -> list[Route]:
        """Describe the protocol's routes for a gateway of the same process."""
        return self.endpoint.gateway_routes(self.options.account)

    def gateway_key_routes(self) -> list[Route]:
        """Describe the operator's routes for a gateway that serves the protocol too."""
        return self.key_routes.gateway_routes()

    def children(self) -> list[ChildSpec]:
        """List what the face runs; the keys are open when the registry has announced itself."""
        return [
            ChildSpec(
                "sqs_registry",
                self.registry.run,
                announces=True,
                drain=Drain.FINISH,
                consumes=(self.registry.changes,),
            ),
            ChildSpec("sqs_mover", self._mover.run),
        ]

    def told(self) -> dict[str, dict[str, str]]:
        """Return what the ready line says about the face."""
        known = self.key_routes.environment()
        return {
            "sqs": {
                "endpoint": known.endpoint,
                "access_key_id": known.access_key_id,
                "secret_access_key": known.secret_access_key,
            }
        }

    async def close(self) -> None:
        """Let the thread go; safe to call twice."""
        await self.keys.close()
