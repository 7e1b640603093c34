"""The services behind a gateway, in the same process or in others, by the same contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.net.oap.client import OapClientOptions
from penstock.node.frames import socket_beside
from penstock.rpc.oap import remote_dht, remote_interop, remote_mailbox, remote_passport, remote_storage
from penstock.rpc.remote import Remote, RemoteOptions, oap_place
from penstock.services.omnigate.config import BEHIND
from penstock.services.omnigate.own.calling import absent
from penstock.services.omnigate.service import GatewayBackends

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.kernel.inventory import Inventory
    from penstock.node.build import Node
    from penstock.services.omnigate.config import OmnigateOptions

# The longest poll a client may ask for, its grace, and the way.
_POLL_S: Final = 25.0


class Neighbours:
    """Finds each service: here, where its key says, or, for a gateway alone, at its socket in the data directory."""

    def __init__(self, node: Node, inventory: Inventory, options: OmnigateOptions) -> None:
        self._node = node
        self._inventory = inventory
        self._options = options
        self._remotes: list[Remote] = []
        self.behind = self._find()

    def _find(self) -> GatewayBackends:
        node, options = self._node, self._options
        mailbox = None if node.mailbox else self._remote("mailbox", options.mailbox_calls, options.fair.max_parked)
        passport = None if node.passport else self._remote("passport", options.passport_calls)
        storage = None if node.storage else self._remote("storage", options.storage_calls)
        dht = None if node.dht else self._remote("dht", options.dht_calls)
        interop = None if node.interop else self._remote("interop", options.interop_calls)
        said = (table for table in BEHIND if node.settings.value[f"omnigate.downstream.{table}"] is not None)
        return GatewayBackends(
            distant=frozenset(f"svc-{table}" for table in said if getattr(node, table) is None),
            mailbox=node.mailbox if mailbox is None else remote_mailbox(mailbox),
            passport=node.passport if passport is None else remote_passport(passport),
            dht=node.dht if dht is None else remote_dht(dht),
            interop=node.interop if interop is None else remote_interop(interop),
            storage=node.storage if storage is None else remote_storage(storage),
        )

    def _remote(self, table: str, calls_max: int, polls_max: int = 0) -> Remote | None:
        settings = self._node.settings.value
        place = self._place(settings, table)
        if place is None:
            return None
        limits = RemoteOptions(
            # What is streamed reads its pieces beside the calls that are counted.
            calls_max=calls_max + self._options.fair.max_inflight,
            call_timeout_s=self._options.request_timeout_s,
            polls_max=polls_max,
            poll_timeout_s=_POLL_S,
            absent=absent(f"svc-{table}") if settings[f"omnigate.downstream.{table}"] is None else "",
        )
        self._remotes.append(remote := Remote(self._inventory, place, limits))
        return remote

    def _place(self, settings: Settings, table: str) -> OapClientOptions | None:
        if settings[f"omnigate.downstream.{table}"] is not None:
            return oap_place(settings.text(f"omnigate.downstream.{table}"))
        folder = settings.path("node.data_dir")
        if not self._node.serves_alone or settings.flag("node.amnesia") or folder is None:
            return None
        return OapClientOptions(uds_path=socket_beside(folder, table))

    async def close(self) -> None:
        """Close the connections, after the gateway has ended."""
        for remote in self._remotes:
            await remote.close()
